"""A batch: every request gets what it would get alone, whatever the others are and do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from speccompile.runtime.batch import BatchSession, Ticket
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.drafting.suffix import SuffixDraft
from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.turns import TurnsEngine
from speccompile.runtime.errors import EngineError, NoRoomError, RequestError
from speccompile.runtime.generation import Finish
from speccompile.runtime.metered import Work
from speccompile.runtime.request import Request
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.unit.runtime.table_batch import TableBatch
from tests.unit.runtime.tables import TableEngine, greedy_ids, make_table, near_table

TABLE = make_table(1)
MODES = {
    "greedy": Sampling(),
    "sampled": Sampling(0.9, seed=3),
    "audited": Sampling(0.9, seed=3, audited=True),
}
EVERY_MODE = pytest.mark.parametrize("sampling", MODES.values(), ids=MODES.keys())


@dataclass(frozen=True)
class Asked:
    """A request, and what drafts for it."""

    prompt: list[int]
    request: Request
    draft: Callable[[], Draft | None] = lambda: None
    controller: Callable[[], Controller | None] = lambda: None

    def alone(self) -> list[int]:
        session = Session(TableEngine(TABLE), self.draft(), self.controller())
        return list(session.generate(self.prompt, self.request))

    def join(self, batch: BatchSession[Any]) -> Ticket:
        return batch.add(self.prompt, self.request, self.draft(), self.controller())


def model(noise: float) -> Callable[[], Draft]:
    return lambda: ModelDraft(TableEngine(near_table(TABLE, 2, noise=noise)))


def four(sampling: Sampling) -> list[Asked]:
    """Of different lengths and acceptance; the third ends early, by a stop token."""
    texts = [np.random.default_rng(seed).integers(0, 8, 20).tolist() for seed in range(4)]
    asked = [
        Asked(texts[0][:3], Request(30, sampling, 4), model(0.5)),
        Asked(texts[1], Request(25, replace(sampling, seed=5), 3), NgramDraft),
        Asked(texts[2][:7], Request(30, sampling), model(2.0), lambda: FixedController(3, 8)),
        Asked(texts[3][:12], Request(20, replace(sampling, seed=6)), SuffixDraft),
    ]
    output = asked[2].alone()
    stop = max(output, key=output.index)
    asked[2] = replace(asked[2], request=replace(asked[2].request, stop_tokens=frozenset({stop})))
    return asked


def outputs(tickets: Sequence[Ticket]) -> list[list[int]]:
    return [ticket.tokens[ticket.statistics.prompt_tokens :] for ticket in tickets]


@EVERY_MODE
@pytest.mark.parametrize("rows", [1, 20, 128])
def test_each_of_four_gets_what_it_gets_alone(sampling: Sampling, rows: int) -> None:
    asked = four(sampling)
    engine = TableBatch(TABLE)
    batch = BatchSession(engine, rows=rows)
    tickets = [each.join(batch) for each in asked]
    said: dict[int, list[int]] = {id(ticket): [] for ticket in tickets}
    for event in batch.run():
        said[id(event.ticket)] += event.tokens
    expected = [each.alone() for each in asked]
    assert outputs(tickets) == list(said.values()) == expected
    assert [ticket.finish for ticket in tickets] == [
        Finish.LENGTH,
        Finish.LENGTH,
        Finish.STOP,
        Finish.LENGTH,
    ]
    assert all(ticket.done and ticket.error is None for ticket in tickets)
    assert engine.pool.free == engine.pool.pages
    assert max(map(len, engine.calls)) == 4


@EVERY_MODE
def test_who_joins_and_leaves_changes_no_other(sampling: Sampling) -> None:
    asked = four(sampling)
    batch = BatchSession(TableBatch(TABLE))
    tickets: list[Ticket] = []
    for each in asked:
        tickets.append(each.join(batch))
        batch.step()
    batch.end(tickets[0])
    cut = outputs(tickets)[0]
    list(batch.run())
    expected = [each.alone() for each in asked]
    assert 0 < len(cut) < len(expected[0])
    assert cut == expected[0][: len(cut)]
    assert outputs(tickets)[1:] == expected[1:]


@EVERY_MODE
@pytest.mark.parametrize("pages", [16, 18, 20])
def test_without_pages_the_newest_is_put_off_and_none_the_wiser(
    sampling: Sampling, pages: int
) -> None:
    asked = four(sampling)
    engine = TableBatch(TABLE, pages=pages)
    batch = BatchSession(engine)
    tickets = [each.join(batch) for each in asked]
    list(batch.run())
    assert outputs(tickets) == [each.alone() for each in asked]
    assert 4 < engine.opened <= 4 + 3 + 2 + 1  # who was put off waits until another ends
    assert engine.pool.free == pages


def test_who_came_first_is_done_first() -> None:
    """The newest is put off, and is the first to join again; the pages hold one of full length."""
    engine = TableBatch(TABLE, pages=8)
    batch = BatchSession(engine, most=2)
    tickets = [batch.add([1, 2, count], Request(28, draft_length=0)) for count in range(3)]
    done = [event.ticket for event in batch.run() if event.ticket.done]
    assert done == tickets
    assert engine.opened > 3


def test_a_waiting_request_joins_when_another_ends() -> None:
    batch = BatchSession(TableBatch(TABLE), most=2)
    tickets = [batch.add([1, 2], Request(count)) for count in (3, 9, 4)]
    first = [[event.ticket for event in batch.step()] for _ in range(4)]
    assert first == [tickets[:2], tickets[:2], tickets[:2], tickets[1:]]
    list(batch.run())
    assert outputs(tickets) == [greedy_ids(TABLE, [1, 2], count) for count in (3, 9, 4)]


def test_prompts_are_read_in_the_room_that_rounds_leave() -> None:
    engine = TableBatch(TABLE)
    batch = BatchSession(engine, rows=24)
    early = batch.add([3], Request(5, draft_length=0))
    batch.step()
    late = batch.add(list(range(8)) * 7, Request(2))
    list(batch.run())
    assert engine.calls == [[1], [1, 23], [1, 23], [1, 10], [1, 1]]
    assert (early.statistics.new_tokens, late.statistics.new_tokens) == (5, 2)


def test_somebody_is_always_read() -> None:
    """However many rows the rounds of the others have."""
    engine = TableBatch(TABLE)
    batch = BatchSession(engine, rows=1)
    for count in (17, 5, 18):
        batch.add([0, *range(count - 1)] if count < 8 else [1] * count, Request(3, draft_length=0))
    list(batch.run())
    assert engine.calls == [[16], [1, 5, 16], [1, 1, 2], [1, 1, 1], [1]]


def test_a_known_beginning_is_not_computed_again() -> None:
    engine = TableBatch(TABLE)
    prompt = [1, 2, 3, 4, 5, 6, 7, 0, 1, 2]
    for reused in (0, 8):
        engine.calls.clear()
        batch = BatchSession(engine)
        ticket = batch.add(prompt, Request(6))
        list(batch.run())
        assert outputs([ticket]) == [greedy_ids(TABLE, prompt, 6)]
        assert ticket.statistics.reused_tokens == reused
        assert engine.calls[0] == [10 - reused]


@pytest.mark.parametrize("length", [0, 65])
def test_a_prompt_that_does_not_fit_disturbs_nobody(length: int) -> None:
    batch = BatchSession(TableBatch(TABLE))
    ticket = batch.add([6], Request(9))
    batch.step()
    with pytest.raises(RequestError, match=f"prompt has {length} tokens; it must have 1 to 64"):
        batch.add([0] * length, Request())
    list(batch.run())
    assert outputs([ticket]) == [greedy_ids(TABLE, [6], 9)]


def test_a_request_for_nothing_is_done_at_once() -> None:
    batch = BatchSession(TableBatch(TABLE))
    assert batch.add([6], Request(0)).done
    assert not batch.busy


class Forbidding:
    """Forbids all tokens once the text has so many."""

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        if len(tokens) > 6:
            logits.fill(-np.inf)


class FailingDraft:
    name = "failing"
    work = Work()

    def start(self, prompt: Sequence[int]) -> None: ...

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        raise EngineError("the draft is gone")


def refuse_seven_after_one(tokens: Sequence[int]) -> EngineError | None:
    """Only the failing request's prompt has these."""
    return EngineError("these rows fail") if list(tokens[:3]) == [7, 1, 7] else None


