"""Tables of logits as compiled models: their tensors lie at addresses, their verdicts come from the
oracle, and their caches hold the very tokens, so that a row read from a wrong slot shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins import schema
from speccompile.plugins.schema import Rule
from speccompile.runtime.device_memory import DType, host_array
from speccompile.runtime.device_model import Tensor
from speccompile.runtime.errors import EngineError
from tests.host_device import HostDevice
from tests.trees import Rounds, verdicts
from tests.unit.runtime.tables import VOCABULARY, Table

__all__ = ["TableModel", "half"]

_BEFORE = VOCABULARY  # stands for the token before the first
_TYPES: dict[str, DType] = {"logits": "float16", "cache": "float16"}


def half(table: Table) -> Table:
    """The table as a plan with fp16 logits has it."""
    return table.astype(np.float16).astype(np.float32)


@dataclass
class TableModel:
    """See `CompiledModel`. `broken` is a token after which logits are NaN; `refuses` lets the next
    call fail before it is enqueued. Logits have a `noise` that depends on the rows of a call."""

    device: HostDevice
    table: Table
    name: str = "target"
    rule: Rule = "traversal"
    capacity: int = 64
    rows: int = 16
    batch: int = 1
    scratch: int = 1024
    capturable: bool = True
    broken: int | None = None
    refuses: bool = False
    noise: float = 0.0
    tensors: Mapping[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        operator = schema.spec_verify(self.rule)
        tensors = {
            "input_ids": Tensor("int64", (-1, -1)),
            "lengths": Tensor("int64", (-1,)),
        }
        sizes = {"B": -1, "N": -1, "V": VOCABULARY}
        for argument in (*operator.inputs, *operator.outputs):
            if argument.name != "tokens":
                shape = tuple(sizes.get(axis) or int(axis) for axis in argument.shape)
                dtype: Any = _TYPES.get(argument.type, argument.type)
                tensors[argument.name] = Tensor(dtype, shape)
        for kind in ("key_cache.0", "value_cache.0"):
            tensors[kind] = tensors[f"new_{kind}"] = Tensor("float16", (-1, 1, self.capacity, 1))
        self.tensors = tensors

    def context(
        self, batch: int, rows: int, addresses: Mapping[str, int], scratch: int
    ) -> _TableContext:
        assert self.device.capturing is None, "a context was made while capturing"
        assert set(addresses) == set(self.tensors)
        assert scratch
        self.device.allocations += 1
        return _TableContext(self, batch, rows, dict(addresses))


@dataclass
class _TableContext:
    model: TableModel
    batch: int
    rows: int
    addresses: dict[str, int]
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])

    @property
    def capturable(self) -> bool:
        return self.model.capturable

    def enqueue(self) -> None:
        model = self.model
        if model.refuses:
            model.refuses = False
            raise EngineError(f"{model.name}: refuses a call")
        detail = (model.name, self.batch, self.rows, tuple(self.addresses.items()))
        model.device.enqueue("call", detail, self._call)

    def _call(self) -> None:
        """A call, as a plan does it: scatter the rows, attend, judge."""
        cache, ids = self._array("key_cache.0")[:, 0, :, 0], self._array("input_ids")
        parents, lengths = self._array("parents"), self._array("lengths")
        logits = np.zeros((self.batch, self.rows, VOCABULARY), np.float16)
        for b, length in enumerate(lengths):
            assert length + self.rows <= self.model.capacity, "rows pass the end of the cache"
            cache[b, length : length + self.rows] = ids[b]
            # Nobody may count on what is behind: a library may use it, and another call does.
            cache[b, length + self.rows :] = np.nan
            for n in range(self.rows):
                slot = length + parents[b, n]  # a parent of -1 is the last committed row
                before = cache[b, slot] if slot >= 0 else _BEFORE
                assert before == before, f"slot {slot} of {self.model.name} was never written"
                logits[b, n] = self._row(int(before), int(ids[b, n]))
        self._array("logits")[:] = logits
        self._judge(logits)

    def _row(self, before: int, token: int) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self.model.table[before, token].copy()
        if self.model.noise:
            rng = np.random.default_rng([self.rows, before, token])
            row += self.model.noise * rng.random(row.shape)
        return np.full_like(row, np.nan) if token == self.model.broken else row

    def _judge(self, logits: NDArray[np.float16]) -> None:
        batch, rows = self.batch, self.rows
        rounds = Rounds(
            tokens=self._array("input_ids"),
            parents=self._array("parents"),
            given=self._array("given"),
            lengths=self._array("lengths"),
            logits=logits,
            draft_logits=self._optional("draft_logits", np.zeros_like(logits)),
            uniforms=self._optional("uniforms", np.zeros((batch, rows, 2), np.int64)),
            sampling=self._optional("sampling", np.zeros((batch, 4), np.float32)),
        )
        for name, values in verdicts(self.model.rule, rounds).items():
            self._array(name)[:] = values

    def _optional(self, name: str, absent: NDArray[Any]) -> NDArray[Any]:
        return self._array(name) if name in self.addresses else absent

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            tensor = self.model.tensors[name]
            sizes = (self.batch if axis == 0 else self.rows for axis in range(len(tensor.shape)))
            shape = [size if at < 0 else at for size, at in zip(sizes, tensor.shape, strict=True)]
            dtype = np.dtype(tensor.dtype)
            data = host_array(self.addresses[name], math.prod(shape) * dtype.itemsize)
            self._arrays[name] = data.view(dtype).reshape(shape)
        return self._arrays[name]
