"""Every family in the form of a TensorRT plan: what it computes, and that TensorRT-RTX takes it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from speccompile.compiler.contract import WINDOW_KEY, build_contract
from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.lower.backends import Library, plan_lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.quantize import Int8Inputs, write_weights
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.tensorrt.rehearsal import PlanRun, chain
from speccompile.compiler.weights import Weights
from speccompile.plugins.tree import tree_mask
from tests.families import CONTEXT, TINY, Tiny, tiny

CAPACITY = CONTEXT
PARENTS = np.array([[-1, 0, 0, 1, 1, 2, 4, 5], [-1, 0, 1, 2, 0, 4, -1, -1]])
STARTS = np.array([50, 33])
TOLERANCE = 2e-2  # of the largest logit; measured: 1.4e-2, random weights being drawn wide


@pytest.mark.parametrize("name", TINY)
def test_two_sequences_compute_what_the_contract_does(name: str, tmp_path: Path) -> None:
    """Prompts of different lengths, trees behind them, and another tree in the place of these."""
    model = _contract(tmp_path, name)
    window = int(model.metadata_props[WINDOW_KEY])
    path = tmp_path / "contract.onnx"
    ir.save(model, path)
    run_passes(model, plan_lowering("tensorrt_rtx", "greedy", CAPACITY))
    plan = PlanRun(model, tmp_path, "greedy", batch=2)
    engines = [ContractEngine(path, threads=1) for _ in range(2)]
    tokens = np.random.default_rng(1).integers(0, 512, (2, CAPACITY))

    prompts = plan.step(tokens[:, : STARTS.max()])["logits"]
    for b, engine in enumerate(engines):
        expected = engine.step(tokens[b, : STARTS[b]].tolist())
        assert _error(prompts[b, : STARTS[b]], expected) <= TOLERANCE
    for parents in (PARENTS, PARENTS[::-1]):
        plan.lengths = STARTS.copy()
        nodes = tokens[:, 60 : 60 + PARENTS.shape[1]]
        outputs = plan.step(nodes, parents)
        positions, mask, _ = tree_mask(parents, STARTS, CAPACITY, window)
        for b, engine in enumerate(engines):
            engine.rollback(int(STARTS[b]))
            expected = engine.step_rows(nodes[b].tolist(), positions[b], mask[b, 0])
            real = (parents[b] >= 0) | (np.arange(len(parents[b])) == 0)
            logits = outputs["logits"][b].astype(np.float32)
            assert _error(logits[real], expected[real]) <= TOLERANCE
            assert outputs["next_token"][b] == logits[-1].argmax()


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_row_alone_is_a_row_among_others(name: str, tmp_path: Path) -> None:
    model = _contract(tmp_path, name)
    run_passes(model, plan_lowering("tensorrt_rtx", "walk", CAPACITY))
    plan = PlanRun(model, tmp_path, "walk")
    tokens = np.random.default_rng(1).integers(0, 512, (1, 40))
    together = plan.step(tokens, chain(1, 40))["logits"][0].astype(np.float32)
    plan.lengths[:] = 0
    for row in range(40):
        alone = plan.step(tokens[:, row : row + 1])["logits"][0].astype(np.float32)
        assert _error(alone, together[row : row + 1]) <= TOLERANCE
        plan.lengths += 1


@pytest.mark.parametrize(
    ("name", "precision", "library"),
    [
        ("llama", "fp16", "tensorrt_rtx"),
        ("llama-tied", "int8", "tensorrt_rtx"),
        ("llama", "static", "tensorrt"),
        ("gemma2", "fp16", "tensorrt_rtx"),
        ("gpt2", "bf16", "tensorrt_rtx"),
        ("qwen3", "fp32", "tensorrt_rtx"),
        ("smollm3", "outliers", "tensorrt_rtx"),
        ("mistral-sliding", "fp16", "tensorrt"),
    ],
)
def test_tensorrt_rtx_builds_it(
    name: str, precision: str, library: Library, tmp_path: Path
) -> None:
    if importlib.util.find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt_rtx is not installed")
    model = _contract(tmp_path, name, precision)
    layers = _tiny(name).config.layers
    run_passes(model, plan_lowering(library, "traversal", CAPACITY))
    graph = tmp_path / "plan.onnx"
    ir.save(model, graph, external_data="plan.onnx.data")
    report = _build(graph)
    network, counts = report["network"], report["network"]["layers"]
    assert network["plugins"] == ["/model/tree_mask", "/verify"]
    assert counts["KV_CACHE_UPDATE"] == 2 * layers
    caches = {f"{kind}_cache.{i}" for i in range(layers) for kind in ("key", "value")}
    assert network["caches"] == {f"new_{cache}": cache for cache in caches}
    attention = "SOFTMAX" if name == "gemma2" else "ATTENTION_OUTPUT"
    assert counts[attention] == layers
    types = {tensor["name"]: tensor["dtype"] for tensor in network["inputs"] + network["outputs"]}
    assert {types[cache] for cache in caches} == {types["logits"]} == {"float16"}
    assert counts.get("QUANTIZE", 0) == (4 * layers + 1 if precision == "static" else 0)
    int8 = precision in ("int8", "static", "outliers")
    assert network["int8_weight_bytes"] == (_int8_bytes(Weights(tmp_path)) if int8 else 0)


_BUILD = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from speccompile.compiler.tensorrt.builder import PlanSpec, Profile, build_plan
from speccompile.compiler.tensorrt.library import open_library

class NoKernels:
    def load(self): raise RuntimeError("a plugin is run")
    def launch(self, launch, stream): raise RuntimeError("a plugin is run")

graph = Path(sys.argv[1])
spec = PlanSpec(graph, "sm89", (Profile((1, 1, 2), (1, 5, 16)),))
report = build_plan(spec, open_library("tensorrt_rtx"), NoKernels(), graph.with_suffix(".plan"))
print(json.dumps(asdict(report)))
"""


def _build(graph: Path) -> dict[str, Any]:
    """In a process of its own, which the library may end."""
    command = [sys.executable, "-c", _BUILD, str(graph)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    report: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return report


@cache
def _tiny(name: str) -> Tiny:
    return tiny(name)


def _contract(folder: Path, name: str, storage: str = "fp16") -> ir.Model:
    model = _tiny(name)
    precision, inputs = storage, None
    if storage in ("static", "outliers"):
        peaks = {
            key.removesuffix(".weight"): np.where(np.arange(width) % 9, 4.0, 9.0).astype("f4")
            for key, width in _widths(model).items()
        }
        outliers = 6.0 if storage == "outliers" else 0.0
        precision, inputs = "int8", Int8Inputs(peaks, outliers, static=storage == "static")
    write_weights(model.config, model.read, precision, folder, inputs=inputs)
    return build_contract(model.config, Weights(folder), CAPACITY)


def _widths(model: Tiny) -> dict[str, int]:
    shapes = tensor_shapes(model.config)
    return {name: shape[1] for name, shape in shapes.items() if len(shape) == 2}


def _int8_bytes(weights: Weights) -> int:
    return sum(tensor.nbytes for tensor in weights.values() if tensor.dtype == ir.DataType.INT8)


def _error(found: NDArray[Any], expected: NDArray[np.float32]) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())
