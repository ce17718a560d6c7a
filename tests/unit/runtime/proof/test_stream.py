from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.runtime.control.controller import Controller
from speccompile.runtime.proof import stream
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.ledger import Ledger
from speccompile.runtime.proof.stream import check_stream
from speccompile.runtime.proof.variants import Variant
from speccompile.runtime.session import Session
from tests.unit.runtime.proof.sessions import (
    PROMPTS,
    TARGET,
    VARIANTS,
    VERIFY,
    believing,
    open_session,
)
from tests.unit.runtime.tables import TableEngine

COUNT = 1500


def streamed(
    count: int = COUNT, ledger: Ledger | None = None, progress: Progress = silent
) -> Check:
    target = TableEngine(TARGET)

    def session(variant: Variant, checked: Callable[[Controller], Controller]) -> Session:
        return open_session(target, variant, checked(variant.drawing()))

    return check_stream(session, VARIANTS, PROMPTS, count, ledger=ledger, progress=progress)


def test_a_sound_stream() -> None:
    check = streamed()
    assert check.passed
    details = check.details
    tokens, ks, limit = details["tokens"], details["ks"], details["ks_limit"]
    assert isinstance(tokens, int)
    assert isinstance(ks, float)
    assert isinstance(limit, float)
    assert tokens >= COUNT
    assert ks <= limit
    assert details["drafts"] == ["model", "ngram", "suffix", "union"]
    assert "have the target's law: KS" in check.summary


def test_a_wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VERIFY, believing)
    check = streamed()
    assert not check.passed
    assert "do not have the target's law" in check.summary


def test_too_few_tokens_are_no_proof() -> None:
    check = streamed(20)
    assert not check.passed
    assert "are too few" in check.summary


def test_the_control_fails_by_itself() -> None:
    control = vars(stream)["_control"](500)
    assert control.pit.statistic > control.pit.limit


def test_a_killed_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = streamed(600)
    path = tmp_path / "state.json"

    def kill(name: str, done: int, total: int) -> None:
        if done > 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        streamed(600, Ledger(path), kill)
    seen: list[int] = []

    def see(name: str, done: int, total: int) -> None:
        seen.append(done)

    assert streamed(600, Ledger(path), see) == whole
    assert seen[0] > 300
