from collections.abc import Iterator
from itertools import pairwise

import pytest

from speccompile.runtime.bench.sweep import Sweep, run_sweep
from speccompile.runtime.bench.variants import PLAIN, Lineup, Variant
from speccompile.runtime.control.controller import Controller, FixedController, Outcome
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.errors import RequestError
from speccompile.runtime.generation import Block, Generation
from speccompile.runtime.session import AnySession, Request, Session
from tests.counting import CountingDraft, CountingEngine

REQUEST = Request(max_new_tokens=6, stop_tokens=frozenset({0}))
PROMPTS = [[1], [2], [3]]


class CountingController:
    """One token a round; counts requests and rounds over its life."""

    def __init__(self) -> None:
        self.requests = self.rounds = 0

    def start(self) -> None:
        self.requests += 1

    def effort(self, room: int) -> Effort | None:
        return Effort(1, 1)

    def learn(self, outcome: Outcome) -> None:
        self.rounds += 1


class FakeOpener:
    """Remembers the drafts of its sessions; those of `wrong` have another target."""

    def __init__(self, wrong: str = "") -> None:
        self.opened: list[str | None] = []
        self._engine, self._wrong = CountingEngine(), wrong

    def session(self, draft: str | None = None) -> AnySession:
        self.opened.append(draft)
        self._engine.rollback(0)
        engine = CountingEngine(stride=2) if draft == self._wrong else self._engine
        return Session(engine, None if draft == "none" else CountingDraft())


class NoController(FakeOpener):
    """As on a GPU."""

    def session(self, draft: str | None = None) -> AnySession:
        return OtherSession(64)


class OtherSession(AnySession):
    def _blocks(self, generation: Generation) -> Iterator[Block]:
        return iter(())


def lineup(*controllers: Controller) -> Lineup:
    """Plain decoding, and variants a, b, ... whose drafts are called so too."""
    drafted = [
        Variant(name, name, controller)
        for name, controller in zip("abcdef", controllers, strict=False)
    ]
    return Lineup((PLAIN, *drafted), "a")


def sweep(opener: FakeOpener, controllers: int = 2, **options: float) -> Sweep:
    variants = lineup(*(FixedController(3) for _ in range(controllers)))
    return run_sweep(opener, PROMPTS, REQUEST, variants, budget=options.get("budget"))


def test_every_prompt_runs_in_all_ways_and_the_first_round_is_not_counted() -> None:
    opener = FakeOpener()
    found = sweep(opener)
    assert [trial.prompt for trial in found.trials] == [0, 1, 2]
    assert all(trial.runs.keys() == {"plain", "a", "b"} for trial in found.trials)
    assert len(opener.opened) == 4 * 3
    assert (found.measured, found.asked) == (3, 3)


def test_the_order_changes_from_prompt_to_prompt() -> None:
    opener = FakeOpener()
    sweep(opener, controllers=3)
    rounds = [tuple(opener.opened[at : at + 4]) for at in range(0, len(opener.opened), 4)]
    assert all(sorted(map(str, order)) == ["a", "b", "c", "none"] for order in rounds)
    assert len({order[0] for order in rounds}) > 1
    assert len({order[-1] for order in rounds}) > 1
    before = {first for order in rounds for first, second in pairwise(order) if second == "b"}
    assert len(before) > 1


def test_outputs_are_plain_decoding_s_and_plain_decoding_proposes_nothing() -> None:
    found = sweep(FakeOpener())
    assert found.differing == {}
    runs = found.trials[0].runs
    assert runs["plain"].tokens == runs["a"].tokens == (2, 3, 4, 5, 6, 7)
    assert not runs["plain"].statistics.proposed
    assert runs["a"].statistics.proposed[:2] == [2, 2]


def test_every_run_begins_with_an_empty_cache() -> None:
    runs = [run for trial in sweep(FakeOpener()).trials for run in trial.runs.values()]
    assert {run.statistics.reused_tokens for run in runs} == {0}


def test_a_variant_with_other_outputs_is_named() -> None:
    assert sweep(FakeOpener(wrong="b")).differing == {"b": (0, 1, 2)}


def test_a_controller_lives_through_all_prompts() -> None:
    controller = CountingController()
    found = run_sweep(FakeOpener(), PROMPTS, REQUEST, lineup(controller), rounds=2)
    assert controller.requests == 1 + 2 * len(PROMPTS)
    counted = sum(trial.runs["a"].statistics.rounds for trial in found.trials)
    warm_up = found.trials[0].runs["a"].statistics.rounds
    assert controller.rounds == warm_up + counted


def test_without_time_one_prompt_is_measured() -> None:
    found = sweep(FakeOpener(), budget=0.0)
    assert [trial.prompt for trial in found.trials] == [0]
    assert (found.measured, found.asked) == (1, 3)
    assert sweep(FakeOpener(), budget=3600.0).measured == 3


def test_progress_goes_up_to_the_end() -> None:
    steps: list[tuple[int, int]] = []
    run_sweep(
        FakeOpener(),
        PROMPTS,
        REQUEST,
        lineup(FixedController(2)),
        progress=lambda done, total, _: steps.append((done, total)),
    )
    assert steps == [(done, 8) for done in range(9)]


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(RequestError, match="no prompts"):
        run_sweep(FakeOpener(), [], REQUEST, lineup())
    with pytest.raises(RequestError, match="--on cpu"):
        run_sweep(
            NoController(), PROMPTS, REQUEST, Lineup((Variant("a", "a", FixedController(1)),), "a")
        )
