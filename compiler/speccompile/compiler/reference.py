"""Run the ONNX contract itself: the oracle that every engine's own graph is checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.contract import WINDOW_KEY
from speccompile.compiler.contract_file import open_contract
from speccompile.plugins.tree import ancestors, depths
from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.engines.onnxruntime_session import load_operators
from speccompile.runtime.engines.ort import ort
from speccompile.runtime.errors import EngineError

__all__ = ["ContractEngine", "read_source"]

_WEIGHTS_FOLDER_OPTION = "session.model_external_initializers_file_folder_path"

# The first would store an fp32 transposed copy of every weight; the second turns the dequantization
# of an int8 one into a form that is several times slower.
_KEEPING_COPIES = ("ConstantFolding", "TransposeOptimizer")


class ContractEngine(Cursor):
    """An `Engine` over the graph of `build_contract`; its dimensions are those of the graph.

    `weights` is the folder of its weights file, by default that of `graph`. It is slow, as nothing
    is bound, the caches are copied and weights converted in every step, and can do what a lowered
    graph cannot: run the rows of a tree. Memory is that of the weights file, mapped, and of a few
    matrices. A decoder with an encoder attends to what `read_source` returned.
    """

    def __init__(
        self,
        graph: Path,
        weights: Path | None = None,
        *,
        threads: int = 0,
        source: Mapping[str, ort.OrtValue] | None = None,
    ) -> None:
        self._session = _open(graph, weights or graph.parent, threads)
        self._source = source or {}
        shapes = {value.name: tuple(value.shape) for value in self._session.get_inputs()}
        self._caches = {
            name: ort.OrtValue.ortvalue_from_numpy(np.zeros((1, *shape[1:]), np.float32))
            for name, shape in shapes.items()
            if name.startswith(("key_cache.", "value_cache."))
        }
        self._inputs = frozenset(shapes)
        self._window = int(self._session.get_modelmeta().custom_metadata_map[WINDOW_KEY])
        super().__init__(int(shapes["key_cache.0"][2]))
        self._positions = np.zeros(self.capacity, np.int64)  # of the row in each slot

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        start, count = self.length, len(tokens)
        order = np.arange(-1, count - 1) if parents is None else np.array(parents, np.int64)
        mask = np.zeros((count, self.capacity), np.bool_)
        mask[:, :start] = True
        mask[:, start : start + count] = ancestors(order)[:, : self.capacity - start]
        rows = self.step_rows(tokens, start + depths(order), mask)
        return rows[-(last or count) :]

    def step_rows(
        self, tokens: Sequence[int], positions: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> Logits:
        """Append `tokens` as rows of any tree and return their logits, [N, V].

        `positions` [N] are those in the row's own sequence; `mask` [N, capacity] is true for the
        cache slots a row sees: row n is in slot `length` + n, and sees itself.
        """
        start = self.reserve(len(tokens))
        self._positions[start : start + len(tokens)] = positions
        near = self._positions > positions[:, None] - self._window
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "position_ids": positions[None],
            "attention_mask": mask[None, None],
            "sliding_mask": (mask & near)[None, None],
            "write_index": np.array([start], np.int64),
        }
        inputs = {
            name: ort.OrtValue.ortvalue_from_numpy(value)
            for name, value in feeds.items()
            if name in self._inputs
        }
        outputs = ["logits", *(f"new_{name}" for name in self._caches)]
        try:
            logits, *caches = self._session.run_with_ort_values(
                outputs, {**inputs, **self._caches, **self._source}
            )
        except Exception as error:
            message = " ".join(str(error).split())
            raise EngineError(f"the contract failed on {len(tokens)} rows: {message}") from error
        self._caches = dict(zip(self._caches, caches, strict=True))
        self.length = start + len(tokens)
        rows: Logits = logits.numpy()[0]
        return rows


def read_source(
    graph: Path, tokens: Sequence[int], weights: Path | None = None, *, threads: int = 0
) -> dict[str, ort.OrtValue]:
    """What the encoder of a contract makes of a source: the graph of `build_encoder`, run."""
    session = _open(graph, weights or graph.parent, threads)
    names = [value.name for value in session.get_outputs()]
    ids = ort.OrtValue.ortvalue_from_numpy(np.array([tokens], np.int64))
    return dict(zip(names, session.run_with_ort_values(names, {"input_ids": ids}), strict=True))


def _open(graph: Path, weights: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Beyond this level an int8 layer is fused into one that rounds its activations to int8, which
    # is what the oracle has to judge.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # What is converted in a step is given back after its use: an arena would keep it.
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry(_WEIGHTS_FOLDER_OPTION, str(weights.absolute()))
    load_operators(options)  # of graphs that are lowered in part
    try:
        model = open_contract(graph, weights)
        _convert_late(model.graph)
        return ort.InferenceSession(
            ir.to_proto(model).SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=list(_KEEPING_COPIES),
        )
    except Exception as error:  # the libraries raise classes of their own, all unrelated
        message = " ".join(str(error).split())
        raise EngineError(f"{graph}: not a contract that can be run: {message}") from error


def _convert_late(graph: ir.Graph) -> None:
    """Have every weight converted just before its use, so that only few are in memory as fp32.

    The session visits a node's producers from the last in file order to the first, so it converts
    all weights at the start of a step, unless those nodes are the first in the file.
    """
    constant: set[ir.Value] = set(graph.initializers.values())
    converting: list[ir.Node] = []
    for node in graph:
        if node.inputs and all(value in constant for value in node.inputs if value):
            converting.append(node)
            constant.update(node.outputs)
    if converting:
        graph.remove(converting)
        graph.insert_before(graph[0], converting)
