from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from speccompile.cli.prompts import SHIPPED_SETS, read_sets
from speccompile.compiler.drafts import corpus
from speccompile.compiler.drafts.chitchat import chitchat_openings
from speccompile.compiler.drafts.corpus import Prompt, builtin_prompts, file_prompts, split
from speccompile.runtime.errors import RequestError


def own(text: str) -> Prompt:
    return Prompt(text, "chat", raw=False, origin=text)


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return builtin_prompts(0)


def test_any_beginning_is_a_mixture(prompts: list[Prompt]) -> None:
    assert len(prompts) > 20_000
    assert len(set(prompts)) == len(prompts)
    assert all(0 < len(prompt.text) <= 1500 for prompt in prompts)
    kinds = Counter(prompt.kind for prompt in prompts[:1000])
    assert kinds == {"chat": 500, "code": 400, "text": 100}
    assert len({prompt.text[:12] for prompt in prompts[:1000]}) > 300


def test_only_chat_and_tasks_are_put_through_a_template(prompts: list[Prompt]) -> None:
    assert {(prompt.kind, prompt.raw) for prompt in prompts} == {
        ("chat", False),
        ("code", False),
        ("code", True),
        ("text", True),
    }
    assert all("{" not in prompt.text for prompt in prompts if "topic}" in prompt.text)


def test_what_benches_ask_by_default_is_not_learned(prompts: list[Prompt]) -> None:
    learned = {prompt.text for prompt in prompts}
    shipped = read_sets([f"builtin:{name}" for name in SHIPPED_SETS]) + read_sets([])
    assert not learned & {prompt.text for prompt in shipped}


def test_they_are_the_same_every_time(
    prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert builtin_prompts(0) == prompts
    monkeypatch.setattr(corpus, "library_prompts", tuple)
    assert builtin_prompts(3) == builtin_prompts(3)
    assert builtin_prompts(3) != builtin_prompts(4)


def test_all_of_an_origin_is_on_the_same_side(prompts: list[Prompt]) -> None:
    learned, held_out = split(prompts, 0.1)
    assert 0.05 < len(held_out) / len(prompts) < 0.15
    for attribute in ("text", "origin"):
        sides = ({getattr(each, attribute) for each in side} for side in (learned, held_out))
        assert not set.intersection(*sides)
    assert split(prompts[::-1], 0.1)[1] == held_out[::-1]


def test_conversations_are_taken_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("chitchat_dataset")
    openings = ["are you there?", "x" * 501, "are you there?"]
    monkeypatch.setattr(
        package, "ConversationDataset", lambda: [[opening] for opening in openings], raising=False
    )
    monkeypatch.setattr(corpus, "library_prompts", tuple)
    monkeypatch.setitem(sys.modules, "chitchat_dataset", package)
    with_them = builtin_prompts(0)
    monkeypatch.setitem(sys.modules, "chitchat_dataset", None)
    assert chitchat_openings() == []
    assert set(with_them) - set(builtin_prompts(0)) == {own("are you there?")}


def test_a_users_prompts_are_messages(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("one\\ntwo\n\nthree\none\\ntwo\n", encoding="utf-8")
    assert file_prompts(path) == [own("one\ntwo"), own("three")]
    with pytest.raises(RequestError, match="must end in"):
        file_prompts(tmp_path / "own.csv")
