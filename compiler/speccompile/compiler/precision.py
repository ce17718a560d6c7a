"""In which precision each tensor of a model is stored."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.runtime.errors import SpeccompileError

__all__ = ["MIXED", "PRECISIONS", "tensor_precisions"]

PRECISIONS = ("fp32", "fp16", "bf16", "int8")
MIXED = "mixed"


def tensor_precisions(
    config: DecoderConfig, precision: str, layers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The precision of every tensor of `config`, in model order.

    Matrices are stored in `precision`; where that is "mixed", in that of the last pattern of
    `layers` that matches their name without ``.weight`` (`fnmatch`, case counts). Norms and biases
    stay fp32: they are small, and fp16 norms are where models overflow.
    Raises SpeccompileError for a precision that does not exist, a matrix that no pattern matches,
    and a pattern that matches no matrix.
    """
    shapes = tensor_shapes(config)
    matrices = [
        name.removesuffix(".weight")
        for name, shape in shapes.items()
        if len(shape) > 1 and name.endswith(".weight")
    ]
    if precision == MIXED:
        chosen = _matched(matrices, layers or {})
    elif layers:
        raise SpeccompileError(
            f'layers is given, but precision is "{precision}"; set precision = "{MIXED}"'
        )
    else:
        chosen = dict.fromkeys(matrices, precision)
    for name, kind in chosen.items():
        if kind not in PRECISIONS:
            listing = ", ".join((*PRECISIONS, MIXED) if kind == precision else PRECISIONS)
            raise SpeccompileError(f"{name}: precision {kind} does not exist; choose of {listing}")
    return {name: chosen.get(name.removesuffix(".weight"), "fp32") for name in shapes}


def _matched(matrices: list[str], layers: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for pattern, precision in layers.items():
        found = [name for name in matrices if fnmatchcase(name, pattern)]
        if not found:
            raise SpeccompileError(
                f'layers: "{pattern}" matches no matrix; their names are such as {matrices[-1]}'
            )
        chosen |= dict.fromkeys(found, precision)
    if missing := next((name for name in matrices if name not in chosen), None):
        raise SpeccompileError(
            f'layers: nothing matches {missing}; let the first pattern be "*", for all the rest'
        )
    return chosen
