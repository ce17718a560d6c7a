"""export: the ONNX contract of one role, over the quantized weights where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from speccompile.compiler.contract import KEEP_FP32_KEY, build_contract, build_encoder
from speccompile.compiler.stages.check import Checked
from speccompile.compiler.stages.reference import read_overflows
from speccompile.compiler.weights import Weights

__all__ = ["CONTRACT_FILE", "ENCODER_FILE", "run"]

CONTRACT_FILE = "contract.onnx"
ENCODER_FILE = "encoder.onnx"
"""Of a model that has one."""


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """The inputs are a `load`, the `check`, a `quantize` and a `reference` stage.

    The weights stay where they are: `open_contract` is told where. Nodes whose output fp16 cannot
    hold are marked: arithmetic in fp16 has to leave them in fp32.
    """
    loaded, checked, quantized, reference = inputs.values()
    model = Checked(loaded, checked)
    contract = build_contract(model.config, Weights(quantized), model.capacity)
    overflows = read_overflows(reference)
    for node in contract.graph:
        if node.name in overflows:
            node.metadata_props[KEEP_FP32_KEY] = f"{overflows[node.name]:g}"
    ir.save(contract, folder / CONTRACT_FILE)
    if model.config.encoder:
        ir.save(build_encoder(model.config, Weights(quantized)), folder / ENCODER_FILE)
