"""A round but for the target's step: what it feeds, and what it keeps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from speccompile.runtime.decoding import Decoding
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.generation import Generation
from speccompile.runtime.metered import Work
from speccompile.runtime.request import Request
from speccompile.runtime.sampler import Sampler
from tests.unit.runtime.tables import TableEngine, greedy_ids, make_table

TABLE = make_table(1)
PROMPT = [1, 2]
IDS = greedy_ids(TABLE, PROMPT, 8)


class Tree:
    """Proposes a wrong token, and beside it two right ones, the second behind the first."""

    name = "tree"
    work = Work()
    asked = 0

    def start(self, prompt: Sequence[int]) -> None: ...

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        self.asked += 1
        right = greedy_ids(TABLE, tokens, 2)
        return Proposal([(right[0] + 1) % 8, *right], [0, 0, 2], [None] * 3)


@pytest.fixture
def draft() -> Tree:
    return Tree()


@pytest.fixture
def decoding(draft: Tree) -> Decoding:
    return Decoding(Generation(PROMPT, Request(9), 64), [], capacity=64, draft=draft)


def test_the_first_round_is_the_prompt(decoding: Decoding) -> None:
    feed = decoding.propose()
    assert feed == (PROMPT, None, 1)
    assert decoding.take(TableEngine(TABLE).step(PROMPT)[-1:]).tokens == IDS[:1]
    assert decoding.rows == PROMPT
    assert decoding.generation.statistics.rounds == 0


def test_accepted_tokens_beside_the_chain_are_fed_again(decoding: Decoding) -> None:
    target = TableEngine(TABLE)
    _round(decoding, target)
    assert decoding.propose() == ([IDS[0], (IDS[1] + 1) % 8, *IDS[1:3]], [-1, 0, 0, 2], 4)
    assert _round(decoding, target) == IDS[1:4]
    assert decoding.rows == [*PROMPT, IDS[0]] == target.rows
    again = decoding.propose()
    assert again.tokens[:3] == IDS[1:4]
    assert again.parents == [-1, 0, 1, 2, 2, 4]
    assert again.last == 4


def test_a_proposal_is_made_once_and_outlives_the_cache(decoding: Decoding, draft: Tree) -> None:
    target = TableEngine(TABLE)
    _round(decoding, target)
    first = decoding.propose()
    decoding.rows.clear()
    again = decoding.propose()
    assert again.tokens == [*PROMPT, *first.tokens]
    assert again.parents == [-1, 0, 1, 2, 2, 4]
    target.rollback(0)
    assert _round(decoding, target) == IDS[1:4]
    assert draft.asked == 1


def test_the_target_s_seconds_are_as_said(decoding: Decoding) -> None:
    target = TableEngine(TABLE)
    _round(decoding, target)
    _round(decoding, target, seconds=7.0)
    statistics = decoding.generation.statistics
    assert statistics.target_seconds == 7.0
    assert 7.0 < statistics.decode_seconds < 8.0


def _round(decoding: Decoding, target: TableEngine, seconds: float = 0.0) -> list[int]:
    feed = decoding.propose()
    logits = target.step(feed.tokens, parents=feed.parents, last=feed.last)
    block = decoding.take(logits, Work(seconds))
    target.rollback(len(decoding.rows))
    return list(decoding.generation.add(block))
