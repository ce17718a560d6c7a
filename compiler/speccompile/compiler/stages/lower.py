"""lower: rewrite the contract into the graph that one engine runs best."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.contract_file import open_contract
from speccompile.compiler.lower.backends import encoder_lowering, lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.stages.export import CONTRACT_FILE, ENCODER_FILE
from speccompile.compiler.stages.vocabulary import TOKEN_IDS_FILE

__all__ = [
    "ENCODER_WEIGHTS_FILE",
    "GRAPH_FILE",
    "GRAPH_WEIGHTS_FILE",
    "read_rewrites",
    "read_token_ids",
    "run",
    "write_rewrites",
]

GRAPH_FILE = "model.onnx"
GRAPH_WEIGHTS_FILE = "model.onnx.data"
ENCODER_WEIGHTS_FILE = "encoder.onnx.data"
_REWRITES = "passes.json"


def read_rewrites(folder: Path) -> dict[str, int]:
    """How often each pass rewrote the graph, in the order that they ran."""
    content: dict[str, int] = json.loads((folder / _REWRITES).read_text(encoding="utf-8"))
    return content


def write_rewrites(folder: Path, counts: Mapping[str, int]) -> None:
    (folder / _REWRITES).write_text(json.dumps(counts), encoding="utf-8")


def read_token_ids(folder: Path) -> NDArray[np.int32] | None:
    """The tokens that the graph's head computes, rising; None where it computes all."""
    path = folder / TOKEN_IDS_FILE
    return np.fromfile(path, "<i4").astype(np.int32) if path.exists() else None


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `backend`, and the target's `layers` that a shared draft is made of,
    else none. The inputs are an `export` and a `quantize` stage, and the
    `vocabulary` of a draft that is to have one of its own."""
    exported, quantized, *vocabulary = inputs.values()
    for chosen in vocabulary:
        shutil.copyfile(chosen / TOKEN_IDS_FILE, folder / TOKEN_IDS_FILE)
    model = open_contract(exported / CONTRACT_FILE, quantized)
    token_ids = read_token_ids(folder)
    passes = lowering(settings["backend"], token_ids, settings["layers"])
    counts = run_passes(model, passes)
    ir.save(model, folder / GRAPH_FILE, external_data=GRAPH_WEIGHTS_FILE)
    if (exported / ENCODER_FILE).exists():
        encoder = open_contract(exported / ENCODER_FILE, quantized)
        run_passes(encoder, encoder_lowering())
        ir.save(encoder, folder / ENCODER_FILE, external_data=ENCODER_WEIGHTS_FILE)
    write_rewrites(folder, counts)
