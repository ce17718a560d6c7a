"""Draft with a small or quantized model, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence

from speccompile.plugins.reference import draw
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.sampling import Purpose, Randomness, Sampling, law
from speccompile.runtime.statistics import MeteredEngine

__all__ = ["ModelDraft"]


class ModelDraft:
    """Keeps an engine's cache in step with the sequence and asks it for the next tokens."""

    def __init__(self, engine: Engine) -> None:
        self._engine = MeteredEngine(engine)
        self._rows: list[int] = []  # the tokens in the engine's cache
        self._agreed = 0  # how many of them are known to be the sequence's

    @property
    def engine_seconds(self) -> float:
        return self._engine.seconds

    def start(self, prompt: Sequence[int]) -> None:
        self._agreed = 0
        self._synchronize(prompt)

    def propose(
        self, tokens: Sequence[int], limit: int, sampling: Sampling, randomness: Randomness
    ) -> Proposal:
        feed = self._catch_up(tokens)
        proposal = Proposal()
        limit = min(limit, self._engine.capacity - len(tokens) + 1)
        while len(proposal.tokens) < limit:
            logits = self._advance(feed)
            if sampling.greedy:
                token = int(logits.argmax())
            else:
                distribution = law(logits, sampling)
                position = len(tokens) + len(proposal.tokens)
                token = draw(distribution, randomness.uniform(position, Purpose.DRAFT))
                proposal.laws.append(distribution)
            proposal.tokens.append(token)
            feed = [token]
        return proposal

    def _advance(self, tokens: list[int]) -> Logits:
        logits = prefill(self._engine, tokens)
        self._rows += tokens
        return logits

    def _catch_up(self, tokens: Sequence[int]) -> list[int]:
        """What the engine has yet to read of `tokens`: their last, and what the target added."""
        self._synchronize(tokens)
        return list(tokens[len(self._rows) :])

    def _synchronize(self, tokens: Sequence[int]) -> None:
        """Drop the rows that are not those of `tokens`, and the last one: it has to be asked."""
        keep = min(_shared(self._rows, tokens, self._agreed), max(len(tokens) - 1, 0))
        self._engine.rollback(keep)
        del self._rows[keep:]
        self._agreed = keep


def _shared(left: Sequence[int], right: Sequence[int], start: int) -> int:
    """The length of the common beginning, known to be at least `start`."""
    end = min(len(left), len(right))
    while start < end and left[start] == right[start]:
        start += 1
    return start
