"""Several requests decoded together: which rows of which sequences the target's next step has.

Requests join and leave at any step. Those that decode have their rounds, all in one step, each with
a proposal of its own; prompts are read in pieces, in the room that these leave. A sequence's rounds
are those that it would have alone, so that its tokens are too.

Where memory runs out, the newest sequence is put off: it gives back all that it holds, waits until
another has ended, and has its rows computed again then. So the oldest always gets on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from speccompile.runtime.batch_engine import BatchEngine, BatchSequence, Rows
from speccompile.runtime.control.controller import Controller
from speccompile.runtime.decoding import Decoding
from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.engine import PREFILL_ROWS, Logits
from speccompile.runtime.errors import NoRoomError, SpeccompileError
from speccompile.runtime.generation import Finish, Generation
from speccompile.runtime.metered import Work
from speccompile.runtime.request import Request

__all__ = ["BatchSession", "Event", "Ticket"]

_LEAST_ROWS = 16  # that a sequence may be fed in any step, however many others are
_MOST_SEQUENCES = 8

S = TypeVar("S", bound=BatchSequence)


class Ticket(Generation):
    """A request in a batch: what came of it so far. Once it is `done`, `error` says what failed it,
    if anything did.

    Of a step, the seconds of its statistics are the share of its rows: those of all add up.
    """

    error: SpeccompileError | None = None


class Event(NamedTuple):
    """A request has `tokens` more, or it is done, or both."""

    ticket: Ticket
    tokens: list[int]


class BatchSession(Generic[S]):
    """Many sequences on one target. One that fails does so alone."""

    def __init__(
        self,
        engine: BatchEngine[S],
        *,
        most: int = _MOST_SEQUENCES,
        rows: int = PREFILL_ROWS,
        context: int | None = None,
    ) -> None:
        """At most so many sequences at a time; others wait, and are taken in order. Prompts are
        read as long as a step has fewer than `rows`. `context` limits every sequence to so many
        tokens, by default the engine's capacity."""
        self._engine, self._most, self._most_rows = engine, most, rows
        self._context = context or engine.capacity
        self._waiting: deque[_Request] = deque()
        self._live: list[_Live[S]] = []  # in the order in which they joined
        self._is_full = False  # until a sequence ends
        self._events: list[Event] = []

    @property
    def busy(self) -> bool:
        """Whether any request is not done."""
        return bool(self._live or self._waiting)

    def add(
        self,
        prompt: Sequence[int],
        request: Request,
        draft: Draft | None = None,
        controller: Controller | None = None,
    ) -> Ticket:
        """Have a request decoded, with a draft and a controller of its own (see `Session`).

        A draft that works in the target's cache cannot be used. Raises RequestError for a prompt
        that is empty or longer than the context. A request for no tokens is done at once.
        """
        ticket = Ticket(prompt, request, self._context)
        if not ticket.done:
            decoding = Decoding(
                ticket, [], capacity=self._engine.capacity, draft=draft, controller=controller
            )
            self._waiting.append(_Request(ticket, decoding, time.perf_counter()))
        return ticket

    def end(self, ticket: Ticket, finish: Finish = Finish.STOP) -> None:
        """End a request now: its text is complete, or nobody waits for it any more."""
        ticket.finish, ticket.done = finish, True
        for request in [*(live.request for live in self._live), *self._waiting]:
            if request.ticket is ticket:
                self._drop(request)

    def run(self) -> Iterator[Event]:
        """Step until all requests are done, those added meanwhile too."""
        while self.busy:
            yield from self.step()

    def step(self) -> list[Event]:
        """Compute one step of the target, and return what came of it."""
        for turn, logits, seconds in self._compute(self._turns()):
            self._take(turn, logits, seconds)
        events, self._events = self._events, []
        return events

    def _turns(self) -> list[_Turn[S]]:
        """What every sequence is fed: the live ones first, then those that join.

        One more may join as long as there is room, or, so that none waits for ever, as long as no
        prompt is being read.
        """
        turns: list[_Turn[S]] = []
        for live in [*self._live]:
            self._plan(live, turns)
        while self._left(turns) > 0 or all(turn.is_round for turn in turns):
            joined = self._join()
            if joined is None:
                break
            self._plan(joined, turns)
        return turns

    def _plan(self, live: _Live[S], turns: list[_Turn[S]]) -> None:
        try:
            turns.append(live.turn(max(self._left(turns), _LEAST_ROWS)))
        except SpeccompileError as error:
            self._fail(live.request, error)

    def _left(self, turns: list[_Turn[S]]) -> int:
        return self._most_rows - sum(len(turn.rows.tokens) for turn in turns)

    def _join(self) -> _Live[S] | None:
        """The next of those that wait, where there is room for one more."""
        while self._waiting and not self._is_full and len(self._live) < self._most:
            request = self._waiting.popleft()
            tokens, statistics = request.ticket.tokens, request.ticket.statistics
            try:
                sequence = self._engine.open(tokens)
            except SpeccompileError as error:
                self._fail(request, error)
                continue
            request.decoding.rows += tokens[: sequence.length]
            if not statistics.new_tokens:
                statistics.reused_tokens = sequence.length
            self._live.append(_Live(request, sequence))
            return self._live[-1]
        return None

    def _compute(self, turns: list[_Turn[S]]) -> Iterator[tuple[_Turn[S], Logits, float]]:
        """The logits of each turn, and its share of the seconds."""
        while turns := [turn for turn in turns if turn.live in self._live]:
            start = time.perf_counter()
            try:
                answers = self._engine.step_many([turn.rows for turn in turns])
            except NoRoomError as error:
                self._make_room(error)
            except SpeccompileError as error:
                if len(turns) == 1:
                    self._fail(turns[0].live.request, error)
                for turn in turns:  # each by itself: whose fault it is fails alone
                    yield from self._compute([turn])
                return
            else:
                seconds = time.perf_counter() - start
                rows = [len(turn.rows.tokens) for turn in turns]
                for turn, logits, count in zip(turns, answers, rows, strict=True):
                    yield turn, logits, seconds * count / sum(rows)
                return

    def _make_room(self, error: NoRoomError) -> None:
        """Put off the newest sequence; fail it where it is the only one."""
        newest = self._live[-1].request
        if len(self._live) == 1:
            self._fail(newest, error)
            return
        self._drop(newest)
        self._waiting.appendleft(newest)
        self._is_full = True

    def _take(self, turn: _Turn[S], logits: Logits, seconds: float) -> None:
        request = turn.live.request
        ticket, decoding = request.ticket, request.decoding
        if not turn.is_round:
            decoding.rows += turn.rows.tokens
            return
        try:
            block = decoding.take(logits, Work(seconds, seconds, 1, turn.rows.sequence.length))
        except SpeccompileError as error:
            self._fail(request, error)
            return
        if not ticket.statistics.first_token_seconds:
            ticket.statistics.first_token_seconds = time.perf_counter() - request.added
        self._events.append(Event(ticket, list(ticket.add(block))))
        if ticket.done:
            self._drop(request)

    def _fail(self, request: _Request, error: SpeccompileError) -> None:
        request.ticket.error, request.ticket.done = error, True
        self._events.append(Event(request.ticket, []))
        self._drop(request)

    def _drop(self, request: _Request) -> None:
        """Let go of a request and of its sequence, if it has one."""
        for live in self._live:
            if live.request is request:
                self._live.remove(live)
                live.sequence.close()
                request.decoding.rows.clear()
                self._is_full = False
                return
        if request in self._waiting:
            self._waiting.remove(request)


@dataclass(frozen=True, eq=False)
class _Request:
    """What stays of a request when its sequence is put off."""

    ticket: Ticket
    decoding: Decoding
    added: float


@dataclass(frozen=True, eq=False)
class _Live(Generic[S]):
    """A request that has a sequence."""

    request: _Request
    sequence: S

    def turn(self, most: int) -> _Turn[S]:
        """A round, or `most` of the rows that it lacks where these are more."""
        decoding = self.request.decoding
        # Behind the rows are those that were not accepted, or that an interrupt left.
        self.sequence.rollback(len(decoding.rows))
        lacking = self.request.ticket.tokens[len(decoding.rows) :]
        if len(lacking) > most:
            return _Turn(self, Rows(self.sequence, lacking[:most], last=1), is_round=False)
        return _Turn(self, Rows(self.sequence, *decoding.propose()), is_round=True)


@dataclass(frozen=True, eq=False)
class _Turn(Generic[S]):
    """The part of one sequence in a step."""

    live: _Live[S]
    rows: Rows[S]
    is_round: bool
