"""What a session is, and the loop of those on a host: draft, verify, commit, roll back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from speccompile.runtime.control.controller import Controller
from speccompile.runtime.decoding import Decoding
from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.engine import Engine, prefill
from speccompile.runtime.errors import RequestError
from speccompile.runtime.generation import Block, Finish, Generation
from speccompile.runtime.logprobs import TokenLogprobs
from speccompile.runtime.metered import MeteredEngine
from speccompile.runtime.request import Request
from speccompile.runtime.statistics import Statistics

__all__ = ["AnySession", "Block", "Finish", "Request", "Session"]


class AnySession(ABC):
    """One sequence, continued request by request; what all sessions share, wherever they compute.

    The cache outlives a request: a prompt that begins as the last sequence did is not computed
    again. `statistics`, `logprobs` and `finish` are those of the latest request.
    """

    def __init__(self, context: int) -> None:
        """`context` is the longest sequence, in tokens."""
        self._context = context
        self.statistics = Statistics()
        self.logprobs: list[TokenLogprobs] = []
        self.finish = Finish.LENGTH

    def generate(self, prompt: Sequence[int], request: Request) -> Iterator[int]:
        """Yield the tokens after `prompt`, as the target alone would choose them.

        A stop token ends the sequence and is not yielded. Raises RequestError for a prompt that is
        empty or longer than the context, EngineError where an engine or a device fails.
        """
        generation = self._begin(prompt, request)
        self.statistics, self.logprobs = generation.statistics, generation.logprobs
        self.finish = generation.finish
        if generation.done:
            return
        for block in self._blocks(generation):
            yield from generation.add(block)
            if generation.done:
                self.finish = generation.finish
                return

    def _begin(self, prompt: Sequence[int], request: Request) -> Generation:
        """The sequence of a request, of which nothing is computed yet."""
        return Generation(prompt, request, self._context)

    @abstractmethod
    def _blocks(self, generation: Generation) -> Iterator[Block]:
        """Yield what each round adds to the tokens, up to the end or beyond; first, the prompt's.

        `generate` adds it before it asks for the next, and takes no more than it needs.
        """


class Session(AnySession):
    """One sequence on one target, with at most one draft."""

    def __init__(
        self,
        target: Engine,
        draft: Draft | None = None,
        controller: Controller | None = None,
        *,
        context: int | None = None,
    ) -> None:
        """`context` limits a sequence to so many tokens, by default the target's capacity.

        Without a `controller` every round drafts as far as the request allows; between requests,
        it may be changed.
        """
        super().__init__(context or target.capacity)
        self._target = MeteredEngine(target)
        self.controller = controller
        self._draft = draft
        self._rows: list[int] = []  # the tokens in the target's cache

    def _blocks(self, generation: Generation) -> Iterator[Block]:
        start = time.perf_counter()
        tokens, statistics = generation.tokens, generation.statistics
        statistics.reused_tokens = self._keep(tokens)
        decoding = Decoding(
            generation,
            self._rows,
            capacity=self._target.capacity,
            draft=self._draft,
            controller=self.controller,
        )
        row = prefill(self._target, tokens[len(self._rows) :])
        block = decoding.take(row[None])
        statistics.first_token_seconds = time.perf_counter() - start
        yield block
        while True:
            if self.statistics is not statistics:
                raise RequestError("another request began on this session; use a session for each")
            feed = decoding.propose()
            before = self._target.work
            rows = self._target.step(feed.tokens, parents=feed.parents, last=feed.last)
            block = decoding.take(rows, self._target.work - before)
            self._target.rollback(len(self._rows))
            yield block

    def _keep(self, tokens: Sequence[int]) -> int:
        """Roll the cache back to what it shares with all of `tokens` but the last: so many rows."""
        shared = 0
        for cached, token in zip(self._rows, tokens[:-1], strict=False):
            if cached != token:
                break
            shared += 1
        self._target.rollback(shared)
        del self._rows[shared:]
        return shared
