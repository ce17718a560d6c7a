"""Pairs of tables on a device, and what they generate by the rules alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins import laws
from speccompile.plugins.spec_verify import Tree, spec_verify
from speccompile.runtime.device_model import place_models
from speccompile.runtime.rounds import Rounds
from speccompile.runtime.sampling import Randomness, Sampling
from tests.host_device import HostDevice
from tests.table_model import TableModel
from tests.unit.runtime.tables import VOCABULARY, Table

__all__ = ["TablePair", "oracle"]


class TablePair:
    """A target, perhaps a draft, and their rounds; `calls` are the sizes of call of the models."""

    def __init__(
        self,
        target: Table,
        draft: Table | None = None,
        *,
        device: HostDevice | None = None,
        shares_cache: bool = False,
        capacity: int = 64,
        draft_capacity: int | None = None,
        rows: int = 16,
        seconds: float = 60.0,
    ) -> None:
        self.device = device or HostDevice()
        self.target = TableModel(self.device, target, capacity=capacity, rows=rows)
        models = {"target": self.target}
        if draft is not None:
            own = draft_capacity or capacity
            models["draft"] = TableModel(
                self.device, draft, "draft", "walk", capacity=own, rows=rows
            )
            self.draft = models["draft"]
        placed = place_models(self.device, models, shares_cache=shares_cache)
        self.rounds = Rounds(
            self.device,
            placed["target"],
            placed.get("draft"),
            shares_cache=shares_cache,
            seconds=seconds,
        )


def oracle(
    target: Table,
    draft: Table,
    prompt: Sequence[int],
    sampling: Sampling,
    proposals: int,
    *,
    capacity: int = 64,
) -> Iterator[int]:
    """The tokens after `prompt`, up to the capacity: rounds written down from their definition."""
    numbers, tokens = Randomness(sampling.seed), [*prompt]

    def drawn(row: NDArray[np.float32], number: int) -> int:
        law = laws.law(row, sampling.filters)
        assert law is not None
        token = laws.draw(law, number)
        assert token is not None
        return token

    tokens.append(drawn(_row(target, tokens), numbers.emit(len(tokens))))
    yield tokens[-1]
    while len(tokens) < capacity:
        root = len(tokens) - 1
        length = proposals if root + proposals + 1 <= capacity else 0
        guessed, nodes = [*tokens], range(length + 1)
        for node in nodes[1:]:
            guessed.append(drawn(_row(draft, guessed), numbers.draft(root, node)))
        ends = range(len(tokens), len(guessed) + 1)
        tree = Tree(np.array(guessed[root:]), np.arange(-1, length))
        pairs = [[numbers.accept(root, node), numbers.emit(root + node + 1)] for node in nodes]
        verdict = spec_verify(
            "traversal",
            np.stack([_row(target, guessed[:end]) for end in ends]),
            tree,
            np.array(pairs),
            sampling.filters,
            np.stack([_row(draft, guessed[:end]) for end in ends]),
        )
        for token in verdict.emitted(tree):
            tokens.append(token)
            yield token


def _row(table: Table, tokens: Sequence[int]) -> NDArray[np.float32]:
    before = tokens[-2] if len(tokens) > 1 else VOCABULARY
    row: NDArray[np.float32] = table[before, tokens[-1]]
    return row
