"""The kernels that a plan's plugins launch, on the device itself, against the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.launches import (
    Launch,
    LogitsType,
    tree_mask_launches,
    verify_launches,
    verify_workspace,
)
from speccompile.plugins.schema import Rule, spec_verify
from speccompile.plugins.tree import tree_mask
from speccompile.runtime.device import Device
from speccompile.runtime.device_memory import Array, Arrays, DType, Staging, as_float32
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.trees import OUTPUTS, Trees, random_trees

__all__ = ["check_kernels"]

_CAPACITY, _WINDOWS = 83, (0, 7)
_WAIT_SECONDS = 60.0
_UNWRITTEN = -77

Size = tuple[int, int, int]
"""Sequences, nodes and tokens."""
_SMALL: Size = (8, 9, 61)
_SEEDS = 24
_LARGE_SEEDS = 2

Found = Mapping[str, NDArray[Any]]


def check_kernels(
    device: Device,
    rules: Sequence[Rule],
    logits_type: LogitsType,
    vocabulary: int,
    progress: Progress = silent,
) -> Check:
    """Judge random trees by all `rules`, over few tokens and over a `vocabulary`, and mask them."""
    trees = masks = 0
    differences: list[str] = []
    sizes: list[tuple[Size, int]] = [(_SMALL, _SEEDS), ((2, 5, vocabulary), _LARGE_SEEDS)]
    for size, seeds in sizes:
        bench = _Bench(device, size, logits_type)
        batch, _, tokens = size
        for seed in range(seeds):
            progress("kernels", seed, seeds)
            some = random_trees(seed, *size, capacity=_CAPACITY)
            for rule in rules:
                trees += batch
                differences += bench.judge(some, rule, f"{rule}, {tokens} tokens, seed {seed}")
            for window in _WINDOWS:
                masks += batch
                differences += bench.mask(some, window, f"mask of window {window}, seed {seed}")
    outcome = "as the oracle, bit for bit"
    if differences:
        outcome = f"{len(differences)} differ from the oracle; first: {differences[0]}"
    return Check(
        "kernels",
        not differences,
        f"{trees} random trees by {' and '.join(rules)}, {masks} masks: {outcome}",
        {
            "trees": trees,
            "masks": masks,
            "rules": list(rules),
            "logits_type": logits_type,
            "vocabulary": vocabulary,
            "differing": len(differences),
            "first_difference": next(iter(differences), None),
        },
    )


class _Bench:
    """Places on a device for the operands of both operators, at one size."""

    def __init__(self, device: Device, size: Size, logits_type: LogitsType) -> None:
        self._device, self._size = device, size
        self._type: LogitsType = logits_type
        batch, nodes, vocabulary = size
        sizes = {"B": batch, "N": nodes, "V": vocabulary, "S": _CAPACITY}
        workspace = verify_workspace(batch, nodes)
        arrays = {"lengths": Array("int64", (batch,)), "workspace": Array("uint8", (workspace,))}
        operator = spec_verify("traversal")  # which has all arguments
        for argument in (*operator.inputs, *operator.outputs):
            dtype: Any = logits_type if argument.type == "logits" else argument.type
            shape = tuple(sizes.get(name) or int(name) for name in argument.shape)
            arrays[argument.name] = Array(dtype, shape)
        arrays["position_ids"] = Array("int64", (batch, nodes))
        for name in ("attention_mask", "sliding_mask"):
            arrays[name] = Array("bool", (batch, 1, nodes, _CAPACITY))
        what = "checking the kernels"
        self._arrays = arrays
        self._at = Arrays(device, arrays, what=what)
        self._staging = Staging(device, arrays, self._at)
        self._done = device.event()

    def judge(self, trees: Trees, rule: Rule, what: str) -> list[str]:
        """Each tree's first difference."""
        rows = {name: _stored(getattr(trees, name), self._type) for name in _ROWS}
        names = [argument.name for argument in spec_verify(rule).inputs]
        inputs = {name: rows[name] if name in rows else getattr(trees, name) for name in names}
        at = {name: self._at[name] for name in (*inputs, *OUTPUTS)}
        launches = verify_launches(rule, self._type, *self._size, at, self._at["workspace"])
        found = self._run(inputs, launches, OUTPUTS)
        logits, draft_logits = (_widened(rows[name], self._type) for name in _ROWS)
        judged = replace(trees, logits=logits, draft_logits=draft_logits)
        return _differences(what, found, judged.verdicts(rule))

    def mask(self, trees: Trees, window: int, what: str) -> list[str]:
        batch, nodes, _ = self._size
        inputs = {"parents": trees.parents, "lengths": trees.lengths}
        launches = tree_mask_launches(batch, nodes, _CAPACITY, window, self._at)
        names = ("position_ids", "attention_mask", "sliding_mask")
        expected = tree_mask(trees.parents, trees.lengths, _CAPACITY, window)
        return _differences(
            what, self._run(inputs, launches, names), dict(zip(names, expected, strict=True))
        )

    def _run(self, inputs: Found, launches: Iterable[Launch], outputs: Sequence[str]) -> Found:
        for name, values in inputs.items():
            self._staging.put(name, values)
        for name in outputs:
            array = self._arrays[name]
            self._staging.put(name, np.full(array.shape, _UNWRITTEN).astype(array.dtype))
        self._wait()
        for launch in launches:
            self._device.launch(launch)
        raw = {name: self._staging.get(name, 0, self._arrays[name].size) for name in outputs}
        self._wait()
        return {
            name: data.view(self._arrays[name].dtype).reshape(self._arrays[name].shape).copy()
            for name, data in raw.items()
        }

    def _wait(self) -> None:
        self._done.record()
        self._done.wait(_WAIT_SECONDS, "a check of the kernels")


_ROWS = ("logits", "draft_logits")


def _stored(rows: NDArray[np.float32], dtype: DType) -> NDArray[Any]:
    if dtype == "bfloat16":  # cut, not rounded: what is stored is what is judged
        return (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return rows.astype(dtype)


def _widened(values: NDArray[Any], dtype: DType) -> NDArray[np.float32]:
    return as_float32(values.reshape(-1).view(np.uint8), dtype).reshape(values.shape)


def _differences(what: str, found: Found, expected: Found) -> list[str]:
    differences: dict[int, str] = {}
    for name, values in expected.items():
        for index, (left, right) in enumerate(zip(found[name], values, strict=True)):
            if not np.array_equal(left, right):
                said = f"{what}: {name}[{index}] is {_short(left)}, not {_short(right)}"
                differences.setdefault(index, said)
    return list(differences.values())


def _short(values: NDArray[Any]) -> str:
    text = " ".join(str(values.tolist()).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
