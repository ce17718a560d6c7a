"""Models of a few tokens without a network: the law of the next token after every text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.engine import Logits

__all__ = [
    "Model",
    "ModelEngine",
    "Text",
    "TextEngine",
    "Vector",
    "exact_law",
    "mixed",
    "random_model",
]

Text = tuple[int, ...]
Vector = NDArray[np.float64]


class Model:
    """A function of the last `memory` tokens, all by default; each value is made once."""

    def __init__(self, make: Callable[[Text], Vector], *, memory: int | None = None) -> None:
        self._make = make
        self._memory = memory
        self._rows: dict[Text, Vector] = {}

    def law(self, text: Text) -> Vector:
        """Of the token behind `text`, [V]."""
        return exact_law(self.row(text))

    def row(self, text: Text) -> Logits:
        """What an engine would return: logits, though in fp64."""
        known = text if self._memory is None else text[-self._memory :]
        if known not in self._rows:
            with np.errstate(divide="ignore"):
                self._rows[known] = np.log(self._make(known))
        return cast("Logits", self._rows[known])


class TextEngine(ABC):
    """An engine (`runtime.engine`) whose rows are a function of the text; its cache holds that."""

    def __init__(self, capacity: int = 64) -> None:
        self._tokens: list[int] = []
        self.capacity = capacity

    @property
    def takes_trees(self) -> bool:
        return True

    @property
    def length(self) -> int:
        return len(self._tokens)

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        texts: list[Text] = []
        for row, token in enumerate(tokens):
            parent = row - 1 if parents is None else parents[row]
            texts.append((*(texts[parent] if parent >= 0 else self._tokens), token))
        self._tokens += tokens
        return np.stack([self._row(text) for text in texts[-(last or len(tokens)) :]])

    def rollback(self, length: int) -> None:
        del self._tokens[length:]

    @abstractmethod
    def _row(self, text: Text) -> Logits:
        """Of the token behind `text`, [V]."""


class ModelEngine(TextEngine):
    """Runs a model."""

    def __init__(self, model: Model, capacity: int = 64) -> None:
        super().__init__(capacity)
        self._model = model

    def _row(self, text: Text) -> Logits:
        return self._model.row(text)


def exact_law(row: NDArray[np.floating[Any]], sampling: object = None) -> Vector:
    """In place of `plugins.laws.law` at a temperature of 1: the softmax, in fp64."""
    weights = np.exp(row.astype(np.float64) - float(row.max()))
    law: Vector = weights / weights.sum()
    return law


def random_model(
    seed: int,
    *,
    vocabulary: int = 3,
    zeros: float = 0.0,
    one_hot: bool = False,
    evenness: float = 1.0,
    memory: int | None = None,
) -> Model:
    """Laws of no relation to one another; a share `zeros` of them excludes a token."""

    def make(text: Text) -> Vector:
        rng = np.random.default_rng([seed, *text])
        law = rng.dirichlet(np.full(vocabulary, evenness))
        if rng.random() < zeros:
            law[rng.integers(vocabulary)] = 0.0
        if one_hot:
            law = (np.arange(vocabulary) == law.argmax()).astype(np.float64)
        normal: Vector = law / law.sum()
        return normal

    return Model(make, memory=memory)


def mixed(left: Model, right: Model, share: float = 0.5, *, memory: int | None = None) -> Model:
    """With the probability `share` the one, else the other."""
    return Model(
        lambda text: share * left.law(text) + (1.0 - share) * right.law(text), memory=memory
    )
