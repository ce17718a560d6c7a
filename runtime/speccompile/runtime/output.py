"""One output of a session, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speccompile.runtime.generation import Finish
from speccompile.runtime.logprobs import TokenLogprobs
from speccompile.runtime.request import Request
from speccompile.runtime.session import AnySession
from speccompile.runtime.statistics import Statistics
from speccompile.runtime.text import TextStream

__all__ = ["Output"]


class Output:
    """Iterate over it once, for text that is final as soon as it is there.

    `text`, `tokens` and `logprobs` are what was yielded so far: all end at one place, also where
    a stop text cuts them. `statistics` count what the session did for it.
    """

    def __init__(
        self, session: AnySession, prompt: Sequence[int], request: Request, text: TextStream
    ) -> None:
        """The session does nothing before the first piece is asked for."""
        self.request = request
        self.finish = Finish.LENGTH
        self.statistics = Statistics()
        self._session, self._prompt, self._stream = session, prompt, text
        self._pieces: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] = []

    def __iter__(self) -> Iterator[str]:
        session, stream = self._session, self._stream
        try:
            for token in session.generate(self._prompt, self.request):
                self._tokens.append(token)
                self._logprobs = session.logprobs
                yield from self._release(stream.push(token))
                if stream.stopped:
                    session.finish = Finish.STOP
                    return
            yield from self._release(stream.finish())
        finally:
            self.statistics, self.finish = session.statistics, session.finish

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def tokens(self) -> list[int]:
        return self._tokens[: self._stream.kept]

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """One for every token, where the request asked for them."""
        return self._logprobs[: self._stream.kept]

    def _release(self, piece: str) -> Iterator[str]:
        if piece:
            self._pieces.append(piece)
            yield piece
