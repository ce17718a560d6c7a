"""Random rounds of trees, and what the oracle says of them, in the shapes of the operators.

Rounds are made to be awkward: chains, bushes and padding in one batch, prompts of several given
nodes, equal siblings, ties, NaNs and infinities, temperatures of 0 beside filters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins import schema
from speccompile.plugins.schema import INVALID, Rule
from speccompile.runtime.proof.trees import Trees

__all__ = ["Rounds", "random_parents", "random_rounds", "verdicts", "verify_inputs"]


Logits = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Rounds(Trees):
    """B trees of N nodes over V tokens; the fields are the operators' arguments (`schema`)."""

    def astype(self, dtype: type[np.floating[Any]]) -> Rounds:
        """With logits of another type."""
        return replace(
            self, logits=self.logits.astype(dtype), draft_logits=self.draft_logits.astype(dtype)
        )


def random_rounds(
    seed: int, batch: int, nodes: int, vocabulary: int, *, broken: float = 0.02
) -> Rounds:
    """Rounds whose trees are often accepted for some nodes; a share `broken` of rows is invalid.

    Half of the rows of logits are rounded, so that ties abound.
    """
    rng = np.random.default_rng(seed)
    given = np.where(rng.random(batch) < 0.3, rng.integers(1, nodes + 1, batch), 1)
    parents = np.stack([random_parents(rng, nodes, int(count)) for count in given])
    logits = _logits(rng, (batch, nodes, vocabulary))
    draft = logits + rng.choice([0.0, 0.3, 1.0]) * _logits(rng, logits.shape)
    logits, draft = _break(rng, logits, broken), _break(rng, draft.astype(np.float32), broken)
    tokens = _tokens(rng, parents, logits, draft)
    uniforms = rng.integers(0, 2**53, (batch, nodes, 2))
    extremes = rng.random(uniforms.shape) < 0.02
    uniforms[extremes] = rng.choice([0, 2**53 - 1], int(extremes.sum()))
    return Rounds(
        tokens=tokens,
        parents=parents,
        given=given,
        lengths=rng.integers(0, 20, batch),
        logits=logits,
        draft_logits=draft,
        uniforms=uniforms,
        sampling=_sampling(rng, batch, vocabulary),
    )


def random_parents(rng: np.random.Generator, nodes: int, given: int = 1) -> NDArray[np.int64]:
    """A tree [N] behind a chain of `given` nodes; some nodes are padding."""
    parents = np.arange(-1, nodes - 1)
    shape = rng.integers(3)  # a chain, a tree of any shape, or one near to a chain
    for node in range(given, nodes):
        if shape:
            parents[node] = rng.integers(0 if shape == 1 else max(node - 3, 0), node)
    if rng.random() < 0.5:
        for node in range(given, nodes):
            if rng.random() < 0.15 or (parents[node] > 0 and parents[parents[node]] < 0):
                parents[node] = -1
    return parents


def verdicts(rule: Rule, rounds: Rounds) -> dict[str, NDArray[np.int64]]:
    """The oracle's `path`, `count`, `next_token` and `emitted`."""
    return rounds.verdicts(rule)


def verify_inputs(rule: Rule, rounds: Rounds) -> dict[str, NDArray[np.generic]]:
    """What an implementation of `SpecVerify` is fed, by the names of the schema."""
    return {
        argument.name: getattr(rounds, argument.name)
        for argument in schema.spec_verify(rule).inputs
    }


def _logits(rng: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    logits = rng.normal(size=shape) * rng.choice([0.5, 2.0, 8.0], (*shape[:2], 1))
    rounded = rng.random((*shape[:2], 1)) < 0.5
    rows: NDArray[np.float32] = np.where(rounded, np.rint(logits), logits).astype(np.float32)
    return rows


def _tokens(
    rng: np.random.Generator,
    parents: NDArray[np.int64],
    logits: NDArray[np.float32],
    draft: NDArray[np.float32],
) -> NDArray[np.int64]:
    """Often a likely token of the row behind the parent, else any; INVALID behind some rows of the
    draft that are."""
    batch, nodes, vocabulary = logits.shape
    noisy = logits + rng.gumbel(size=logits.shape) * rng.choice([0.0, 1.0], (batch, nodes, 1))
    behind = np.maximum(parents, 0)
    likely = np.take_along_axis(noisy.argmax(-1), behind, axis=1)
    tokens = np.where(
        rng.random((batch, nodes)) < 0.6, likely, rng.integers(0, vocabulary, (batch, nodes))
    )
    unsound = np.take_along_axis(~np.isfinite(draft.max(-1)), behind, axis=1)
    return np.where(unsound & (rng.random(tokens.shape) < 0.5), INVALID, tokens)


def _break(
    rng: np.random.Generator, logits: NDArray[np.float32], share: float
) -> NDArray[np.float32]:
    batch, nodes, vocabulary = logits.shape
    masked = rng.random(logits.shape) < 0.1
    masked &= rng.random((batch, nodes, 1)) < 0.2
    logits = np.where(masked, -np.inf, logits).astype(np.float32)
    for row, node in np.argwhere(rng.random((batch, nodes)) < share):
        place = rng.integers(vocabulary)
        match int(rng.integers(4)):
            case 0:
                logits[row, node] = -np.inf
            case 1:
                logits[row, node] = np.nan
            case 2:
                logits[row, node, place] = np.nan
            case _:
                logits[row, node, place] = np.inf
    return logits


def _sampling(rng: np.random.Generator, batch: int, vocabulary: int) -> NDArray[np.float32]:
    def some(values: NDArray[np.floating[Any]], off: float, share: float) -> NDArray[np.float32]:
        return np.where(rng.random(batch) < share, values, off).astype(np.float32)

    temperature = rng.choice(
        [0.3, 0.7, 1.0, 1.7, 1e-3, 1e-40], batch, p=[0.2, 0.2, 0.3, 0.2, 0.05, 0.05]
    )
    columns = (
        some(temperature, 0.0, 0.85),
        some(rng.integers(1, vocabulary + 3, batch).astype(np.float64), 0.0, 0.3),
        some(rng.choice([0.0, 0.1, 0.5, 0.9, 0.99], batch), 1.0, 0.3),
        some(rng.choice([0.01, 0.1, 0.5, 1.0], batch), 0.0, 0.3),
    )
    return np.stack(columns, axis=1)