@pytest.mark.parametrize(
    ("failing", "message", "brought"),
    [
        (Asked([1, 2], Request(9, processors=[Forbidding()])), "every token is forbidden", 5),
        (Asked([1, 2], Request(9), FailingDraft), "the draft is gone", 1),
        (Asked([7, 1, 7], Request(9)), "these rows fail", 0),
    ],
)
def test_a_request_fails_alone(failing: Asked, message: str, brought: int) -> None:
    engine = TableBatch(TABLE, failure=refuse_seven_after_one)
    batch = BatchSession(engine)
    asked = four(Sampling())
    tickets = [asked[0].join(batch), failing.join(batch), asked[1].join(batch)]
    events = list(batch.run())
    assert outputs(tickets)[::2] == [each.alone() for each in asked[:2]]
    assert {id(event.ticket) for event in events[:3]} == {id(ticket) for ticket in tickets}
    [ticket] = [ticket for ticket in tickets if ticket.error]
    assert ticket is tickets[1]
    assert message in str(ticket.error)
    assert [event.tokens for event in events if event.ticket is ticket][-1] == []
    assert ticket.statistics.new_tokens == brought
    assert engine.pool.free == engine.pool.pages


def test_one_that_finds_no_pages_though_it_is_alone_fails() -> None:
    engine = TableBatch(TABLE, pages=16)
    held = engine.open()
    held.step([0] * 60)
    batch = BatchSession(engine)
    ticket = batch.add([1, 2, 3], Request(9))
    list(batch.run())
    assert isinstance(ticket.error, NoRoomError)
    assert outputs([ticket])[0] == greedy_ids(TABLE, [1, 2, 3], 2)
    held.close()
    again = batch.add([1, 2, 3], Request(9))
    list(batch.run())
    assert outputs([again]) == [greedy_ids(TABLE, [1, 2, 3], 9)]


