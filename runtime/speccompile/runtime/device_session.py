"""Generation on a device, the host one round behind: it reads a round while the next one runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from speccompile.runtime.errors import RequestError
from speccompile.runtime.generation import Block, Generation
from speccompile.runtime.request import Request
from speccompile.runtime.round_state import AHEAD, Round
from speccompile.runtime.rounds import Kind, Rounds
from speccompile.runtime.session import AnySession

__all__ = ["DRAFT_LENGTH", "DeviceSession"]

DRAFT_LENGTH = 5
"""Proposals of a round where neither the request nor who makes the session says how many."""


class DeviceSession(AnySession):
    """One sequence on the rounds of a device; requests of several sessions come one at a time.

    A round is one graph: what of its time is the draft's is not told apart, and `draft_seconds` and
    `target_seconds` stay 0. After a device failed, the next request begins with nothing.
    """

    def __init__(
        self,
        rounds: Rounds,
        *,
        context: int | None = None,
        drafting: bool = True,
        draft_length: int = DRAFT_LENGTH,
    ) -> None:
        """`context` limits a sequence to so many tokens, by default the target's capacity.

        Rounds propose as many tokens as the request says, `draft_length` where it says nothing, and
        at most what the target's plan takes; where there is no `drafting`, none.
        """
        super().__init__(context or rounds.state.target.capacity)
        self._rounds, self._state, self._cached = rounds, rounds.state, rounds.cached
        self._most = rounds.state.target.rows - 1 if drafting and rounds.state.draft else 0
        self._draft_length = draft_length

    def _blocks(self, generation: Generation) -> Iterator[Block]:
        tokens, end, statistics = generation.tokens, generation.end, generation.statistics
        try:
            start = time.perf_counter()
            kind, number = self._start(tokens, end, generation.request)
            following = self._cached.read(tokens)
            statistics.first_token_seconds = time.perf_counter() - start
            yield Block([following])
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
                statistics.nodes += done.proposals
                statistics.decode_seconds += time.perf_counter() - start
                yield Block(emitted)
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
        _check_honoured(request)
        if self._rounds.failed:
            self._rounds.reset()
        self._cached.warm_up()
        shared = self.statistics.reused_tokens = self._cached.keep(tokens)
        number = self._state.begin(request.sampling, shared)
        wanted = self._draft_length if request.draft_length is None else request.draft_length
        kind = Kind(1, min(wanted, self._most), not request.sampling.greedy)
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


def _check_honoured(request: Request) -> None:
    """Raises RequestError for what is decided on the device and cannot be changed there."""
    asked = {
        "logit processors": bool(request.processors),
        "logprobs": request.logprobs is not None,
        "audited sampling": request.sampling.audited,
        f"the rule {request.rule!r}": request.rule != "traversal",
    }
    for what, wanted in asked.items():
        if wanted:
            raise RequestError(f"rounds on a GPU have no {what}; use --on cpu")
