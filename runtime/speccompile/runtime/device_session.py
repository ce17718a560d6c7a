"""Generation on a device, the host one round behind: it reads a round while the next one runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from speccompile.runtime.errors import RequestError
from speccompile.runtime.round_state import AHEAD, Round
from speccompile.runtime.rounds import Kind, Rounds
from speccompile.runtime.session import AnySession, Request

__all__ = ["DeviceSession"]


class DeviceSession(AnySession):
    """One sequence on the rounds of a device; requests of several sessions come one at a time.

    A round is one graph: what of its time is the draft's is not told apart, and `draft_seconds` and
    `target_seconds` stay 0. After a device failed, the next request begins with nothing.
    """

    def __init__(
        self, rounds: Rounds, *, context: int | None = None, drafting: bool = True
    ) -> None:
        """`context` limits a sequence to so many tokens, by default the target's capacity; where
        there is no `drafting`, every request is decoded plainly."""
        super().__init__(context or rounds.state.target.capacity)
        self._rounds, self._state, self._cached = rounds, rounds.state, rounds.cached
        self._drafting = drafting and rounds.state.draft is not None

    def _blocks(self, tokens: list[int], end: int, request: Request) -> Iterator[list[int]]:
        statistics = self.statistics
        try:
            start = time.perf_counter()
            kind, number = self._start(tokens, end, request)
            following = self._cached.read(tokens)
            statistics.first_token_seconds = time.perf_counter() - start
            yield [following]
            start = time.perf_counter()
            self._follow(kind)
            flying: deque[tuple[Kind, Round]] = deque()
            while True:
                self._state.check_current(number)
                while len(flying) < AHEAD and (ahead := self._next(kind, tokens, end, flying)):
                    flying.append((ahead, self._rounds.launch(ahead)))
                done, launched = flying.popleft()
                [emitted] = self._rounds.result(launched)
                # The root is a row now, and so are the proposals that stood.
                self._cached.commit([tokens[-1], *emitted[:-1]], done.proposals)
                statistics.count_round(done.proposals, len(emitted) - 1)
                statistics.decode_seconds += time.perf_counter() - start
                yield emitted
                start = time.perf_counter()
        except (GeneratorExit, RequestError):
            raise  # what was launched ahead is of no use, but does no harm
        except BaseException:
            self._rounds.failed = True
            raise

    def _next(
        self, kind: Kind, tokens: list[int], end: int, flying: deque[tuple[Kind, Round]]
    ) -> Kind | None:
        """The round to launch, if any: one that finds room whatever those under way bring."""
        if len(tokens) + len(flying) >= end:
            return None  # every round brings a token: those under way are enough
        root = len(tokens) - 1
        latest = root + sum(ahead.rows for ahead, _ in flying)
        if self._fits(kind, latest):
            return kind
        if self._fits(kind, root):
            return None  # those under way decide
        plain = replace(kind, proposals=0)
        return plain if self._fits(plain, latest) else None

    def _fits(self, kind: Kind, root: int) -> bool:
        """Whether the caches have room for a round whose root goes to this slot."""
        draft = self._state.draft
        if draft and kind.proposals and root + kind.proposals > draft.capacity:
            return False
        return root + kind.rows <= self._state.target.capacity

    def _start(self, tokens: list[int], end: int, request: Request) -> tuple[Kind, int]:
        """Set the device up for a request; returns its rounds and its number."""
        if self._rounds.failed:
            self._rounds.reset()
        self._cached.warm_up()
        shared = self.statistics.reused_tokens = self._cached.keep(tokens)
        number = self._state.begin(request.sampling, shared)
        most = self._state.target.rows - 1
        proposals = min(request.draft_length, most) if self._drafting else 0
        kind = Kind(1, proposals, not request.sampling.greedy)
        plain = replace(kind, proposals=0)
        if self._fits(kind, shared):
            self._rounds.prepare(kind)
        if not self._fits(kind, end - 2):  # the root of the last round, at most
            self._rounds.prepare(plain)
        return kind, number

    def _follow(self, kind: Kind) -> None:
        """Have all that the rounds need besides the prompt."""
        if kind.proposals and self._fits(kind, len(self._cached.tokens)):
            self._cached.read_draft()
        for each in dict.fromkeys([kind, replace(kind, proposals=0)]):
            self._rounds.arrange(each)
