"""What the rounds came to, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.peers.cells import PLAIN, Cell
from benchmarks.peers.peer import OURS
from benchmarks.peers.rounds import Sample

__all__ = ["Row", "document", "summarize"]


@dataclass(frozen=True)
class Row:
    """A cell's medians over prompts and rounds. Ratios are over our plain decoding of the same
    class, prompt and round."""

    peer: str
    weights: str
    mode: str
    tokens_per_second: float
    ratio: float
    ratio_p10: float
    ratio_p90: float
    first_seconds: float
    memory: int
    """The most that its process held, in bytes."""
    as_its_plain: int
    """How many prompts it continued as it does plainly, in all rounds."""
    as_ours: int
    """How many as our plain decoding does."""
    begins_as_ours: float
    """How far, as a share of the tokens: what is far from 1 in 16 bits is another model."""


def summarize(cells: Sequence[Cell], samples: Sequence[Sample]) -> list[Row]:
    """A row for each cell, fastest first within a class of weights."""
    by_cell: dict[str, dict[tuple[int, int], Sample]] = {}
    for sample in samples:
        by_cell.setdefault(sample.cell, {})[sample.round, sample.prompt] = sample
    plain = {
        (cell.peer.name, cell.weights): by_cell[cell.name] for cell in cells if cell.mode == PLAIN
    }
    rows = [
        _row(
            cell,
            by_cell[cell.name],
            plain[cell.peer.name, cell.weights],
            plain[OURS.name, cell.weights],
        )
        for cell in cells
    ]
    classes = list(dict.fromkeys(row.weights for row in rows))
    return sorted(rows, key=lambda row: (classes.index(row.weights), -row.ratio))


_Samples = Mapping[tuple[int, int], Sample]


def _row(cell: Cell, own: _Samples, plain: _Samples, ours: _Samples) -> Row:
    ratios = [sample.tokens_per_second / ours[key].tokens_per_second for key, sample in own.items()]
    low, middle, high = (float(value) for value in np.percentile(ratios, (10, 50, 90)))
    return Row(
        peer=cell.peer.name,
        weights=cell.weights,
        mode=cell.mode,
        tokens_per_second=median(sample.tokens_per_second for sample in own.values()),
        ratio=middle,
        ratio_p10=low,
        ratio_p90=high,
        first_seconds=median(sample.first_seconds for sample in own.values()),
        memory=max(sample.memory for sample in own.values()),
        as_its_plain=_same(own, plain),
        as_ours=_same(own, ours),
        begins_as_ours=median(
            _common(sample.tokens, ours[key].tokens) for key, sample in own.items()
        ),
    )


def _same(own: _Samples, other: _Samples) -> int:
    """Prompts that both continue alike, whatever the rounds."""
    prompts = {prompt for _, prompt in own}
    different = {
        prompt
        for (_, prompt), sample in own.items()
        if any(
            sample.tokens != theirs.tokens
            for (_, number), theirs in other.items()
            if number == prompt
        )
    }
    return len(prompts - different)


def _common(tokens: Sequence[int], others: Sequence[int]) -> float:
    both = min(len(tokens), len(others))
    alike = next((place for place in range(both) if tokens[place] != others[place]), both)
    return alike / max(len(tokens), len(others))


def document(rows: Sequence[Row], samples: Sequence[Sample], about: Mapping[str, Any]) -> Any:
    """All of it, for JSON."""
    return {
        **about,
        "rows": [asdict(row) for row in rows],
        "samples": [asdict(sample) for sample in samples],
    }
