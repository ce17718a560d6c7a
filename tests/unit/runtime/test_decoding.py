"""A round but for the target's step: what it feeds, and what it keeps."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from speccompile.runtime.control.controller import Outcome
from speccompile.runtime.decoding import Decoding
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.generation import Generation
from speccompile.runtime.metered import Work
from speccompile.runtime.request import Request
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.signals import Signals
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


class Hesitant:
    """A controller that takes its time, and whose efforts do."""

    def start(self) -> None: ...

    def effort(self, room: int) -> Effort:
        time.sleep(0.15)
        return Effort(1, 1, self.go_on)

    def go_on(self, signals: Signals) -> bool:
        time.sleep(0.15)
        return True

    def learn(self, outcome: Outcome) -> None: ...


class Asking(Tree):
    """Asks whether to go on; a proposal takes 50 ms more, 20 of them in a step, as it says."""

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        time.sleep(0.05)
        effort.go_on(Signals(TABLE[0, 0], 0))
        self.work += Work(0.02, 0.01, 1, len(tokens))
        return super().propose(tokens, effort, sampler)


def test_what_engines_and_the_controller_take_is_no_assembly() -> None:
    generation = Generation(PROMPT, Request(9), 64)
    decoding = Decoding(generation, [], capacity=64, draft=Asking(), controller=Hesitant())
    target = TableEngine(TABLE)
    _round(decoding, target)
    feed = decoding.propose()
    logits = target.step(feed.tokens, parents=feed.parents, last=feed.last)
    decoding.take(logits, Work(7.0, 6.75, 1, 40))
    statistics = generation.statistics
    assert statistics.target_computing_seconds == 6.75
    assert (statistics.target_steps, statistics.target_context) == (1, 40)
    assert (statistics.draft_steps, statistics.draft_context) == (1, len(PROMPT) + 1)
    assert statistics.draft_computing_seconds == pytest.approx(0.01)
    # 50 ms of a proposal, less 20 in the engine's steps, and of steps what was not computing.
    assembly = statistics.assembly_seconds - (0.05 - 0.02) - (0.02 - 0.01) - (7.0 - 6.75)
    assert 0.0 <= assembly < 0.25  # the controller's 300 ms are not in it


def _round(decoding: Decoding, target: TableEngine, seconds: float = 0.0) -> list[int]:
    feed = decoding.propose()
    logits = target.step(feed.tokens, parents=feed.parents, last=feed.last)
    block = decoding.take(logits, Work(seconds))
    target.rollback(len(decoding.rows))
    return list(decoding.generation.add(block))
