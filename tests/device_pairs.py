"""Pairs of tables on a device, and what they generate by the rules alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins import laws
from speccompile.plugins.philox import uniform_bits
from speccompile.plugins.spec_verify import Tree, spec_verify
from speccompile.runtime.device_model import place_models
from speccompile.runtime.rounds import Rounds
from speccompile.runtime.sampling import Purpose, Sampling
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


@dataclass(frozen=True)
class _Draws:
    seed: int

    def __call__(self, place: int, purpose: Purpose) -> int:
        return int(uniform_bits(self.seed, place, int(purpose)))


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
    draws, tokens = _Draws(sampling.seed), [*prompt]
    law_of = laws.Sampling(sampling.temperature, sampling.top_k, sampling.top_p)

    def drawn(row: NDArray[np.float32], place: int, purpose: Purpose) -> int:
        law = laws.law(row, law_of)
        assert law is not None
        token = laws.draw(law, draws(place, purpose))
        assert token is not None
        return token

    tokens.append(drawn(_row(target, tokens), len(tokens), Purpose.EMIT))
    yield tokens[-1]
    while len(tokens) < capacity:
        root = len(tokens) - 1
        length = proposals if root + proposals + 1 <= capacity else 0
        guessed = [*tokens]
        while len(guessed) < len(tokens) + length:
            guessed.append(drawn(_row(draft, guessed), len(guessed), Purpose.DRAFT))
        ends = range(len(tokens), len(guessed) + 1)
        tree = Tree(np.array(guessed[root:]), np.arange(-1, length))
        pairs = [[draws(end - 1, Purpose.ACCEPT), draws(end, Purpose.EMIT)] for end in ends]
        verdict = spec_verify(
            "traversal",
            np.stack([_row(target, guessed[:end]) for end in ends]),
            tree,
            np.array(pairs),
            law_of,
            np.stack([_row(draft, guessed[:end]) for end in ends]),
        )
        for token in verdict.emitted(tree):
            tokens.append(token)
            yield token


def _row(table: Table, tokens: Sequence[int]) -> NDArray[np.float32]:
    before = tokens[-2] if len(tokens) > 1 else VOCABULARY
    row: NDArray[np.float32] = table[before, tokens[-1]]
    return row
