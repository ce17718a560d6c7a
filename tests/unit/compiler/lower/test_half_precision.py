from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from speccompile.compiler.contract import KEEP_FP32_KEY
from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.lower.backends import plan_lowering
from speccompile.compiler.lower.half_precision import HALF_PRECISION
from speccompile.compiler.lower.int8_for_tensorrt import UNROUNDED_INPUTS
from speccompile.compiler.lower.passes import LoweringError, run_passes
from speccompile.compiler.quantize import Int8Inputs, write_weights
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.tensorrt.rehearsal import PlanRun
from tests.unit.compiler.lower.graphs import (
    CAPACITY,
    CONFIG,
    STORAGES,
    TOKENS,
    contract,
    logits,
    write,
)

HALF, SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT
LAYER = "/model/layers.0/mlp"
MARKS = {f"{LAYER}/up_proj": 9e5, f"{LAYER}/Mul": 9e5}
CONFIGS = {
    "llama": CONFIG,
    "gpt2": replace(
        CONFIG,
        norm="layer",
        activation="gelu_tanh",
        gated=False,
        output_bias=True,
        mlp_bias=True,
        learned_positions=CAPACITY,
    ),
    "gemma": replace(
        CONFIG,
        norm_after=True,
        query_key_norm="head",
        embedding_scale=8.0,
        attention_softcap=2.0,
        logit_softcap=5.0,
    ),
}


@pytest.mark.parametrize("storage", [name for name in STORAGES if "static" not in name])
@pytest.mark.parametrize("name", CONFIGS)
def test_values_stay_within_the_precision_of_fp16(tmp_path: Path, name: str, storage: str) -> None:
    config = CONFIGS[name]
    write(tmp_path, STORAGES[storage], config)
    found, expected = _both(tmp_path, config)
    assert _error(found, expected) <= 1e-2
    assert _error(found, expected) > 1e-5  # the arithmetic is not that of the contract


@pytest.mark.parametrize("storage", ["static", "static-outliers"])
@pytest.mark.parametrize("name", CONFIGS)
def test_inputs_round_to_nearly_the_same_codes(tmp_path: Path, name: str, storage: str) -> None:
    """Some go to the code beside: that costs less than the rounding to codes does."""
    config = CONFIGS[name]
    write(tmp_path, STORAGES[storage], config)
    found, expected = _both(tmp_path, config)
    unrounded = contract(tmp_path, config)
    run_passes(unrounded, [UNROUNDED_INPUTS])
    rounding = logits(unrounded, tmp_path) - expected
    assert np.square(found - expected).mean() < np.square(rounding).mean()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_node_computes_in_one_type(tmp_path: Path, name: str) -> None:
    """And all inputs of it are in that type: what TensorRT demands, strongly typed."""
    write(tmp_path, STORAGES["fp16"], CONFIGS[name])
    model = contract(tmp_path, CONFIGS[name])
    names = {node.name for node in model.graph}
    run_passes(model, [HALF_PRECISION])
    for node in model.graph:
        types = {value.dtype for value in (*node.inputs, *node.outputs) if value}
        floats = types & {HALF, SINGLE, ir.DataType.BFLOAT16}
        assert len(floats) == (2 if node.op_type == "Cast" else 1 if floats else 0), node.name
        in_single = node.op_type in ("Tanh", "Softmax")
        assert not in_single or floats == {SINGLE}
    left = {node.name for node in model.graph}
    converted = {name for name in names - left if not str(name).endswith("/Cast")}
    assert not converted
    assert {str(name).rpartition("/")[2] for name in left - names} <= {"fp16", "fp32"}
    caches = [value for value in (*model.graph.inputs, *model.graph.outputs) if value.dtype == HALF]
    assert len(caches) == 9  # and the logits


