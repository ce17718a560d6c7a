"""Models compiled for a device, and where their tensors lie on it.

Dimensions that a model leaves open (-1) are the batch, if they come first, or else the rows of a
call. Every number of rows has addresses of its own for `parents` and `given`, which depend on it:
a captured graph that calls with one row and with two finds both as it needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.device import Device
from speccompile.runtime.device_memory import Array, Arrays, DType, Staging

__all__ = ["CompiledModel", "Context", "DeviceModel", "Tensor", "pieces", "place_models"]

_BY_ROWS = ("parents", "given")
_SCRATCH = "scratch"


@dataclass(frozen=True)
class Tensor:
    """An input or output; -1 stands for a dimension that a call decides."""

    dtype: DType
    shape: tuple[int, ...]


class Context(Protocol):
    """A model set up for calls of one size at fixed addresses."""

    @property
    def capturable(self) -> bool:
        """Whether its calls can become part of a graph."""
        ...

    def enqueue(self) -> None:
        """Enqueue one call. Raises EngineError where the library refuses it."""
        ...


class CompiledModel(Protocol):
    """What a library made of a model: names of tensors, and calls on their addresses.

    Inputs and outputs are those of a plan (`speccompile.plugins.schema` and the caches); each
    ``new_X`` is the cache ``X`` itself.
    """

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    @property
    def batch(self) -> int:
        """The most sequences of a call."""
        ...

    @property
    def rows(self) -> int:
        """The most rows of each."""
        ...

    @property
    def scratch(self) -> int:
        """Bytes that a call needs while it runs."""
        ...

    def context(
        self, batch: int, rows: int, addresses: Mapping[str, int], scratch: int
    ) -> Context: ...


class DeviceModel:
    """A compiled model with a place for every tensor; its contexts are made once and kept."""

    def __init__(
        self,
        device: Device,
        compiled: CompiledModel,
        memory: Arrays,
        places: Mapping[str, int],
        batch: int,
    ) -> None:
        """`places` has an address in `memory` for all that `_arrays` lists."""
        self.memory = memory
        self.tensors = compiled.tensors
        self.rows = compiled.rows
        self.batch = batch
        cache = next(filter(_is_cache, compiled.tensors))  # a draft may lack the first layer's
        self.capacity = compiled.tensors[cache].shape[2]
        self.vocabulary = compiled.tensors["logits"].shape[2]
        self._compiled = compiled
        self._places = places
        self._scratch = memory[_SCRATCH]
        self._contexts: dict[tuple[int, int], Context] = {}
        self._warm: set[tuple[int, int]] = set()
        arrays = _arrays(compiled, batch)
        fed = {name: arrays[name] for name in arrays if name.partition(".")[0] in _FED}
        self._staging = Staging(device, fed, places)

    def addresses(self, rows: int) -> dict[str, int]:
        """Of every tensor of a call with so many rows."""
        return {name: self._places[_place(name, rows)] for name in self.tensors}

    def context(self, batch: int, rows: int) -> Context:
        """The one for calls of this size; making it may take a while and the device's memory."""
        size = batch, rows
        if size not in self._contexts:
            addresses = self.addresses(rows)
            self._contexts[size] = self._compiled.context(*size, addresses, self._scratch)
        return self._contexts[size]

    def enqueue(self, batch: int, rows: int) -> None:
        """Enqueue a call."""
        self.context(batch, rows).enqueue()

    def warm_up(self, batch: int, rows: int) -> Context:
        """Enqueue a first call of this size, unless there was one: libraries set up within it.

        It writes cache slots behind the committed ones, as every call does, and commits nothing.
        """
        size = batch, rows
        if size not in self._warm:
            self.enqueue(*size)
            self._warm.add(size)
        return self.context(*size)

    def close(self) -> None:
        """Let go of what the library holds on the device."""
        self._contexts.clear()
        self._warm.clear()

    def put(self, name: str, values: NDArray[np.generic], rows: int = 0) -> None:
        """Enqueue that an input, where it depends on them of a call with `rows`, begins so.

        What was put under this name before must have arrived.
        """
        if name in self.tensors:
            self._staging.put(_place(name, rows), values)

    def feed(self, tokens: Sequence[int], width: int, start: int) -> None:
        """Enqueue the inputs of a call that reads `tokens` at `start`, padded to `width` rows."""
        rows = len(tokens)
        padding = [0] * (width - rows)
        self.put("input_ids", np.array([*tokens, *padding], np.int64))
        parents = [*range(-1, rows - 1), *[-1] * len(padding)]
        self.put("parents", np.array(parents, np.int64), width)
        self.put("given", np.array([rows], np.int64), width)
        self.put("lengths", np.array([start], np.int64))


_FED = ("input_ids", "parents", "given", "lengths", "sampling")


def place_models(
    device: Device,
    models: Mapping[str, CompiledModel],
    *,
    shares_cache: bool,
    batch: int | None = None,
) -> dict[str, DeviceModel]:
    """Give a "target", and perhaps a "draft", their memory: one allocation, known beforehand.

    There is room for `batch` sequences, at most and by default as many as a call can have; a draft
    that `shares_cache` has the target's. Raises EngineError where there is not enough memory.
    """
    batches = {role: min(batch or model.batch, model.batch) for role, model in models.items()}
    arrays = {
        f"{role}/{name}": array
        for role, model in models.items()
        for name, array in _arrays(model, batches[role]).items()
        if not (role == "draft" and shares_cache and _is_cache(name))
    }
    scratch = max(model.scratch for model in models.values())
    memory = Arrays(
        device, {**arrays, _SCRATCH: Array("uint8", (scratch,))}, what="running the models"
    )
    placed: dict[str, DeviceModel] = {}
    for role, model in models.items():
        owners = {
            name: "target" if shares_cache and _is_cache(name) else role
            for name in _arrays(model, batches[role])
        }
        places = {name: memory[f"{owner}/{name}"] for name, owner in owners.items()}
        placed[role] = DeviceModel(device, model, memory, places, batches[role])
    return placed


def pieces(count: int, room: int, widths: Sequence[int]) -> list[tuple[int, int]]:
    """How to read `count` rows into `room` free slots with calls of these `widths`.

    Returns the rows and the width of each call; `widths` ascend from 1. The rest of a wider call is
    padding, which takes slots too while it runs.
    """
    calls: list[tuple[int, int]] = []
    while count:
        fitting = [width for width in widths if width <= room]
        width = next((width for width in fitting if width >= count), fitting[-1])
        rows = min(count, width)
        calls.append((rows, width))
        count, room = count - rows, room - rows
    return calls


def _arrays(model: CompiledModel, batch: int) -> dict[str, Array]:
    """What has to be placed for so many sequences of it, at its largest."""
    arrays: dict[str, Array] = {}
    for name, tensor in model.tensors.items():
        for rows in range(1, model.rows + 1) if name in _BY_ROWS else (model.rows,):
            if not name.startswith("new_"):
                arrays[_place(name, rows)] = Array(tensor.dtype, _shape(tensor, batch, rows))
    return arrays


def _shape(tensor: Tensor, batch: int, rows: int) -> tuple[int, ...]:
    sizes = (batch if axis == 0 else rows for axis in range(len(tensor.shape)))
    return tuple(
        size if fixed < 0 else fixed for size, fixed in zip(sizes, tensor.shape, strict=True)
    )


def _place(name: str, rows: int) -> str:
    """The array that a tensor is at in a call with `rows`."""
    return f"{name}.{rows}" if name in _BY_ROWS else name.removeprefix("new_")


def _is_cache(name: str) -> bool:
    return name.startswith(("key_cache.", "value_cache."))
