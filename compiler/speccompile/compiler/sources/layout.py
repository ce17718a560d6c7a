"""Whether the tensors of a file are those of the model: none left over, none cut at a wrong row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from speccompile.compiler.families.family import Stored
from speccompile.compiler.sources.checkpoint import SourceError

__all__ = ["check_layout"]


def check_layout(
    where: Path, shapes: Mapping[str, tuple[int, ...]], stored: Collection[Stored], *, family: str
) -> None:
    """Compare the `shapes` of all tensors with the places where the model's own are `stored`.

    Raises SourceError for a tensor that would silently take no part, such as a bias, which makes
    another model of it; and for a fused matrix that has other rows than its parts make up together.
    """
    if unread := shapes.keys() - {place.name for place in stored}:
        raise SourceError(
            f"{where}: tensor {min(unread)} has no place in the {family} architecture"
        )
    ends: dict[str, int] = {}
    for place in stored:
        if place.rows and place.name in shapes:
            ends[place.name] = max(place.rows[1], ends.get(place.name, 0))
    transposed = {place.name for place in stored if place.transposed}
    for name, end in ends.items():
        found = (shapes[name] or (0,))[-1 if name in transposed else 0]
        if found != end:
            raise SourceError(
                f"{where}: {name} has {found} rows, but the model's configuration "
                f"implies {end}; fetch the model again"
            )
