from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from speccompile.compiler.lower.backends import lowering, plan_lowering
from speccompile.compiler.lower.passes import Pass, run_passes
from tests.unit.compiler.lower.graphs import CAPACITY, STORAGES, contract, write

LAYERS = (1, 7)
"""Of two layers: the first gets the number that the second had."""

Lowering = Callable[[Sequence[int]], Sequence[Pass]]
LOWERINGS: dict[str, Lowering] = {
    "openvino": lambda layers: lowering("openvino", layers=layers),
    "onnxruntime": lambda layers: lowering("onnxruntime", layers=layers),
    "plan": lambda layers: plan_lowering("tensorrt_rtx", "walk", CAPACITY, layers),
}


@pytest.mark.parametrize("backend", LOWERINGS)
def test_caches_are_called_as_the_targets(tmp_path: Path, backend: str) -> None:
    write(tmp_path, STORAGES["fp16"])
    own, borrowed = contract(tmp_path), contract(tmp_path)
    run_passes(own, LOWERINGS[backend](()))
    counts = run_passes(borrowed, LOWERINGS[backend](LAYERS))
    numbers = {".0": ".1", ".1": ".7"}

    def renamed(name: str | None) -> str:
        text = str(name)
        return text[:-2] + numbers[text[-2:]] if "cache." in text else text

    for side in ("inputs", "outputs"):
        before = [renamed(value.name) for value in getattr(own.graph, side)]
        assert [value.name for value in getattr(borrowed.graph, side)] == before
    assert counts["borrow_caches"] == (4 if backend == "openvino" else 8)
    names = [value.name for node in borrowed.graph for value in node.outputs]
    assert len(set(names)) == len(names)
