"""export: the ONNX contract of one role, over the quantized weights where they lie."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from speccompile.compiler.contract import build_contract
from speccompile.compiler.stages.load import Loaded
from speccompile.compiler.weights import WEIGHTS_FILE, Weights

__all__ = ["CONTRACT_FILE", "run"]

CONTRACT_FILE = "contract.onnx"


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `capacity`, in cache slots. The inputs are a `load` and a `quantize` stage."""
    loaded, quantized = inputs.values()
    # ONNX looks for external data beside the model, and refuses links of either kind.
    shutil.copyfile(quantized / WEIGHTS_FILE, folder / WEIGHTS_FILE)
    model = build_contract(Loaded(loaded).config, Weights(folder), settings["capacity"])
    ir.save(model, folder / CONTRACT_FILE)