def test_an_interrupt_leaves_a_batch_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = four(Sampling())
    batch = BatchSession(TableBatch(TABLE))
    tickets = [each.join(batch) for each in asked]
    batch.step()

    def interrupt(block: object) -> Iterator[int]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tickets[1], "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            batch.step()
    list(batch.run())
    expected = [each.alone() for each in asked]
    # The tokens of the interrupted one's block are lost; the others lost nothing.
    assert outputs(tickets)[::2] == expected[::2]
    assert outputs(tickets)[3] == expected[3]


def test_the_seconds_of_steps_are_shared() -> None:
    batch = BatchSession(TableBatch(TABLE))
    tickets = [each.join(batch) for each in four(Sampling())]
    list(batch.run())
    for ticket in tickets:
        statistics = ticket.statistics
        assert statistics.decode_seconds >= statistics.target_seconds > 0.0
        assert statistics.first_token_seconds > 0.0
        assert statistics.decode_tokens <= sum(statistics.accepted) + statistics.rounds


@EVERY_MODE
def test_engines_of_one_sequence_take_turns(sampling: Sampling) -> None:
    asked, made = four(sampling), [TableEngine(TABLE)]

    def another() -> TableEngine:
        made.append(TableEngine(TABLE))
        return made[-1]

    batch = BatchSession(TurnsEngine(made[0], another), most=3)
    tickets = [each.join(batch) for each in asked]
    list(batch.run())
    assert outputs(tickets) == [each.alone() for each in asked]
    assert len(made) == 3
