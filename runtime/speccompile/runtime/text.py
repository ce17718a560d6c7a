"""From tokens to text while they arrive: whole characters only, and nothing past a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

__all__ = ["TextStream"]

_CONTEXT = 8  # tokens: enough for a word and its characters


class TextStream:
    """Turns the tokens that follow the prompt `after` into text that may be shown at once.

    Prompt and text together are what all the tokens decode to: a tokenizer that writes the space
    between words into the second word drops that of the first. Text that could still become part
    of a stop string is held back until it is known not to.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), after: Sequence[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._decoder = DecodeStream(list(after[-_CONTEXT:]), skip_special_tokens=True)
        self._stop = tuple(text for text in stop if text)
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that `token` releases; sets `stopped` where a stop string is complete."""
        self._held += self._decoder.step(self._tokenizer, token) or ""
        found = [at for text in self._stop if (at := self._held.find(text)) >= 0]
        if found:
            self.stopped = True
            self._held = self._held[: min(found)]
            return self.finish()
        return self._release(len(self._held) - self._possible_stop())

    def finish(self) -> str:
        """The text still held back when the tokens end."""
        return self._release(len(self._held))

    def _release(self, length: int) -> str:
        released, self._held = self._held[:length], self._held[length:]
        return released

    def _possible_stop(self) -> int:
        """How many last characters begin a stop string."""
        longest = 0
        for text in self._stop:
            for length in range(min(len(text) - 1, len(self._held)), longest, -1):
                if self._held.endswith(text[:length]):
                    longest = length
                    break
        return longest
