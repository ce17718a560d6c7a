"""A torch decoder as a compiled model: on addresses, between our kernels, on the device's stream.

On a GPU, a call is enqueued and can be captured. What torch allocates in it comes from a pool of
its own (`torch.cuda.MemPool`) and goes back to it within the call: a graph's replay writes there
again, and finds nobody's memory. On a host, a call is work of a `HostDevice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from speccompile.plugins import schema
from speccompile.plugins.launches import (
    Launch,
    LogitsType,
    tree_mask_launches,
    verify_launches,
    verify_workspace,
)
from speccompile.plugins.schema import Rule
from speccompile.runtime.device import ALIGNMENT
from speccompile.runtime.device_memory import Array, DType, host_array
from speccompile.runtime.device_model import Tensor as TensorType
from speccompile.runtime.devices.cuda import CudaDevice
from tests.gpu.torch_decoder import Decoder
from tests.host_device import HostDevice

__all__ = ["CudaQueue", "HostQueue", "Queue", "TorchModel"]

_TORCH_TYPES: Mapping[DType, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "int64": torch.int64,
    "bool": torch.bool,
}
_ARRAY_TYPES: Mapping[DType, str] = {
    "float32": "<f4",
    "float16": "<f2",
    "int64": "<i8",
    "bool": "|b1",
}


class Queue(Protocol):
    """Where the calls of models go."""

    @property
    def where(self) -> torch.device: ...

    def tensor(self, address: int, array: Array) -> Tensor:
        """The array at an address, not a copy."""
        ...

    def call(self, name: str, work: Callable[[], None]) -> None:
        """Enqueue a call: torch's operations, and launches."""
        ...

    def launch(self, launch: Launch) -> None:
        """Within a call."""
        ...


class CudaQueue:
    """See `Queue`; the device is the first that torch sees."""

    def __init__(self, device: CudaDevice) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.set_device(0)
        self.where = torch.device("cuda", 0)
        self._device = device
        self._stream = torch.cuda.ExternalStream(  # type: ignore[no-untyped-call]
            device.stream, device=self.where
        )
        self._pool = torch.cuda.MemPool()

    def tensor(self, address: int, array: Array) -> Tensor:
        found = torch.as_tensor(_AtAddress(address, array), device=self.where)
        if found.data_ptr() != address or found.dtype != _TORCH_TYPES[array.dtype]:
            raise RuntimeError(f"torch copies what is at {address:#x} instead of using it")
        return found

    def call(self, name: str, work: Callable[[], None]) -> None:
        with (
            torch.no_grad(),
            torch.cuda.stream(self._stream),
            torch.cuda.use_mem_pool(self._pool),
        ):
            work()

    def launch(self, launch: Launch) -> None:
        self._device.launch(launch)


class _AtAddress:
    """What torch wants to know of memory on a GPU that is not its own."""

    def __init__(self, address: int, array: Array) -> None:
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": _ARRAY_TYPES[array.dtype],
            "data": (address, False),
            "strides": None,
            "version": 2,
        }


class HostQueue:
    """See `Queue`."""

    def __init__(self, device: HostDevice) -> None:
        self.where = torch.device("cpu")
        self._device = device

    def tensor(self, address: int, array: Array) -> Tensor:
        data = torch.from_numpy(host_array(address, array.size))
        return data.view(_TORCH_TYPES[array.dtype]).view(array.shape)

    def call(self, name: str, work: Callable[[], None]) -> None:
        def without_gradients() -> None:
            with torch.no_grad():
                work()

        self._device.enqueue("call", name, without_gradients)

    def launch(self, launch: Launch) -> None:
        self._device.run(launch)


