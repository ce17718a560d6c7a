"""Random trees for the verify operators, and what the oracle says of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.laws import Sampling
from speccompile.plugins.schema import INVALID, Rule
from speccompile.plugins.spec_verify import Tree, spec_verify

__all__ = ["OUTPUTS", "Trees", "random_trees"]

OUTPUTS = ("path", "count", "next_token", "emitted")

_TEMPERATURES, _TOP_K, _TOP_P, _MIN_P = (0.0, 0.7, 1.3), (0, 5), (1.0, 0.9), (0.0, 0.02)
_UNIFORMS = 2**53
_BROKEN = 0.03  # share of the target's rows

Logits = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Trees:
    """B trees of N nodes over V tokens; the fields are the operators' arguments (`schema`)."""

    tokens: NDArray[np.int64]
    parents: NDArray[np.int64]
    given: NDArray[np.int64]
    lengths: NDArray[np.int64]
    uniforms: NDArray[np.int64]
    sampling: NDArray[np.float32]
    logits: Logits
    draft_logits: Logits

    def verdicts(self, rule: Rule) -> dict[str, NDArray[np.int64]]:
        """The oracle's, by the names of `OUTPUTS`."""
        batch, nodes = self.tokens.shape
        path, emitted = np.full((2, batch, nodes), INVALID, np.int64)
        count, next_token = np.zeros((2, batch), np.int64)
        for b in range(batch):
            tree = Tree(self.tokens[b], self.parents[b], int(self.given[b]))
            temperature, top_k, top_p, min_p = (float(value) for value in self.sampling[b])
            verdict = spec_verify(
                rule,
                self.logits[b],
                tree,
                self.uniforms[b],
                Sampling(temperature, int(top_k), top_p, min_p),
                self.draft_logits[b],
            )
            count[b], next_token[b] = len(verdict.path), verdict.next_token
            path[b, : count[b]] = verdict.path
            added = verdict.emitted(tree)
            emitted[b, : len(added)] = added
        return {"path": path, "count": count, "next_token": next_token, "emitted": emitted}


def random_trees(
    seed: int, batch: int, nodes: int, vocabulary: int, *, capacity: int = 1024
) -> Trees:
    """Chains, bushes and padding, prompts among them; ties in every second row, a NaN in some.

    Tokens are often likely ones, so that paths stand for a while. `capacity` is more than `nodes`.
    """
    rng = np.random.default_rng(seed)
    given = np.where(rng.random(batch) < 0.8, 1, rng.integers(1, nodes + 1, batch))
    parents = np.stack([_parents(rng, nodes, int(count)) for count in given])
    logits = rng.normal(0.0, 3.0, (batch, nodes, vocabulary))
    logits = np.where(rng.random((batch, nodes, 1)) < 0.5, np.rint(logits), logits)
    draft = logits + rng.normal(0.0, 1.0, logits.shape)
    noisy = np.where(
        rng.random((batch, nodes, 1)) < 0.5, logits, draft + rng.gumbel(size=draft.shape)
    )
    likely = np.take_along_axis(noisy.argmax(-1), np.maximum(parents, 0), axis=1)
    anything = rng.integers(0, vocabulary, (batch, nodes))
    broken = np.argwhere(rng.random((batch, nodes)) < _BROKEN)
    for sequence, node in broken:
        logits[sequence, node, rng.integers(vocabulary)] = np.nan
    return Trees(
        tokens=np.where(rng.random((batch, nodes)) < 0.8, likely, anything),
        parents=parents,
        given=given,
        lengths=rng.integers(0, capacity - nodes + 1, batch),
        uniforms=rng.integers(0, _UNIFORMS, (batch, nodes, 2)),
        sampling=np.stack(list(_sampling(rng, batch)), axis=1),
        logits=logits.astype(np.float32),
        draft_logits=draft.astype(np.float32),
    )


def _parents(rng: np.random.Generator, nodes: int, given: int) -> NDArray[np.int64]:
    """Of one tree [N] behind a chain of `given` nodes."""
    parents = np.arange(-1, nodes - 1)
    reach = int(rng.integers(1, nodes + 1))  # 1 leaves a chain
    for node in range(given, nodes):
        parents[node] = rng.integers(max(node - reach, 0), node)
    if rng.random() < 0.3:
        parents[max(given, nodes - 2) :] = -1
    return parents


def _sampling(rng: np.random.Generator, batch: int) -> Iterator[NDArray[np.float32]]:
    for values in (_TEMPERATURES, _TOP_K, _TOP_P, _MIN_P):
        yield rng.choice(np.array(values, np.float32), batch)
