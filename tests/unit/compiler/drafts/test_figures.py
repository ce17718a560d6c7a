"""Figures of one pass over a text, against the decoding that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.drafts.evaluate_artifact import trace_engines
from speccompile.compiler.drafts.figures import (
    EVERYTHING,
    LONGEST,
    Figures,
    StepCosts,
    Trace,
    figures,
    trace,
)
from speccompile.runtime.control.controller import Outcome
from speccompile.runtime.costmodel import predicted_speedup
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.session import Request, Session
from tests.unit.runtime.drafting.test_shared_cache import SharingEngine
from tests.unit.runtime.tables import Table, TableEngine, greedy_ids, make_table, near_table

TARGET = make_table(1)
NEAR = near_table(TARGET, 2)
PROMPTS = [np.random.default_rng(seed).integers(0, 8, 1 + seed % 9).tolist() for seed in range(24)]
LENGTH = 37
COSTS = StepCosts.predicted(0.1)

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Branching:
    """The same tree every round."""

    widths: Sequence[int]

    def start(self) -> None: ...

    def effort(self, room: int) -> Effort | None:
        widths = self.widths[:room]
        return Effort(len(widths), sum(widths), branches=dict(enumerate(widths)))

    def learn(self, outcome: Outcome) -> None: ...


def read(draft: Table, prompt: list[int]) -> Trace:
    answer = greedy_ids(TARGET, prompt, LENGTH)
    engines = TableEngine(TARGET), TableEngine(draft)
    return trace_engines(*engines, prompt, answer, shares=False)


def found_of(draft: Table, *, depth: int = 4, costs: StepCosts = COSTS) -> Figures:
    return figures({"x": [read(draft, prompt) for prompt in PROMPTS]}, costs, depth=depth)["x"]


def decoded(draft: Table, widths: Sequence[int]) -> tuple[float, list[int], list[int]]:
    """By the runtime: tokens a round; and by level, how many were tested, how many stood."""
    tokens = rounds = 0
    tested, stood = [0] * len(widths), [0] * len(widths)
    for prompt in PROMPTS:
        session = Session(TableEngine(TARGET), ModelDraft(TableEngine(draft)), Branching(widths))
        assert list(session.generate(prompt, Request(LENGTH))) == greedy_ids(TARGET, prompt, LENGTH)
        told = session.statistics
        tokens, rounds = tokens + told.decode_tokens, rounds + told.rounds
        for level, (proposed, accepted) in enumerate(
            zip(told.proposed, told.accepted, strict=True)
        ):
            tested[level] += proposed
            stood[level] += accepted
    return tokens / rounds, tested, stood


@pytest.mark.parametrize("length", range(1, LONGEST + 1))
def test_chains_are_what_the_runtime_decodes(length: int) -> None:
    tokens, tested, stood = decoded(NEAR, [1] * length)
    found = found_of(NEAR, depth=length)
    assert found.tokens_a_round[length] == pytest.approx(tokens)
    shares = [right / count for right, count in zip(stood, tested, strict=True)]
    # The runtime proposes no token that it could not keep: the last of a text, once or twice.
    assert found.positions == pytest.approx(shares, abs=0.05)


def test_the_tree_is_what_the_runtime_decodes() -> None:
    for noise in (0.5, 1.0, 2.0):
        draft = near_table(TARGET, 3, noise=noise)
        tree = found_of(draft).tree
        assert tree is not None
        assert 1 < sum(tree.widths) <= LONGEST
        assert tree.tokens_a_round == pytest.approx(decoded(draft, tree.widths)[0])


def test_the_tree_is_no_worse_than_any_chain_and_no_larger_than_pays() -> None:
    free = found_of(NEAR)
    assert free.tree is not None
    assert free.tree.speedup > max(free.speedups)
    assert max(free.tree.widths) > 1
    rows_cost = StepCosts({1: 1.0, 2: 1.3, 9: 3.4}, {1: 0.1, 2: 0.1}, False, measured=True)
    dear = found_of(NEAR, costs=rows_cost)
    assert dear.tree is not None
    assert sum(dear.tree.widths) < LONGEST
    assert dear.tree.speedup >= max(dear.speedups[1:])


def test_a_draft_that_is_the_target_is_always_right() -> None:
    found = found_of(TARGET)
    assert found.positions == (1.0,) * 4
    assert found.overlap == pytest.approx(1.0)
    assert found.tokens_a_round[2] == pytest.approx(3.0)  # 36 tokens in rounds of three
    assert found.best_length == LONGEST


def test_a_broken_draft_is_never_right() -> None:
    """It is sure of what is least likely to the target."""
    broken = np.full_like(TARGET, -np.inf)
    np.put_along_axis(broken, TARGET.argmin(-1)[..., None], 0.0, -1)
    found = found_of(broken)
    assert found.positions == (0.0,) * 4
    assert found.overlap < 0.01
    assert found.tokens_a_round == (1.0,) * (LONGEST + 1)
    assert found.best_length == 0
    assert found.tree is not None
    assert found.tree.tokens_a_round == 1.0


def test_ranks_and_overlaps_by_hand() -> None:
    rng = np.random.default_rng(0)
    draft = rng.integers(0, 4, (50, 9)).astype(np.float32)  # many are equal
    draft[rng.random(draft.shape) < 0.3] = -np.inf
    draft[:, 4] = 1.0  # something can be said
    target = rng.normal(size=(50, 9)).astype(np.float32)
    said = rng.integers(0, 9, 50)
    found = trace(said, draft, target)
    for row, token in enumerate(said.tolist()):
        order = sorted(range(9), key=lambda each: (-draft[row, each], each))
        absent = np.isneginf(draft[row, token])
        assert found.ranks[row] == (9 if absent else order.index(token))
        left, right = law(draft[row]), law(target[row])
        assert found.overlaps[row] == pytest.approx(1.0 - 0.5 * np.abs(left - right).sum(), 1e-5)


def law(row: Floats) -> NDArray[np.float64]:
    weights = np.exp(row.astype(np.float64))
    found: NDArray[np.float64] = weights / weights.sum()
    return found


def test_the_first_token_of_a_text_is_nobodys() -> None:
    wrong_first = Trace(np.array([5, 0, 0]), np.array([0.0, 0.5, 0.7]))
    found = figures({"x": [wrong_first]}, COSTS, depth=2)["x"]
    assert found.tokens == 2
    assert found.overlap == pytest.approx(0.6)
    assert found.positions == (1.0, 1.0)


def test_domains_and_all_of_them() -> None:
    right, wrong = Trace(np.zeros(9, np.int64), np.ones(9)), Trace(np.full(5, 7), np.zeros(5))
    empty = Trace(np.zeros(1, np.int64), np.ones(1))
    found = figures({"a": [right], "b": [wrong, empty], "c": [empty]}, COSTS, depth=1)
    assert list(found) == ["a", "b", EVERYTHING]
    assert (found["b"].texts, found["b"].tokens) == (2, 4)
    assert found[EVERYTHING].overlap == pytest.approx(8 / 12)
    assert found["a"].positions == (1.0,)
    assert found["b"].tokens_a_round[1] == 1.0
    assert figures({"c": [empty]}, COSTS, depth=1) == {}


def test_no_tree_where_the_target_takes_none() -> None:
    traces = {"x": [read(NEAR, prompt) for prompt in PROMPTS]}
    assert figures(traces, COSTS, depth=1, trees=False)["x"].tree is None


def test_a_predicted_cost_is_a_share_of_a_step() -> None:
    found = found_of(NEAR, costs=StepCosts.predicted(0.25))
    assert StepCosts.predicted(0.25).ratio == 0.25
    for length, tokens in enumerate(found.tokens_a_round):
        assert found.speedups[length] == pytest.approx(tokens / (1 + length * 0.25))


@pytest.mark.parametrize("shares", [False, True])
def test_measured_costs_count_rows_as_the_cost_model_does(shares: bool) -> None:
    target = {rows: 20.0 + rows for rows in range(1, 10)}
    costs = StepCosts(target, {1: 3.0, 2: 5.0}, shares, measured=True)
    right = Trace(np.zeros(1 + 9 * 4, np.int64), np.ones(1 + 9 * 4))
    [found] = figures({"x": [right]}, costs, depth=1).values()
    sides = (costs.draft, costs.target)
    for length in (2, 3, 8):  # whose rounds fill the text
        expected = predicted_speedup(length, (1.0,), *sides, shares_cache=shares)
        assert found.speedups[length] == pytest.approx(expected)


def test_a_draft_in_its_targets_cache_reads_the_targets_rows() -> None:
    for prompt in PROMPTS:
        target = TableEngine(TARGET)
        sharer = SharingEngine(NEAR, target)
        answer = greedy_ids(TARGET, prompt, LENGTH)
        found = trace_engines(target, sharer, prompt, answer, shares=True)
        assert found.ranks.tolist() == read(NEAR, prompt).ranks.tolist()
        assert sum(len(step.tokens) for step in sharer.steps) == LENGTH  # no prompt but its end
        session = Session(target, SharedCacheDraft(sharer, target), Branching([1, 1]))
        assert list(session.generate(prompt, Request(LENGTH))) == answer


def test_what_an_engine_has_no_room_for_is_left_out() -> None:
    answer = greedy_ids(TARGET, [1, 2], LENGTH)
    small = TableEngine(NEAR, 20)
    found = trace_engines(TableEngine(TARGET), small, [1, 2], answer, shares=False)
    whole = read(NEAR, [1, 2])
    assert found.ranks.tolist() == whole.ranks[:18].tolist()
