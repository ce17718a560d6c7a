"""From a row of logits to a token, as a request wants it: the target's choice, a draft's guess."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.laws import Law, argmax, draw, largest_but, law, without
from speccompile.plugins.schema import MOST_NODES
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import EngineError, RequestError
from speccompile.runtime.processors.processor import Processor
from speccompile.runtime.sampling import Randomness, Sampling

__all__ = ["Choice", "Guess", "Sampler"]

_AUDITED_CHANCES = (0.7, 0.12, 0.06, 0.03)  # by rank; not measured
_SIBLINGS = 1 << 10  # more than a node has children
_KEPT_NOISE = 64  # positions: more than a round looks at


class Choice(NamedTuple):
    """A token, and how clearly it was chosen: in logits, the distance of the next best."""

    token: int
    margin: float


class Guess(NamedTuple):
    """A token that a draft proposes, and the law [V] it was drawn from, if it was drawn."""

    token: int
    law: Law | None


class Sampler:
    """Chooses the tokens of one request."""

    def __init__(
        self,
        sampling: Sampling,
        processors: Sequence[Processor] = (),
        randomness: Randomness | None = None,
        *,
        drafter: int = 0,
    ) -> None:
        """Drafts that draw at the same time do so as different a `drafter`."""
        self.sampling = sampling
        self.randomness = randomness or Randomness(sampling.seed, sampling.sample)
        self._processors = tuple(processors)
        self._drafter = drafter
        self._noise: dict[int, NDArray[np.float64]] = {}

    def chances(self, row: Logits, guesses: Sequence[Guess]) -> list[float]:
        """What a draft's row makes of its guesses: the probability of each, at a temperature of 1.

        Guesses made with the target's own noise stand far more often than that: by their rank.
        """
        if self.sampling.audited and not self.sampling.greedy:
            return [_AUDITED_CHANCES[min(rank, 3)] for rank in range(len(guesses))]
        weights = np.exp(row - row.max())
        total = float(weights.sum())
        return [float(weights[guess.token]) / total for guess in guesses]

    def of_drafter(self, number: int) -> Sampler:
        """The same, but drawing as another drafter does."""
        return Sampler(self.sampling, self._processors, self.randomness, drafter=number)

    @property
    def derived(self) -> bool:
        """Whether a draft's guesses follow from what is known, so that nothing is drawn."""
        return self.sampling.greedy or self.sampling.audited

    def processed(self, row: Logits, tokens: Sequence[int], path: Sequence[int] = ()) -> Logits:
        """The row [V] behind `tokens` and a `path` of further ones, as the request has it."""
        if not self._processors:
            return row
        row, before = row.copy(), [*tokens, *path]
        for processor in self._processors:
            processor.apply(row, before)
        return row

    def choose(self, row: Logits, tokens: Sequence[int], path: Sequence[int] = ()) -> Choice:
        """The target's own token behind `tokens` and `path`, a function of the row and the seed."""
        row = self.processed(row, tokens, path)
        if self.sampling.greedy:
            return self._best(row)
        return self._choose(self._law(row), len(tokens) + len(path))

    def law(self, row: Logits, tokens: Sequence[int], path: Sequence[int] = ()) -> Law:
        """The distribution of the token behind `tokens` and `path`; greedy, all on one."""
        return self._law(self.processed(row, tokens, path))

    def guesses(
        self,
        row: Logits,
        tokens: Sequence[int],
        path: Sequence[int],
        count: int,
        *,
        node: int,
        certain: bool = False,
    ) -> list[Guess]:
        """At most `count` different tokens to follow `tokens` and `path`, from a draft's row.

        The last of `tokens` is the root of the round; the first guess becomes node `node`. Drawn
        ones come without replacement: the law of each lacks those before it. There are fewer where
        no more have a chance.
        """
        row = self.processed(row, tokens, path)
        if self._processors and np.isneginf(row).all():
            return []  # all is forbidden, but the output may never get here
        if self.sampling.audited and not self.sampling.greedy:
            quotients = self._quotients(self._law(row), len(tokens) + len(path))
            return [Guess(token, None) for token in _largest(-quotients, count)]
        if self.sampling.greedy or certain:
            return [Guess(token, None) for token in _largest(row, count)]
        return self._drawn(self._law(row), count, len(tokens) - 1, node)

    def _drawn(self, remaining: Law, count: int, root: int, node: int) -> list[Guess]:
        guesses: list[Guess] = []
        for sibling in range(count):
            number = (self._drafter * _SIBLINGS + sibling) * MOST_NODES + node
            token = draw(remaining, self.randomness.draft(root, number))
            if token is None:
                break
            guesses.append(Guess(token, remaining))
            if sibling + 1 < count:
                remaining = without(remaining, token)
        return guesses

    def _law(self, row: Logits) -> Law:
        found = law(row, self.sampling.filters)
        if found is None:
            raise _refusal(row)
        return found

    def _best(self, row: Logits) -> Choice:
        token = argmax(row)
        if token is None:
            raise _refusal(row)
        return Choice(token, float(row[token]) - largest_but(row, token))

    def _choose(self, row: Law, position: int) -> Choice:
        if self.sampling.audited:
            quotients = self._quotients(row, position)
            best = int(quotients.argmin())
            ratio = -largest_but(-quotients, best) / quotients[best]
            return Choice(best, float(np.log(ratio)) * self.sampling.temperature)
        token = draw(row, self.randomness.emit(position))
        if token is None:
            raise EngineError("a model's law has no mass; run `speccompile verify`")
        return Choice(token, np.inf)

    def _quotients(self, row: Law, position: int) -> NDArray[np.float64]:
        """What the exponential race at a position has for every token; infinity where no mass."""
        if position not in self._noise:
            if len(self._noise) >= _KEPT_NOISE:
                self._noise.clear()
            self._noise[position] = self.randomness.noise(position, len(row))
        with np.errstate(divide="ignore"):
            quotients: NDArray[np.float64] = self._noise[position] / row.astype(np.float64)
        return quotients


def _largest(row: NDArray[np.floating[Any]], count: int) -> list[int]:
    """The tokens of the `count` largest values, those of minus infinity excluded; largest first."""
    if count == 1:
        token = argmax(row)
        return [] if token is None else [token]
    candidates = np.argpartition(row, -count)[-count:] if count < len(row) else np.arange(len(row))
    # The lowest id of equals comes first, as in argmax.
    order = sorted(candidates.tolist(), key=lambda token: (-row[token], token))
    return [token for token in order if row[token] > -np.inf]


def _refusal(row: Logits) -> EngineError | RequestError:
    if np.isneginf(row).all():
        return RequestError("every token is forbidden here; loosen the request's constraints")
    return EngineError("a model's logits are not finite; run `speccompile verify` on this host")
