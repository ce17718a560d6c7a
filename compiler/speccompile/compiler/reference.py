"""Run the ONNX contract itself: the oracle that every engine's own graph is checked against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.errors import EngineError

__all__ = ["ContractEngine"]


class ContractEngine(Cursor):
    """An `Engine` over the graph of `build_contract`; its dimensions are those of the graph.

    It is slow, as nothing is bound and the caches are copied, and can do what a lowered graph
    cannot: run the rows of a tree.
    """

    def __init__(self, graph: Path, *, threads: int = 0) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        # Beyond this level an int8 layer is fused into one that rounds its activations to int8,
        # which is what the oracle has to judge.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        try:
            self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library raises classes of its own, all unrelated
            message = " ".join(str(error).split())
            raise EngineError(f"{graph}: not a contract that can be run: {message}") from error
        shapes = {value.name: tuple(value.shape) for value in self._session.get_inputs()}
        self._caches = {
            name: ort.OrtValue.ortvalue_from_numpy(np.zeros((1, *shape[1:]), np.float32))
            for name, shape in shapes.items()
            if name.startswith(("key_cache.", "value_cache."))
        }
        super().__init__(int(shapes["attention_mask"][3]))

    def step(self, tokens: Sequence[int]) -> Logits:
        slots = self.length + np.arange(len(tokens))
        return self.step_rows(tokens, slots, np.arange(self.capacity) <= slots[:, None])

    def step_rows(
        self, tokens: Sequence[int], positions: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> Logits:
        """Append `tokens` as rows of any tree and return their logits, [N, V].

        `positions` [N] are those in the row's own sequence; `mask` [N, capacity] is true for the
        cache slots a row sees: row n is in slot `length` + n, and sees itself.
        """
        start = self.reserve(len(tokens))
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "position_ids": positions[None],
            "attention_mask": mask[None, None],
            "write_index": np.array([start], np.int64),
        }
        inputs = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in feeds.items()}
        outputs = ["logits", *(f"new_{name}" for name in self._caches)]
        try:
            logits, *caches = self._session.run_with_ort_values(outputs, inputs | self._caches)
        except Exception as error:
            message = " ".join(str(error).split())
            raise EngineError(f"the contract failed on {len(tokens)} rows: {message}") from error
        self._caches = dict(zip(self._caches, caches, strict=True))
        self.length = start + len(tokens)
        rows: Logits = logits.numpy()[0]
        return rows
