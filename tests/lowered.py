"""A contract lowered for an engine of the CPU, and what a manifest says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from speccompile.compiler.contract import build_contract
from speccompile.compiler.decoder import DecoderConfig, of_layers
from speccompile.compiler.lower.backends import lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.weights import Weights
from speccompile.runtime.manifest import EngineInfo
from tests.families import Tiny

__all__ = ["engine_info", "lowered", "sharing_engine", "tiny_engine"]

Backend = Literal["openvino", "onnxruntime"]


def tiny_engine(
    model: Tiny,
    backend: Backend,
    folder: Path,
    *,
    capacity: int,
    precision: str = "fp32",
    min_rows: int = 1,
) -> tuple[EngineInfo, Path]:
    """What `open_engine` takes to run a tiny model with weights of this precision."""
    write_weights(model.config, model.read, precision, folder)
    graph = build_contract(model.config, Weights(folder), capacity)
    return lowered(graph, model.config, backend, folder, capacity, min_rows)


def sharing_engine(
    model: Tiny, layers: Sequence[int], backend: Backend, folder: Path, *, capacity: int
) -> tuple[EngineInfo, Path]:
    """What `open_engine` takes to run some layers of a tiny model in its cache."""
    kinds = tuple(model.config.layer_kinds[layer] for layer in layers)
    config = replace(model.config, layer_kinds=kinds)
    write_weights(config, lambda name: model.read(of_layers(name, layers)), "fp32", folder)
    graph = build_contract(config, Weights(folder), capacity)
    info, path = lowered(graph, config, backend, folder, capacity, layers=layers)
    return replace(info, role="draft", shares_cache=True), path


def lowered(
    graph: ir.Model,
    config: DecoderConfig,
    backend: Backend,
    folder: Path,
    capacity: int,
    min_rows: int = 1,
    layers: Sequence[int] = (),
) -> tuple[EngineInfo, Path]:
    """Lower a contract in place and keep it in a folder."""
    run_passes(graph, lowering(backend, layers=layers))
    ir.save(graph, folder / "model.onnx", external_data="model.onnx.data")
    return engine_info(config, backend, capacity, min_rows), folder / "model.onnx"


def engine_info(
    config: DecoderConfig, backend: Backend, capacity: int, min_rows: int = 1
) -> EngineInfo:
    return EngineInfo(
        role="target",
        backend=backend,
        graph="model.onnx",
        precision="fp32",
        arithmetic="fp32",
        layers=config.layers,
        kv_heads=config.kv_heads,
        heads=config.heads,
        head_dim=config.head_dim,
        capacity=capacity,
        vocab_size=config.vocab_size,
        min_rows=min_rows,
        shares_cache=False,
    )
