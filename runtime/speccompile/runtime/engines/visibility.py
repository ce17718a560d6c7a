"""Which rows of a step see which: what the engines make masks of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.tree import ancestors

__all__ = ["seen_rows"]


def seen_rows(rows: int, parents: Sequence[int] | None) -> NDArray[np.bool_] | None:
    """[N, N]: the rows of the step that each row sees, its ancestors and itself; None for a chain.

    Raises ValueError where `parents` are not those of a tree of so many rows (see `Engine.step`).
    """
    if parents is None or list(parents) == list(range(-1, rows - 1)):
        return None
    if len(parents) != rows or any(not -1 <= parent < row for row, parent in enumerate(parents)):
        raise ValueError(f"the rows of a tree of {rows} cannot follow rows {parents}")
    return ancestors(np.array(parents, np.int64))
