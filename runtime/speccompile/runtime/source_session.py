"""The session of an encoder-decoder: its prompt is a source, read once, not what it continues."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from speccompile.runtime.control.controller import Controller
from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.engine import Encoder, Engine
from speccompile.runtime.errors import RequestError
from speccompile.runtime.generation import Block, Generation
from speccompile.runtime.request import Request
from speccompile.runtime.session import Session

__all__ = ["SourceSession"]


class SourceSession(Session):
    """A `Session` whose sequences begin with a start token, each behind a source of its own.

    A request has each of the encoders read its source once, whatever is then drafted and verified.
    No row outlives its source: a sequence shares nothing with the last one but the start token,
    and what is to be continued is never taken from a cache whole.
    """

    def __init__(
        self,
        target: Engine,
        encoders: Mapping[str, Encoder],
        start: int,
        draft: Draft | None = None,
        controller: Controller | None = None,
        *,
        context: int | None = None,
    ) -> None:
        """`encoders`, by the name of their model, are those that target and draft attend to."""
        super().__init__(target, draft, controller, context=context)
        self._encoders, self._start = encoders, start
        self._source: Sequence[int] = ()

    def _begin(self, prompt: Sequence[int], request: Request) -> Generation:
        if not 0 < len(prompt) <= self._context:
            raise RequestError(
                f"the source has {len(prompt)} tokens; it must have 1 to {self._context}, "
                "the length of the context"
            )
        self._source = prompt
        generation = Generation([self._start], request, self._context)
        generation.statistics.prompt_tokens = len(prompt)
        return generation

    def _blocks(self, generation: Generation) -> Iterator[Block]:
        start, statistics = time.perf_counter(), generation.statistics
        for name, encoder in self._encoders.items():
            before = encoder.calls
            encoder.read(self._source)
            statistics.encoder_calls[name] += encoder.calls - before
        seconds = time.perf_counter() - start
        blocks = super()._blocks(generation)
        first = next(blocks)
        statistics.first_token_seconds += seconds
        yield first
        yield from blocks
