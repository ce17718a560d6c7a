"""What a session is, and the loop of those on a host: draft, verify, commit, roll back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from speccompile.runtime.drafting.proposal import Draft, Proposal
from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.errors import RequestError
from speccompile.runtime.sampling import Randomness, Sampling
from speccompile.runtime.statistics import MeteredEngine, Statistics
from speccompile.runtime.verify import verify

__all__ = ["AnySession", "Finish", "Request", "Session"]


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"  # the model, or a stop string, ended it
    LENGTH = "length"  # the token limit or the context is used up


@dataclass(frozen=True)
class Request:
    """What to generate. `draft_length` limits the tokens a round proposes; 0 decodes plainly."""

    max_new_tokens: int = 128
    sampling: Sampling = field(default_factory=Sampling)
    draft_length: int = 5
    stop_tokens: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 0:
            raise RequestError(f"max_new_tokens is {self.max_new_tokens}; it cannot be negative")
        if self.draft_length < 0:
            raise RequestError(f"draft_length is {self.draft_length}; it cannot be negative")


class AnySession(ABC):
    """One sequence, continued request by request; what all sessions share, wherever they compute.

    The cache outlives a request: a prompt that begins as the last sequence did is not computed
    again. `statistics` and `finish` are those of the latest request.
    """

    def __init__(self, context: int) -> None:
        """`context` is the longest sequence, in tokens."""
        self._context = context
        self.statistics = Statistics()
        self.finish = Finish.LENGTH

    def generate(self, prompt: Sequence[int], request: Request) -> Iterator[int]:
        """Yield the tokens after `prompt`, as the target alone would choose them.

        A stop token ends the sequence and is not yielded. Raises RequestError for a prompt that is
        empty or longer than the context, EngineError where an engine or a device fails.
        """
        if not 0 < len(prompt) <= self._context:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens; it must have 1 to {self._context}, "
                "the length of the context"
            )
        statistics = self.statistics = Statistics(prompt_tokens=len(prompt))
        self.finish = Finish.LENGTH
        tokens = list(prompt)
        end = min(len(prompt) + request.max_new_tokens, self._context)
        if len(tokens) == end:
            return
        for emitted in self._blocks(tokens, end, request):
            for token in emitted:
                if token in request.stop_tokens:
                    self.finish = Finish.STOP
                    return
                tokens.append(token)
                statistics.new_tokens += 1
                yield token
                if len(tokens) == end:
                    return

    @abstractmethod
    def _blocks(self, tokens: list[int], end: int, request: Request) -> Iterator[list[int]]:
        """Yield what each round adds to `tokens`, up to `end` or beyond; the first is the prompt's.

        `generate` appends it before it asks for the next, and takes no more than it needs.
        """


class Session(AnySession):
    """One sequence on one target, with at most one draft."""

    def __init__(
        self, target: Engine, draft: Draft | None = None, *, context: int | None = None
    ) -> None:
        """`context` limits a sequence to so many tokens, by default the target's capacity."""
        super().__init__(context or target.capacity)
        self._target = MeteredEngine(target)
        self._draft = draft
        self._rows: list[int] = []  # the tokens in the target's cache

    def _blocks(self, tokens: list[int], end: int, request: Request) -> Iterator[list[int]]:
        randomness, statistics = Randomness(request.sampling.seed), self.statistics
        start = time.perf_counter()
        logits = self._prefill(tokens)
        first = verify(logits, Proposal(), len(tokens), request.sampling, randomness)
        statistics.first_token_seconds = time.perf_counter() - start
        yield [first.token]
        while True:
            if self.statistics is not statistics:
                raise RequestError("another request began on this session; use a session for each")
            start = time.perf_counter()
            before = self._engine_seconds()
            proposal = self._propose(tokens, end, request, randomness)
            # The last committed token is the root: its row is not in the cache yet.
            root = len(tokens) - 1
            logits = self._target.step([tokens[root], *proposal.tokens])
            verdict = verify(logits, proposal, len(tokens), request.sampling, randomness)
            # Roll back: the rows of rejected proposals are simply written again.
            committed = proposal.tokens[: verdict.accepted]
            self._target.rollback(root + 1 + verdict.accepted)
            self._rows[root:] = [tokens[root], *committed]
            statistics.count_round(len(proposal.tokens), verdict.accepted)
            draft_seconds, target_seconds = self._engine_seconds()
            statistics.draft_seconds += draft_seconds - before[0]
            statistics.target_seconds += target_seconds - before[1]
            statistics.decode_seconds += time.perf_counter() - start
            yield [*committed, verdict.token]

    def _prefill(self, tokens: list[int]) -> Logits:
        """Bring the cache to `tokens`, keeping what it shares; returns the last row, [1, V]."""
        shared = 0
        for cached, token in zip(self._rows, tokens[:-1], strict=False):
            if cached != token:
                break
            shared += 1
        self._target.rollback(shared)
        del self._rows[shared:]
        logits = prefill(self._target, tokens[shared:])
        self._rows += tokens[shared:]
        self.statistics.reused_tokens = shared
        if self._draft:
            self._draft.start(tokens)
        return logits[None]

    def _propose(
        self, tokens: list[int], end: int, request: Request, randomness: Randomness
    ) -> Proposal:
        # The target adds a token of its own, so a proposal need not reach the end.
        limit = min(request.draft_length, end - len(tokens) - 1)
        if self._draft is None or limit <= 0:
            return Proposal()
        return self._draft.propose(tokens, limit, request.sampling, randomness)

    def _engine_seconds(self) -> tuple[float, float]:
        return self._draft.engine_seconds if self._draft else 0.0, self._target.seconds
