"""Every way to store weights through both engines, against the contract on the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.host import cpu_flags
from tests.lowered import lowered
from tests.unit.compiler.lower.graphs import (
    CAPACITY,
    CONFIG,
    STORAGES,
    TOKENS,
    contract,
    logits,
    write,
)

# The largest error over the largest logit. OpenVINO rounds the inputs of int8 layers, which the
# contract does not (measured: 4e-2). Where the graph itself rounds them, only a sum in another
# order may end on the other side of a step (measured: 1e-2 where one does, else 3e-7).
FLOATS, ROUNDED, STATIC = 1e-4, 1e-1, 3e-2


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
@pytest.mark.parametrize("storage", STORAGES)
def test_logits_are_those_of_the_contract(
    tmp_path: Path, storage: str, backend: Literal["openvino", "onnxruntime"]
) -> None:
    saturating = backend == "openvino" and not any("vnni" in flag for flag in cpu_flags() or ())
    if saturating and STORAGES[storage].static:
        pytest.skip("without VNNI, OpenVINO adds products of bytes in 16 bits, which saturate")
    precision = STORAGES[storage].precision
    write(tmp_path, STORAGES[storage])
    expected = logits(contract(tmp_path), tmp_path)
    model = contract(tmp_path)
    info, graph = lowered(model, CONFIG, backend, tmp_path, CAPACITY)
    engine = open_engine(info, graph, threads=1)
    rows = np.concatenate([engine.step(TOKENS[:12]).copy(), engine.step(TOKENS[12:])])
    rounds = backend == "openvino" and precision in ("int8", "mixed")
    tolerance = STATIC if STORAGES[storage].static else ROUNDED if rounds else FLOATS
    assert _relative_error(rows, expected) <= tolerance


def _relative_error(rows: Logits, expected: NDArray[np.float32]) -> float:
    return float(np.abs(rows - expected).max() / np.abs(expected).max())
