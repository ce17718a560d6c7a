"""A model that fp16 cannot hold: what is too large is named, marked and computed in fp32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.build import Built
from speccompile.compiler.contract import KEEP_FP32_KEY
from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.passes import run_passes
from speccompile.runtime.runner import Runner
from tests.building import Builder, save_model
from tests.families import tiny

LIMIT = 65_504
TOKENS = list(range(40, 100))
# One channel of each layer: activations that fp16 cannot hold, and in layer 1 weights too.
FACTORS = {0: 1e5, 1: 4e5}


@pytest.fixture(scope="module")
def model() -> Any:  # noqa: ANN401
    import torch

    model = tiny("llama", max_position_embeddings=256, bos_token_id=None, eos_token_id=0).model
    with torch.no_grad():
        for index, factor in FACTORS.items():
            mlp = model.model.layers[index].mlp
            mlp.up_proj.weight[7] *= factor
            mlp.down_proj.weight[:, 7] /= factor
    return model


@pytest.fixture(scope="module")
def built(
    model: Any,  # noqa: ANN401
    build_of: Builder,
    model_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Built:
    folder = save_model(model, tmp_path_factory.mktemp("large"), model_folder)
    return build_of(target={"source": folder}, artifact={"keep_onnx": True})


def test_the_report_names_what_is_too_large(built: Built) -> None:
    overflows = built.report["fp16_overflows"]["target"]
    assert overflows.keys() == {
        f"/model/layers.{layer}/mlp/{node}" for layer in FACTORS for node in ("up_proj", "Mul")
    }
    assert min(overflows.values()) > LIMIT
    kept = built.report["weights"]["target"]["kept_fp32"]
    assert kept.keys() == {"model.layers.1.mlp.up_proj.weight"}
    assert kept["model.layers.1.mlp.up_proj.weight"] > LIMIT


def test_the_contract_and_what_is_fused_of_it_are_marked(built: Built) -> None:
    overflows = built.report["fp16_overflows"]["target"]
    contract = ir.load(built.path / "model/target/contract.onnx")
    marks = _marks(contract)
    assert marks == {name: pytest.approx(peak, rel=1e-4) for name, peak in overflows.items()}
    run_passes(contract, [FUSE_PROJECTIONS])
    # The gate of layer 1 is fp16 and its up projection is not: these stay two.
    both, up = "/model/layers.0/mlp/up_proj+gate_proj", "/model/layers.0/mlp/up_proj"
    assert _marks(contract) == {both: marks.pop(up), **marks}


def test_both_engines_compute_it_right(built: Built, model: Any) -> None:  # noqa: ANN401
    import torch

    for entry in built.report["candidates"]:
        assert entry["accuracy"]["relative_error"] < 1e-4
        assert 0 <= entry["quality"]["kl_divergence"] < 1e-3
    rows = Runner.open(built.path).engine("target").step(TOKENS)
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS])).logits[0].numpy()
    assert np.isfinite(rows).all()
    # fp16 has 11 bits, of which the small weights of layer 1 keep six.
    assert np.abs(rows - expected).max() <= 2e-2 * np.abs(expected).max()


def _marks(model: ir.Model) -> dict[str, float]:
    return {
        str(node.name): float(mark)
        for node in model.graph
        if (mark := node.metadata_props.get(KEEP_FP32_KEY))
    }
