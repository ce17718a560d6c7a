"""A graph lowered for TensorRT, under ONNX Runtime, which runs the bodies of its operators.

This is how a plan is proved where there is no GPU. Every value in fp16 is really rounded, so what
remains are the library's own kernels, and the order in which they sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.verify_functions import attach
from speccompile.plugins.schema import TREE_MASK, Rule, spec_verify
from speccompile.runtime.engines.ort import ort
from speccompile.runtime.errors import EngineError

__all__ = ["PlanRun", "chain", "make_runnable"]

_WEIGHTS_FOLDER_OPTION = "session.model_external_initializers_file_folder_path"


class PlanRun:
    """`batch` sequences, each of its own length, in caches that a step returns."""

    def __init__(
        self, model: ir.Model, folder: Path, rule: Rule, *, batch: int = 1, threads: int = 1
    ) -> None:
        """`model`, which is made runnable, may have weights in files of `folder`.

        Raises EngineError for a graph that ONNX Runtime does not take.
        """
        make_runnable(model, rule)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        options.add_session_config_entry(_WEIGHTS_FOLDER_OPTION, str(folder.absolute()))
        # Its rewrites move DequantizeLinear and forget the type that it gives; and drop Identity.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # What is converted in a step is given back after its use: an arena would keep it.
        options.enable_cpu_mem_arena = False
        try:
            graph = ir.to_proto(model).SerializeToString()
            self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the libraries raise classes of their own, all unrelated
            message = " ".join(str(error).split())
            raise EngineError(f"{folder}: not a graph that can be rehearsed: {message}") from error
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


def make_runnable(model: ir.Model, rule: Rule) -> None:
    """Change a lowered graph, which judges by `rule`, to what ONNX Runtime computes as it says."""
    for node in model.graph:
        node.attributes.pop("TRT_decomposable", None)
    _round_everywhere(model.graph)
    attach(model, TREE_MASK)
    attach(model, spec_verify(rule), rule)


def _round_everywhere(graph: ir.Graph) -> None:
    """Have whatever is read in fp16 rounded to it.

    ONNX Runtime has few kernels for fp16 on CPU: it computes whole stretches in fp32, where nothing
    is rounded and nothing overflows. An Identity, which it has, ends each stretch; there are two,
    because one alone between nodes in fp32 is turned to fp32 as well. What a graph puts out is
    rounded anyway, but its readers inside would not get that.
    """
    for node in list(graph):
        for value in node.outputs:
            uses = list(value.uses())
            if value.dtype != ir.DataType.FLOAT16 or not uses:
                continue
            rounded, place = value, node
            for step in ("half", "rounded"):
                identity = ir.node("Identity", [rounded], name=f"{value.name}/{step}")
                identity.outputs[0].type = value.type
                graph.insert_after(place, identity)
                rounded, place = identity.outputs[0], identity
            for use in uses:
                use.node.replace_input_with(use.idx, rounded)
