"""What a request has brought so far, and when it is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from speccompile.runtime.errors import RequestError
from speccompile.runtime.logprobs import TokenLogprobs
from speccompile.runtime.request import Request
from speccompile.runtime.statistics import Statistics

__all__ = ["Block", "Finish", "Generation"]


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"  # the model, or a stop string, ended it
    LENGTH = "length"  # the token limit or the context is used up


class Block(NamedTuple):
    """What a round adds to a sequence, and, where it was asked for, how likely each token was."""

    tokens: list[int]
    logprobs: Sequence[TokenLogprobs] = ()


class Generation:
    """The sequence of a request: `tokens` are its prompt and, up to the length `end`, its output.

    `finish` says why it ended, once it is `done`.
    """

    def __init__(self, prompt: Sequence[int], request: Request, context: int) -> None:
        """Raises RequestError for a prompt that is empty or longer than the `context`."""
        if not 0 < len(prompt) <= context:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens; it must have 1 to {context}, "
                "the length of the context"
            )
        self.request = request
        self.tokens = list(prompt)
        self.end = min(len(prompt) + request.max_new_tokens, context)
        self.statistics = Statistics(prompt_tokens=len(prompt))
        self.logprobs: list[TokenLogprobs] = []
        self.finish = Finish.LENGTH
        self.done = len(prompt) == self.end

    def add(self, block: Block) -> Iterator[int]:
        """Append the tokens of a block, as far as they are wanted, and yield each of them.

        A stop token ends the sequence and is no part of it.
        """
        for index, token in enumerate(block.tokens):
            if token in self.request.stop_tokens:
                self.finish = Finish.STOP
                self.done = True
                return
            self.tokens.append(token)
            self.logprobs += block.logprobs[index : index + 1]
            self.statistics.new_tokens += 1
            self.done = len(self.tokens) == self.end
            yield token
            if self.done:
                return
