from __future__ import annotations

import sys
from collections import Counter

import pytest

from speccompile.compiler.drafts import corpus
from speccompile.compiler.drafts.chitchat import chitchat_openings
from speccompile.compiler.drafts.corpus import Prompt, builtin_prompts, split


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


def test_they_are_the_same_every_time(
    prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_from_library", lambda: iter(()))
    assert builtin_prompts(3) == builtin_prompts(3)
    assert builtin_prompts(3) != builtin_prompts(4)


def test_a_text_is_always_on_the_same_side(prompts: list[Prompt]) -> None:
    learned, held_out = split(prompts, 0.1)
    assert 0.08 < len(held_out) / len(prompts) < 0.12
    assert not set(learned) & set(held_out)
    assert split(prompts[::-1], 0.1)[1] == held_out[::-1]


def test_conversations_are_taken_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chitchat_dataset", None)
    assert chitchat_openings() == []