@dataclass
class TorchModel:
    """See `CompiledModel`."""

    queue: Queue
    decoder: Decoder
    name: str
    rule: Rule
    rows: int
    batch: int = 1
    tensors: Mapping[str, TensorType] = field(init=False)

    def __post_init__(self) -> None:
        shape, dtype = self.decoder.shape, self.logits_type
        operator = schema.spec_verify(self.rule)
        tensors = {
            "input_ids": TensorType("int64", (-1, -1)),
            "lengths": TensorType("int64", (-1,)),
        }
        sizes = {"B": -1, "N": -1, "V": shape.vocabulary}
        for argument in (*operator.inputs, *operator.outputs):
            if argument.name != "tokens":
                dimensions = tuple(sizes.get(axis) or int(axis) for axis in argument.shape)
                kind: DType = dtype if argument.type == "logits" else _plain(argument.type)
                tensors[argument.name] = TensorType(kind, dimensions)
        cache = TensorType(dtype, (-1, shape.kv_heads, self.decoder.capacity, shape.head_dim))
        for layer in range(shape.layers):
            for kind_of_cache in ("key_cache", "value_cache"):
                tensors[f"{kind_of_cache}.{layer}"] = cache
                tensors[f"new_{kind_of_cache}.{layer}"] = cache
        self.tensors = tensors

    @property
    def logits_type(self) -> LogitsType:
        return "float16" if self.decoder.dtype == torch.float16 else "float32"

    @property
    def scratch(self) -> int:
        return sum(_aligned(array.size) for array in self.scratch_arrays(self.batch, self.rows))

    def scratch_arrays(self, batch: int, rows: int) -> tuple[Array, Array, Array]:
        """Positions and mask, which stand between the kernels and torch, and the workspace."""
        workspace = verify_workspace(batch, rows)
        return (
            Array("int64", (batch, rows)),
            Array("bool", (batch, 1, rows, self.decoder.capacity)),
            Array("uint8", (workspace,)),
        )

    def context(
        self, batch: int, rows: int, addresses: Mapping[str, int], scratch: int
    ) -> TorchContext:
        return TorchContext(self, batch, rows, addresses, scratch)


class TorchContext:
    """See `Context`."""

    capturable = True

    def __init__(
        self, model: TorchModel, batch: int, rows: int, addresses: Mapping[str, int], scratch: int
    ) -> None:
        self._model, decoder = model, model.decoder
        places: list[int] = []
        arrays = model.scratch_arrays(batch, rows)
        for array in arrays:
            places.append(scratch)
            scratch += _aligned(array.size)

        def tensor(name: str) -> Tensor:
            return model.queue.tensor(addresses[name], _sized(model.tensors[name], batch, rows))

        self._positions, self._mask = (
            model.queue.tensor(place, array)
            for place, array in zip(places[:2], arrays, strict=False)
        )
        self._tokens, self._lengths, self._logits = map(tensor, ("input_ids", "lengths", "logits"))
        self._caches = [
            (tensor(f"key_cache.{layer}"), tensor(f"value_cache.{layer}"))
            for layer in range(decoder.shape.layers)
        ]
        self._steps = decoder.slots[:rows]
        named = {**addresses, "tokens": addresses["input_ids"]}
        masks = {"position_ids": places[0], "attention_mask": places[1]}
        self._before = tree_mask_launches(batch, rows, decoder.capacity, 0, {**named, **masks})
        sizes = batch, rows, decoder.shape.vocabulary
        self._behind = verify_launches(model.rule, model.logits_type, *sizes, named, places[2])

    def enqueue(self) -> None:
        self._model.queue.call(self._model.name, self._call)

    def _call(self) -> None:
        for launch in self._before:
            self._model.queue.launch(launch)
        slots = self._lengths[:, None] + self._steps
        self._logits.copy_(
            self._model.decoder.forward(
                self._tokens, self._positions, self._mask, slots, self._caches
            )
        )
        for launch in self._behind:
            self._model.queue.launch(launch)


def _plain(kind: str) -> DType:
    plain: Mapping[str, DType] = {"int64": "int64", "float32": "float32", "bool": "bool"}
    return plain[kind]


def _sized(tensor: TensorType, batch: int, rows: int) -> Array:
    sizes = (batch if axis == 0 else rows for axis in range(len(tensor.shape)))
    shape = (size if fixed < 0 else fixed for size, fixed in zip(sizes, tensor.shape, strict=True))
    return Array(tensor.dtype, tuple(shape))


def _aligned(size: int) -> int:
    return math.ceil(size / ALIGNMENT) * ALIGNMENT
