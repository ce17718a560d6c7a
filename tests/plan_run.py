"""A graph lowered for TensorRT, under ONNX Runtime, which runs the bodies of its operators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from speccompile.compiler.verify_functions import attach
from speccompile.plugins.schema import TREE_MASK, Rule, spec_verify

__all__ = ["PlanRun", "chain"]


class PlanRun:
    """`batch` sequences, each of its own length, in caches that a step returns."""

    def __init__(self, model: ir.Model, folder: Path, rule: Rule, *, batch: int = 1) -> None:
        """`model` is changed to what ONNX Runtime wants; `folder` gets its files."""
        for node in model.graph:
            node.attributes.pop("TRT_decomposable", None)
        _round_everywhere(model.graph)
        attach(model, TREE_MASK)
        attach(model, spec_verify(rule), rule)
        path = folder / "plan.onnx"
        ir.save(model, path, external_data="plan.onnx.data")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        # Its rewrites move DequantizeLinear and forget the type that it gives; and drop Identity.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name: value for value in self._session.get_inputs()}
        self._outputs = [value.name for value in self._session.get_outputs()]
        self._caches: dict[str, NDArray[np.generic]] = {
            name: np.zeros((batch, *value.shape[1:]), np.float16)
            for name, value in self._inputs.items()
            if "cache" in name
        }
        self.lengths = np.zeros(batch, np.int64)

    def step(
        self,
        tokens: NDArray[np.int64],
        parents: NDArray[np.int64] | None = None,
        **others: NDArray[np.generic],
    ) -> Mapping[str, NDArray[np.generic]]:
        """All outputs but the caches, of `tokens` [B, N] behind what is in the caches; `lengths` is
        the caller's to change. Greedy, and all of it given, unless `others` say otherwise."""
        batch, nodes = tokens.shape
        vocabulary = self._session.get_outputs()[0].shape[2]
        known: dict[str, NDArray[np.generic]] = {
            "input_ids": tokens,
            "parents": chain(batch, nodes) if parents is None else parents,
            "lengths": self.lengths,
            "given": np.full(batch, nodes),
            "uniforms": np.zeros((batch, nodes, 2), np.int64),
            "sampling": np.tile(np.array([0.0, 0.0, 1.0, 0.0], np.float32), (batch, 1)),
            "draft_logits": np.zeros((batch, nodes, vocabulary), np.float16),
            **self._caches,
            **others,
        }
        found = self._session.run(self._outputs, {name: known[name] for name in self._inputs})
        outputs = {
            name: np.asarray(value) for name, value in zip(self._outputs, found, strict=True)
        }
        self._caches = {name: outputs.pop(f"new_{name}") for name in self._caches}
        return outputs


def chain(batch: int, nodes: int) -> NDArray[np.int64]:
    """The parents [B, N] of rows that follow each other."""
    return np.tile(np.arange(-1, nodes - 1), (batch, 1))


def _round_everywhere(graph: ir.Graph) -> None:
    """ONNX Runtime has few kernels for fp16 on CPU: it computes whole stretches in fp32, where
    nothing is rounded and nothing overflows. An Identity, which it has, ends each stretch."""
    for node in list(graph):
        for value in node.outputs:
            if value.dtype == ir.DataType.FLOAT16 and not value.is_graph_output():
                uses = list(value.uses())
                rounded = ir.node("Identity", [value], name=f"{value.name}/rounded")
                rounded.outputs[0].type = value.type
                graph.insert_after(node, rounded)
                for use in uses:
                    use.node.replace_input_with(use.idx, rounded.outputs[0])
