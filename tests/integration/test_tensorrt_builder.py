"""Plans of small graphs by the real TensorRT-RTX, which needs no GPU to build them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from speccompile.compiler.tensorrt.builder import Profile
from speccompile.compiler.verify_functions import attach
from speccompile.plugins.schema import TREE_MASK, spec_verify
from speccompile.runtime.errors import EngineError
from tests.plans import ATTENTION, HEAD, NEEDS_RTX, ROUND, build, model

pytestmark = NEEDS_RTX

_AGAIN = """
import sys
from dataclasses import replace
from pathlib import Path
import onnx
from tests.plans import build
print(replace(build(onnx.load(sys.argv[1]), Path(sys.argv[2])), seconds=0.0))
"""


@pytest.mark.parametrize("architecture", ["sm80", "sm86", "sm89", "sm120"])
def test_a_round_becomes_one_plan(architecture: str, tmp_path: Path) -> None:
    report = build(model(ROUND, **HEAD), tmp_path, architecture=architecture)

    network = report.network
    assert (tmp_path / "step.plan").stat().st_size == report.bytes > 0
    assert report.architecture == architecture
    assert report.library == "tensorrt_rtx"
    assert network.plugins == ("tree", "verify")
    assert network.layers["KV_CACHE_UPDATE"] == 2
    assert network.layers["ATTENTION_INPUT"] == 1
    assert network.caches == {"new_key_cache": "key_cache", "new_value_cache": "value_cache"}
    by_name = {tensor.name: tensor for tensor in (*network.inputs, *network.outputs)}
    assert by_name["uniforms"].dtype == "int64"
    assert by_name["uniforms"].shape == ("B", "N", 2)
    assert by_name["logits"].dtype == "float16"
    assert by_name["logits"].shape == (-1, -1, 32)
    assert by_name["count"].dtype == "int64"


def test_the_library_asks_the_plugins(tmp_path: Path) -> None:
    report = build(model(ROUND, **HEAD), tmp_path)

    for operator in ("TreeMask", "SpecVerify"):
        for callback in ("create_plugin", "configure_plugin", "get_fields_to_serialize"):
            assert report.plugin_calls[f"{operator}.{callback}"] > 0
    assert "SpecVerify.enqueue" not in report.plugin_calls


def test_every_plan_keeps_nans_and_can_be_captured(tmp_path: Path) -> None:
    report = build(model(ATTENTION), tmp_path)

    assert set(report.flags) == {"STRICT_NANS", "REQUIRE_USER_ALLOCATION"}


def test_another_process_builds_the_same(tmp_path: Path) -> None:
    """The plan's size has to tell: TensorRT-RTX does not keep to one order of what is in it."""
    report = build(model(ROUND, **HEAD), tmp_path)
    other = tmp_path / "other"
    other.mkdir()

    command = [sys.executable, "-c", _AGAIN, str(tmp_path / "step.onnx"), str(other)]
    root = Path(__file__).parents[2]
    again = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=root, text=True).stdout

    assert again.strip() == repr(replace(report, seconds=0.0))
    assert (other / "step.plan").stat().st_size == report.bytes


def test_a_plan_has_several_profiles(tmp_path: Path) -> None:
    profiles = tuple(
        Profile((batch, batch, batch), (rows, rows, rows))
        for batch, rows in ((1, 1), (1, 5), (4, 5), (1, 64))
    )

    report = build(model(ROUND, **HEAD), tmp_path, profiles=profiles)

    assert report.profiles == profiles
    assert report.plugin_calls["SpecVerify.configure_plugin"] == len(profiles)


def test_int8_weights_stay_int8(tmp_path: Path) -> None:
    weights = {
        "hidden_shape": HEAD["hidden_shape"],
        "quantized": np.ones((256, 32), np.int8),
        "scale": np.full(32, 0.5, np.float16),
    }
    text = ROUND.replace(
        "[head]", "[scaled] head = DequantizeLinear <axis = 1> (quantized, scale)\n    [head]"
    )

    report = build(model(text, **weights), tmp_path)

    assert report.network.int8_weight_bytes == 256 * 32


def test_weights_may_lie_beside_the_graph(tmp_path: Path) -> None:
    made = model(ROUND, **HEAD)
    graph = tmp_path / "beside.onnx"
    onnx.save(made, graph, save_as_external_data=True, location="weights", size_threshold=100)
    beside = onnx.load(graph, load_external_data=False)

    assert build(beside, tmp_path).bytes > 0


def test_the_plugin_goes_before_the_function_body(tmp_path: Path) -> None:
    report = build(_with_bodies(ROUND), tmp_path)

    assert report.network.plugins == ("tree", "verify")


@pytest.mark.parametrize(
    ("node", "attributes"),
    [
        ("tree", 'window = 0, plugin_namespace = "speccompile", plugin_version = "1"'),
        ("verify", 'rule = "traversal", plugin_namespace = "speccompile", plugin_version = "1"'),
    ],
)
def test_a_function_body_in_place_of_the_plugin_is_refused(
    node: str, attributes: str, tmp_path: Path
) -> None:
    """TensorRT builds the body of TreeMask without a word, and cannot read that of SpecVerify."""
    text = ROUND.replace(attributes, attributes.partition(",")[0])

    with pytest.raises(EngineError, match=f"node '{node}' .*: TensorRT took its function body"):
        build(_with_bodies(text, declared=False), tmp_path)


def _with_bodies(text: str, *, declared: bool = True) -> onnx.ModelProto:
    """The round with the operators' functions, whose plugin attributes may be `declared`."""
    made = ir.serde.deserialize_model(model(text, **HEAD))
    attach(made, TREE_MASK)
    attach(made, spec_verify("traversal"), "traversal")
    if not declared:
        for function in made.functions.values():
            for name in ("plugin_namespace", "plugin_version"):
                function.attributes.pop(name, None)
    return ir.serde.serialize_model(made)
