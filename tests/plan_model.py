"""A graph lowered for TensorRT as a compiled model: ONNX Runtime runs it on a device's memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from speccompile.runtime.device_memory import DTYPES, DType, host_array
from speccompile.runtime.device_model import Tensor
from tests.host_device import HostDevice

__all__ = ["PlanModel"]

_TYPES: dict[str, DType] = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    **{f"tensor({dtype})": dtype for dtype in DTYPES},
}


class PlanModel:
    """See `CompiledModel`."""

    batch = 1
    scratch = 256

    def __init__(self, device: HostDevice, graph: Path, *, name: str, rows: int) -> None:
        """`graph` is lowered for TensorRT and made runnable: `make_runnable`."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.device, self.name, self.rows = device, name, rows
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]
        self.tensors: Mapping[str, Tensor] = {
            value.name: Tensor(
                _TYPES[value.type], tuple(each if isinstance(each, int) else -1 for each in shape)
            )
            for value in [*self.session.get_inputs(), *self.session.get_outputs()]
            for shape in [value.shape]
        }

    def context(
        self, batch: int, rows: int, addresses: Mapping[str, int], scratch: int
    ) -> _PlanContext:
        assert set(addresses) == set(self.tensors)
        return _PlanContext(self, batch, rows, dict(addresses))


@dataclass(frozen=True)
class _PlanContext:
    model: PlanModel
    batch: int
    rows: int
    addresses: dict[str, int]
    capturable: bool = True

    def enqueue(self) -> None:
        detail = (self.model.name, self.batch, self.rows, tuple(self.addresses.items()))
        self.model.device.enqueue("call", detail, self._call)

    def _call(self) -> None:
        feeds = {name: self._array(name) for name in self.model.inputs}
        for name, values in zip(
            self.model.outputs, self.model.session.run(self.model.outputs, feeds), strict=True
        ):
            self._array(name)[:] = np.asarray(values)

    def _array(self, name: str) -> NDArray[Any]:
        tensor = self.model.tensors[name]
        sizes = (self.batch if axis == 0 else self.rows for axis in range(len(tensor.shape)))
        shape = [size if at < 0 else at for size, at in zip(sizes, tensor.shape, strict=True)]
        dtype = np.dtype(tensor.dtype)
        data = host_array(self.addresses[name], math.prod(shape) * dtype.itemsize)
        return data.view(dtype).reshape(shape)
