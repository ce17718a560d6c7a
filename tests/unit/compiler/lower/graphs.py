"""Contracts to lower, of every way to store weights, and what the tests of passes read off them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from speccompile.compiler.contract import build_contract
from speccompile.compiler.decoder import DecoderConfig, LayerKind, tensor_shapes
from speccompile.compiler.lower.linear import stored_array
from speccompile.compiler.quantize import Int8Inputs, write_weights
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.rope import plain_rope
from speccompile.compiler.weights import Weights
from speccompile.runtime.engine import Logits

__all__ = [
    "CAPACITY",
    "CONFIG",
    "STORAGES",
    "TOKENS",
    "Storage",
    "contract",
    "logits",
    "node_of",
    "operators",
    "stored_bytes",
    "write",
]

CAPACITY = 32
TOKENS = [int(token) for token in np.random.default_rng(2).integers(0, 40, 20)]
CONFIG = DecoderConfig(
    vocab_size=40,
    hidden_size=64,
    intermediate_size=160,
    heads=4,
    kv_heads=2,
    head_dim=16,
    context_length=CAPACITY,
    kinds=(LayerKind(plain_rope(10_000.0, 16)),),
    layer_kinds=(0, 0),
    tied_embeddings=True,
    norm_epsilon=1e-5,
    attention_scale=0.25,
    qkv_bias=True,
)


@dataclass(frozen=True)
class Storage:
    """How weights are stored: a precision and, of int8 layers, what is made of their inputs."""

    precision: str
    layers: Mapping[str, str] | None = None
    outliers: bool = False
    static: bool = False


STORAGES: Mapping[str, Storage] = {
    "fp32": Storage("fp32"),
    "fp16": Storage("fp16"),
    "bf16": Storage("bf16"),
    "int8": Storage("int8"),
    "mixed": Storage("mixed", {"*": "int8", "*.q_proj": "fp16", "*.up_proj": "fp16"}),
    "outliers": Storage("int8", outliers=True),
    "static": Storage("int8", static=True),
    "static-outliers": Storage("int8", outliers=True, static=True),
}


def write(folder: Path, storage: Storage, config: DecoderConfig = CONFIG) -> Weights:
    """Random weights in `folder`; of outliers, every fifth column but in the mlp of layer 1, where
    gate and up have others than each other."""
    random, shapes = np.random.default_rng(5), tensor_shapes(config)
    peaks: dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]] = {}
    for name, shape in shapes.items():
        if len(shape) == 2:
            linear = name.removesuffix(".weight")
            every = 7 if linear == "model.layers.1.mlp.up_proj" else 5
            peaks[linear] = np.where(np.arange(shape[1]) % every, 4.0, 9.0).astype(np.float32)
    is_int8 = storage.outliers or storage.static
    inputs = Int8Inputs(peaks, 6.0 if storage.outliers else 0.0, storage.static)
    write_weights(
        config,
        lambda name: random.normal(0, 0.3, shapes[name]).astype(np.float32),
        storage.precision,
        folder,
        layers=storage.layers,
        inputs=inputs if is_int8 else None,
    )
    return Weights(folder)


def contract(folder: Path, config: DecoderConfig = CONFIG) -> ir.Model:
    """The contract over the weights in `folder`, a new one each time."""
    return build_contract(config, Weights(folder), CAPACITY)


def logits(model: ir.Model, folder: Path) -> Logits:
    """Those of `TOKENS`, of a graph that still has the contract's interface."""
    path = folder / "run.onnx"
    ir.save(model, path, external_data="run.onnx.data")
    return ContractEngine(path, threads=1).step(TOKENS).copy()


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def stored_bytes(model: ir.Model) -> int:
    """Of all matrices, their scales and biases, which passes may only move."""
    values = model.graph.initializers.values()
    parts = (".weight", ".scale", ".bias", ".outlier_values")
    return sum(stored_array(value).nbytes for value in values if str(value.name).endswith(parts))


def node_of(weight: str, config: DecoderConfig) -> str:
    """The path of the MatMul with `weight`."""
    if weight == ("model.embed_tokens.weight" if config.tied_embeddings else "lm_head.weight"):
        return "/lm_head/MatMul"
    parts = weight.removesuffix(".weight").split(".")
    return f"/model/layers.{parts[2]}/{parts[3]}/{parts[4]}"
