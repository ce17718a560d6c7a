"""ONNX Runtime on CPU: the encoder of a model, which reads a source once for all steps to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from speccompile.runtime.engines.onnxruntime_session import one_line, open_session
from speccompile.runtime.engines.ort import ort
from speccompile.runtime.errors import EngineError, RequestError

__all__ = ["OnnxRuntimeEncoder"]


class OnnxRuntimeEncoder:
    """Runs the graph of an encoder.

    `rows` are the source's keys and values for every layer of the decoder, [1, Hkv, S, D], by the
    name of its input; nothing before a source was read.
    """

    def __init__(self, graph: Path, *, threads: int = 0) -> None:
        self._graph = graph
        self._session = open_session(graph, threads)
        self._names = [value.name for value in self._session.get_outputs()]
        self.calls = 0
        self.rows: Mapping[str, ort.OrtValue] = {}

    def read(self, source: Sequence[int]) -> None:
        if not source:
            raise RequestError("the source is empty; give it at least one token")
        ids = ort.OrtValue.ortvalue_from_numpy(np.array([source], np.int64))
        try:
            found = self._session.run_with_ort_values(self._names, {"input_ids": ids})
        except Exception as error:
            raise EngineError(
                f"{self._graph}: failed on a source of {len(source)} tokens: {one_line(error)}"
            ) from error
        self.calls += 1
        self.rows = dict(zip(self._names, found, strict=True))
