"""From tokens to text while they arrive: whole characters only, and nothing past a stop string."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tokenizers import Tokenizer

__all__ = ["TextStream"]

_CONTEXT = 8  # tokens of the prompt: enough for a word and its characters
_LONGEST_PART = 3  # tokens: a character has 4 bytes at most, and a token one at least
_PART = "\ufffd"  # what tokenizers decode a part of a character to


class TextStream:
    """Turns the tokens that follow the prompt `after` into text that may be shown at once.

    Prompt and text together are what all the tokens decode to: a tokenizer that writes the space
    between words into the second word drops that of the first. Text that could still become part
    of a stop string is held back until it is known not to. The stop string that is complete first
    cuts the text; of several that end together, the longest. Where the tokens end in the middle of
    a character, it is left out.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        after: Sequence[int] = (),
        *,
        least: int = 0,
    ) -> None:
        """Stop strings count only behind the text of the first `least` tokens."""
        self._characters = _Characters(tokenizer, after)
        self._stop = tuple(text for text in stop if text)
        self._least = least
        self._held = ""
        self._released = 0
        self.stopped = False

    @property
    def kept(self) -> int:
        """How many tokens have all their text released: ids and logprobs end there if it does.

        After a stop string, these are the tokens before it, without one that the cut goes through.
        After `finish`, where there was none, these are all.
        """
        return self._characters.tokens_within(self._released)

    def push(self, token: int) -> str:
        """The text that `token` releases; sets `stopped` where a stop string is complete."""
        self._held += self._characters.push(token)
        if self._least:
            self._least -= 1
            return self._release(len(self._held))
        found = [(at + len(text), at) for text in self._stop if (at := self._held.find(text)) >= 0]
        if found:
            self.stopped = True
            self._held = self._held[: min(found)[1]]
            return self.finish()
        return self._release(len(self._held) - self._possible_stop())

    def finish(self) -> str:
        """The text still held back when the tokens end."""
        self._characters.finish()
        return self._release(len(self._held))

    def _release(self, length: int) -> str:
        released, self._held = self._held[:length], self._held[length:]
        self._released += length
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


class _Characters:
    """Turns tokens into characters as soon as these are whole, and knows where each token ends.

    The text of tokens depends on those before them. So tokens whose text is not yet settled are
    decoded behind a context: the last ones whose text is. Whatever the tokens are, nothing raises.
    """

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._context = list(after[-_CONTEXT:])
        while self._decode(self._context).startswith(_PART):
            del self._context[0]  # it began within a character
        self._before = self._decode(self._context)
        self._pending: list[int] = []
        self._settled = 0  # characters that the pending tokens follow
        self._returned = 0  # characters, some of the pending tokens' perhaps
        self._ends: list[int] = []  # of each token, in characters

    def push(self, token: int) -> str:
        """The characters that `token` completes."""
        self._pending.append(token)
        text = self._text(len(self._pending))
        self._ends.append(self._settled + len(text))
        ready = len(text.rstrip(_PART))
        first = self._settled
        if 0 < ready == len(text):
            self._settle(len(self._pending), ready)
        elif len(self._pending) > _LONGEST_PART:
            # The oldest has no part of a character that can still become whole.
            oldest = len(self._text(1))
            self._settle(1, oldest)
            ready = max(ready, oldest)
        new = text[self._returned - first : ready]
        self._returned += len(new)
        return new

    def finish(self) -> None:
        """What is no whole character now is none: its tokens end where the text does."""
        self._bound_ends(self._returned)

    def tokens_within(self, length: int) -> int:
        """How many tokens end within the first `length` characters."""
        return bisect_right(self._ends, length)

    def _settle(self, count: int, length: int) -> None:
        """The first `count` pending tokens have `length` characters, whatever follows."""
        self._settled += length
        if count == len(self._pending):
            self._bound_ends(self._settled)
        if length:
            self._context = self._pending[:count]
            # The others may have made a whole character of what the context alone ends with.
            self._before = self._decode(self._pending)[: len(self._decode(self._context))]
        del self._pending[:count]

    def _bound_ends(self, most: int) -> None:
        """Several parts have become one character: no pending token ends beyond it."""
        for index in range(len(self._ends) - len(self._pending), len(self._ends)):
            self._ends[index] = min(self._ends[index], most)

    def _text(self, count: int) -> str:
        """The text of the first `count` pending tokens, parts of characters included."""
        tokens = self._pending[:count]
        text = self._decode([*self._context, *tokens])
        if text.startswith(self._before):
            return text[len(self._before) :]
        # A part of a character changes what its neighbours decode to, where bytes are a fallback.
        return self._decode(tokens)

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=True)
