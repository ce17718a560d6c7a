"""What a request cost and what speculation brought, counted while it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from speccompile.runtime.engine import Engine, Logits

__all__ = ["MeteredEngine", "Statistics"]


@dataclass
class Statistics:
    """Counters of one request, times in seconds.

    Decoding is what follows the first token, the draft's own reading of the prompt included.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    rounds: int = 0
    proposed: list[int] = field(default_factory=list[int])
    accepted: list[int] = field(default_factory=list[int])
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    draft_seconds: float = 0.0
    target_seconds: float = 0.0

    def count_round(self, proposed: int, accepted: int) -> None:
        """Record a round; entry i of a list counts the proposals at position i of a chain."""
        self.rounds += 1
        while len(self.proposed) < proposed:
            self.proposed.append(0)
            self.accepted.append(0)
        # A proposal is tested only if all before it stood.
        for index in range(min(accepted + 1, proposed)):
            self.proposed[index] += 1
            self.accepted[index] += index < accepted

    @property
    def decode_tokens(self) -> int:
        """Tokens that decoding rounds emitted: all but the first, which the prompt yields."""
        return max(self.new_tokens - 1, 0)

    @property
    def tokens_per_second(self) -> float:
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def acceptance(self) -> float:
        """Accepted over tested proposals."""
        tested = sum(self.proposed)
        return sum(self.accepted) / tested if tested else 0.0

    @property
    def accepted_length(self) -> float:
        """Tokens a round: accepted proposals and the target's own."""
        return self.decode_tokens / self.rounds if self.rounds else 0.0

    @property
    def overhead_seconds(self) -> float:
        """Decoding time outside engine calls."""
        return self.decode_seconds - self.draft_seconds - self.target_seconds


class MeteredEngine:
    """An engine that keeps the time spent in its steps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seconds = 0.0
        self.steps = 0

    @property
    def capacity(self) -> int:
        return self._engine.capacity

    @property
    def length(self) -> int:
        return self._engine.length

    def step(self, tokens: Sequence[int], *, last: int | None = None) -> Logits:
        start = time.perf_counter()
        try:
            return self._engine.step(tokens, last=last)
        finally:
            self.seconds += time.perf_counter() - start
            self.steps += 1

    def rollback(self, length: int) -> None:
        self._engine.rollback(length)
