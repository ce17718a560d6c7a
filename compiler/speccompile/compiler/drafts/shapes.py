"""The shapes that a distilled draft may have: which of a target's layers, and how many tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.drafts.distil import check_layers, layers_of
from speccompile.compiler.drafts.student import default_layers
from speccompile.compiler.recipe import DistilTable
from speccompile.runtime.errors import SpeccompileError

__all__ = ["Shape", "Space", "own_shape", "spread"]

_COUNTS = (2, 4, 8)
_VOCABULARIES = (4096, 16384)


@dataclass(frozen=True)
class Shape:
    """A draft of `layers` of its target, whose head has so many tokens; a `vocabulary` of 0 is
    all."""

    layers: tuple[int, ...]
    vocabulary: int


@dataclass(frozen=True)
class Space:
    """Shapes to choose among: each of `counts` layers, from the ends of the target and evenly
    spread over it, and each of `layers`, with each of the `vocabularies`.

    Without counts and layers, counts are those of 2, 4 and 8 that are less than the target's, or
    else 1; without vocabularies, they are 4,096 and 16,384.
    """

    counts: Sequence[int] = ()
    layers: Sequence[tuple[int, ...]] = ()
    vocabularies: Sequence[int] = ()

    def shapes(self, settings: DistilTable, config: DecoderConfig) -> list[Shape]:
        """Each once, and first the recipe's own. Raises SpeccompileError for layers that the
        target does not have."""
        sizes = [_size(each, config) for each in self.vocabularies or _VOCABULARIES]
        found = [Shape(each, size) for each in self._layers(config.layers) for size in sizes]
        return list(dict.fromkeys([own_shape(settings, config), *found]))

    def _layers(self, depth: int) -> Iterator[tuple[int, ...]]:
        for each in self.layers:
            check_layers("--layers", each, depth)
            if any(after <= before for before, after in pairwise(each)):
                raise SpeccompileError(
                    f"--layers {','.join(map(str, each))} must rise: the draft computes them in "
                    "this order"
                )
        if wrong := [count for count in self.counts if count > depth]:
            raise SpeccompileError(f"--count is {wrong[0]}, but the target has {depth} layers")
        fewer = [count for count in _COUNTS if count < depth] or [1]
        for count in self.counts if self.counts or self.layers else fewer:
            yield default_layers(count, depth)
            yield spread(count, depth)
        yield from self.layers


def own_shape(settings: DistilTable, config: DecoderConfig) -> Shape:
    """The shape that the recipe has."""
    return Shape(layers_of(settings, config.layers), _size(settings.vocabulary, config))


def spread(count: int, layers: int) -> tuple[int, ...]:
    """`count` of a target's `layers`, the first and the last one and others evenly between."""
    steps = max(count - 1, 1)
    return tuple(round(number * (layers - 1) / steps) for number in range(count))


def _size(vocabulary: int, config: DecoderConfig) -> int:
    return vocabulary if vocabulary < config.vocab_size else 0