def test_a_model_that_fp16_can_hold_has_no_node_in_fp32(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"])
    assert run_passes(contract(tmp_path), [HALF_PRECISION]) == {"half_precision": 0}


@pytest.mark.parametrize("storage", ["fp16", "int8", "outliers", "static", "static-outliers"])
def test_what_fp16_cannot_hold_is_computed_in_fp32(tmp_path: Path, storage: str) -> None:
    _write_large(tmp_path, storage)
    found, expected = _both(tmp_path, CONFIG, MARKS)
    assert _error(found, expected) <= (0.2 if "static" in storage else 1e-2)
    if "static" not in storage:  # there, codes end at 127
        lost, _ = _both(tmp_path, CONFIG, {})
        assert not np.isfinite(lost).all()


def test_only_those_that_read_it_are_fp32_too(tmp_path: Path) -> None:
    _write_large(tmp_path, "fp16")
    model = contract(tmp_path)
    _mark(model, MARKS)
    run_passes(model, [HALF_PRECISION])
    types = {str(node.name): node.outputs[0].dtype for node in model.graph}
    single = {name for name, dtype in types.items() if dtype == SINGLE}
    layer = {f"{LAYER}/{part}" for part in ("up_proj", "Mul", "down_proj")}
    weights = {f"{LAYER}/{part}" for part in ("up_proj/Cast", "down_proj/Cast")}
    weights |= {f"{LAYER}/{part}" for part in ("up_proj/weight", "down_proj/weight")}
    inputs = {"/model/layers.0/post_attention_layernorm/fp32", f"{LAYER}/act/fp32"}
    assert single == layer | weights | inputs
    assert types[f"{LAYER}/down_proj/fp16"] == HALF


def test_a_mark_holds_for_the_sum_with_outliers(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["outliers"])
    model = contract(tmp_path)
    _mark(model, {f"{LAYER}/up_proj": 9e5})
    run_passes(model, [HALF_PRECISION])
    types = {str(node.name): node.outputs[0].dtype for node in model.graph}
    assert types[f"{LAYER}/up_proj/with_outliers"] == SINGLE
    assert types[f"{LAYER}/Mul"] == SINGLE
    assert types[f"{LAYER}/gate_proj/with_outliers"] == HALF


def test_large_keys_are_refused(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"])
    model = contract(tmp_path)
    _mark(model, {"/model/layers.1/self_attn/k_proj/bias": 9e5})
    expected = r"\Anew_key_cache.1: rows of /model/layers.1/self_attn/k_rope pass .* leave TensorRT"
    with pytest.raises(LoweringError, match=expected):
        run_passes(model, [HALF_PRECISION])


def test_a_large_query_is_attended_in_fp32(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"])
    model = contract(tmp_path)
    _mark(model, {"/model/layers.1/self_attn/q_proj/bias": 9e5})
    run_passes(model, [HALF_PRECISION])
    types = {str(node.name): node.outputs[0].dtype for node in model.graph}
    assert types["/model/layers.1/self_attn/Attention"] == SINGLE
    assert types["new_key_cache.1/fp32"] == SINGLE
    assert types["/model/layers.1/self_attn/o_proj"] == HALF


def test_matrices_stored_in_fp32_are_multiplied_in_it(tmp_path: Path) -> None:
    layers = {"*": "fp16", "*.down_proj": "fp32", "model.embed_tokens": "fp32"}
    shapes, random = tensor_shapes(CONFIG), np.random.default_rng(5)
    write_weights(
        CONFIG,
        lambda name: random.normal(0, 0.3, shapes[name]).astype(np.float32),
        "mixed",
        tmp_path,
        layers=layers,
    )
    found, expected = _both(tmp_path, CONFIG)
    assert _error(found, expected) <= 1e-2
    model = contract(tmp_path)
    run_passes(model, [HALF_PRECISION])
    products = {str(n.name): n.outputs[0].dtype for n in model.graph if n.op_type == "MatMul"}
    single = {name for name, dtype in products.items() if dtype == SINGLE}
    assert single == {f"/model/layers.{i}/mlp/down_proj" for i in range(2)} | {"/lm_head/MatMul"}
    # One table for both its uses.
    table = model.graph.initializers["model.embed_tokens.weight"]
    assert {node.op_type for node in table.consumers()} == {"Gather", "Transpose"}


def test_a_value_that_fp16_cannot_hold_is_no_silent_infinity(tmp_path: Path) -> None:
    shapes = tensor_shapes(CONFIG)

    def read(name: str) -> NDArray[np.float32]:
        return np.full(shapes[name], 1e5 if name.endswith("0.mlp.up_proj.weight") else 0.1, "f4")

    write_weights(CONFIG, read, "bf16", tmp_path)
    model = contract(tmp_path)
    run_passes(model, [HALF_PRECISION])
    with pytest.raises(LoweringError, match=r"0\.mlp\.up_proj\.weight holds values .* as fp16"):
        ir.save(model, tmp_path / "model.onnx", external_data="data")


def test_a_norm_that_fp16_cannot_hold_is_fp32(tmp_path: Path) -> None:
    name = "model.layers.1.input_layernorm.weight"
    shapes = tensor_shapes(CONFIG)
    write_weights(
        CONFIG, lambda n: np.full(shapes[n], 1e5 if n == name else 0.1, "f4"), "fp16", tmp_path
    )
    model = contract(tmp_path)
    run_passes(model, [HALF_PRECISION])
    types = {str(node.name): node.outputs[0].dtype for node in model.graph}
    assert types["/model/layers.1/input_layernorm"] == SINGLE
    assert types["/model/layers.0/input_layernorm"] == HALF


def test_an_unknown_operator_is_refused(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"])
    model = contract(tmp_path)
    next(node for node in model.graph if node.op_type == "Swish").op_type = "Mish"
    with pytest.raises(LoweringError, match=r"\A/model/layers.0/mlp/act: no rule says .* Mish"):
        run_passes(model, [HALF_PRECISION])


def _write_large(folder: Path, storage: str) -> None:
    """`MARKS` say what is too large: one channel, which the next layer makes small again."""
    chosen, shapes, random = STORAGES[storage], tensor_shapes(CONFIG), np.random.default_rng(5)
    peaks: dict[str, NDArray[np.float32]] = {}

    def read(name: str) -> NDArray[np.float32]:
        values = random.normal(0, 0.3, shapes[name]).astype(np.float32)
        if name.endswith("0.mlp.up_proj.weight"):
            values[7] *= 1e5
        if name.endswith("0.mlp.down_proj.weight"):
            values[:, 7] /= 1e5
        return values

    for name, shape in shapes.items():
        if len(shape) == 2:
            every = np.where(np.arange(shape[1]) % 5, 4.0, 9.0).astype(np.float32)
            if name.endswith("0.mlp.down_proj.weight"):
                every[7] = MARKS[f"{LAYER}/Mul"]
            peaks[name.removesuffix(".weight")] = every
    outliers = 6.0 if chosen.outliers else 0.0
    inputs = Int8Inputs(peaks, outliers, chosen.static)
    is_int8 = chosen.precision == "int8"
    write_weights(CONFIG, read, chosen.precision, folder, inputs=inputs if is_int8 else None)


def _both(
    folder: Path, config: DecoderConfig, marks: Mapping[str, float] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Logits [N, V] of the plan, and of the contract."""
    path = folder / "contract.onnx"
    ir.save(contract(folder, config), path)
    expected = ContractEngine(path, threads=1).step(TOKENS)
    model = contract(folder, config)
    _mark(model, marks or {})
    run_passes(model, plan_lowering("tensorrt", "greedy", CAPACITY))
    found = PlanRun(model, folder, "greedy").step(np.array([TOKENS]))["logits"]
    return found[0].astype(np.float32), expected


def _mark(model: ir.Model, marks: Mapping[str, float]) -> None:
    nodes = {str(node.name): node for node in model.graph}
    for name, peak in marks.items():
        nodes[name].metadata_props[KEEP_FP32_KEY] = f"{peak:g}"


def _error(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())
