"""The floating-point values of a graph that is brought to fp16: each in fp16, in fp32, or both."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.linear import dimensions, lazy_weight, stored_array
from speccompile.compiler.lower.passes import LoweringError

__all__ = ["FLOATS", "HALF", "SINGLE", "HalfValues", "fits_half"]

HALF, SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT
FLOATS = frozenset({HALF, SINGLE, ir.DataType.BFLOAT16})
_LARGEST = float(np.finfo(np.float16).max)


@dataclass
class HalfValues:
    """What is known of values, and the same values in the other type, made where they are asked
    for. `wide` are those that fp16 cannot hold."""

    wide: set[ir.Value] = field(default_factory=set[ir.Value])
    _forms: dict[ir.Value, dict[ir.DataType, ir.Value]] = field(
        default_factory=dict[ir.Value, dict[ir.DataType, ir.Value]]
    )

    def add(self, value: ir.Value, dtype: ir.DataType, *, wide: bool = False) -> None:
        """`value` is computed, or comes in, as `dtype`."""
        value.type = ir.TensorType(dtype)
        self._forms[value] = {dtype: value}
        if wide:
            self.wide.add(value)

    def alias(self, value: ir.Value, source: ir.Value) -> None:
        """`value` is `source` in another type."""
        self._forms[value] = self._forms[source]
        if source in self.wide:
            self.wide.add(value)

    def is_float(self, value: ir.Value | None) -> bool:
        if value is None:
            return False
        return value in self._forms or (_is_constant(value) and value.dtype in FLOATS)

    def is_single(self, value: ir.Value) -> bool:
        """Whether it is computed in fp32."""
        return next(iter(self._forms[value])) == SINGLE

    def form(self, builder: GraphBuilder, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`value` as `dtype`, HALF or SINGLE; its making goes into `builder`, if it is new."""
        if _is_constant(value):
            forms = self._forms.setdefault(value, {value.dtype or SINGLE: value})
            if dtype not in forms:
                forms[dtype] = _converted(builder, value, dtype)
            return forms[dtype]
        forms = self._forms[value]
        if dtype not in forms:
            (source,) = forms.values()
            if dtype == HALF and value in self.wide:
                raise LoweringError(f"{value.name} passes what fp16 can hold, where it has to be")
            forms[dtype] = builder.op("Cast", f"{source.name}/{_NAMES[dtype]}", source, to=dtype)
            forms[dtype].type = ir.TensorType(dtype)
        return forms[dtype]


def fits_half(value: ir.Value) -> bool:
    """Whether fp16 can hold all finite elements of an initializer, which is read for it."""
    if value.dtype == HALF:
        return True
    array = stored_array(value)
    finite = array[np.isfinite(array)]
    return bool((np.abs(finite) <= _LARGEST).all())


_NAMES = {HALF: "fp16", SINGLE: "fp32"}
_ARRAYS = {HALF: np.float16, SINGLE: np.float32}


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None


def _converted(builder: GraphBuilder, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    name = f"{value.name}.{_NAMES[dtype]}"

    def convert(array: NDArray[np.generic]) -> NDArray[np.generic]:
        with np.errstate(over="ignore"):
            converted = array.astype(_ARRAYS[dtype])
        if not np.array_equal(np.isfinite(converted), np.isfinite(array)):
            raise LoweringError(
                f"{value.name} holds values that fp16 cannot; store it as fp16, which keeps such a "
                "matrix in fp32"
            )
        return converted

    return lazy_weight(builder, name, [value], convert, dtype, dimensions(value))
