"""A quantized copy of the target drafts in the target's own cache, and leaves nothing in it."""

from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Request, Session
from tests.unit.runtime.tables import Table, TableEngine, greedy_ids, make_table, near_table

TABLE = make_table(1)
PROMPTS = [np.random.default_rng(seed).integers(0, 8, 1 + seed % 7).tolist() for seed in range(20)]


class SharingEngine(TableEngine):
    """Another table over the slots of `owner`."""

    def __init__(self, table: Table, owner: TableEngine) -> None:
        super().__init__(table, owner.capacity)
        self._slots = owner._slots

    def adopt(self, length: int) -> None:
        self._cursor.adopt(length)


def _session(seed: int = 2) -> tuple[Session, TableEngine, SharingEngine]:
    target = TableEngine(TABLE)
    sharer = SharingEngine(near_table(TABLE, seed), target)
    return Session(target, SharedCacheDraft(sharer, target)), target, sharer


@pytest.mark.parametrize("length", range(1, 9))
def test_greedy_output_is_that_of_plain_decoding(length: int) -> None:
    rates: list[float] = []
    for prompt in PROMPTS:
        session, _, _ = _session()
        ids = list(session.generate(prompt, Request(24, draft_length=length)))
        assert ids == greedy_ids(TABLE, prompt, 24)
        rates.append(session.statistics.acceptance)
    assert 0 < float(np.mean(rates)) < 1  # both verdicts were met


def test_the_draft_reads_no_prompt_and_catches_up_with_nothing() -> None:
    session, _, sharer = _session()
    list(session.generate(PROMPTS[6], Request(24, draft_length=4)))
    assert all(len(step.tokens) == 1 for step in sharer.steps)
    assert sharer.steps[0].start == len(PROMPTS[6])


def test_every_committed_row_is_the_targets() -> None:
    """The target writes each of them, and after the draft wrote there last."""
    session, target, _ = _session()
    prompt = PROMPTS[6]
    ids = list(session.generate(prompt, Request(24, draft_length=4)))
    written = {step.start + index for step in target.steps for index in range(len(step.tokens))}
    committed = [*prompt, *ids][: target.length]
    assert target.rows == committed
    assert set(range(target.length)) <= written


def test_sampled_output_repeats_with_its_seed_and_continues_a_conversation() -> None:
    request = Request(12, sampling=Sampling(1.0, seed=3), draft_length=3)
    session, _, _ = _session()
    first = list(session.generate(PROMPTS[3], request))
    longer = [*PROMPTS[3], *first, 1]
    second = list(session.generate(longer, request))
    cold, _, _ = _session()
    assert list(cold.generate(longer, request)) == second
    assert session.statistics.reused_tokens > 0


def test_rows_that_cannot_exist_are_not_adopted() -> None:
    cursor = Cursor(8)
    cursor.adopt(8)
    assert cursor.length == 8
    for length in (-1, 9):
        with pytest.raises(ValueError, match="cannot hold"):
            cursor.adopt(length)
