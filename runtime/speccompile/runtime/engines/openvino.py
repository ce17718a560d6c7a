"""OpenVINO on CPU: paged attention over pages that the engine owns and never moves."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.engines.openvino_caches import PAGE_ROWS, OpenVINOCaches
from speccompile.runtime.engines.openvino_feeds import feeds, share_of
from speccompile.runtime.engines.openvino_graph import (
    compile_graph,
    infer,
    last_line,
    read_graph,
    tree_refusal,
)
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["OpenVINOEngine"]


class OpenVINOEngine(Cursor):
    """Runs a graph lowered for OpenVINO (see `lower/paged_attention.py` for its inputs)."""

    def __init__(
        self,
        info: EngineInfo,
        graph: Path,
        *,
        threads: int = 0,
        cache_of: OpenVINOEngine | None = None,
    ) -> None:
        """`cache_of` is an engine of the same dimensions whose caches this one reads and writes, or
        those of some of its layers."""
        super().__init__(info.capacity)
        self._info, self._graph = info, graph
        try:
            model = read_graph(graph)
            self._inputs = {port.any_name for port in model.inputs}
            self._refusal = tree_refusal(model)
            self._compiled = compile_graph(info, model, threads)
            self._attach(
                cache_of._caches.of_layers(self._compiled)
                if cache_of
                else OpenVINOCaches(info, self._compiled)
            )
        except RuntimeError as error:
            raise EngineError(f"{graph}: OpenVINO cannot open it: {last_line(error)}") from error

    @property
    def takes_trees(self) -> bool:
        """Whether the rows of a step may be a tree; a chain they always may."""
        return not self._refusal

    def another(self) -> OpenVINOEngine:
        """An engine of the same graph and weights for another sequence: its caches are its own."""
        engine = copy(self)
        engine.length = 0
        engine._attach(OpenVINOCaches(self._info, self._compiled))
        return engine

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        start = self.reserve(len(tokens))
        end = start + len(tokens)
        share = share_of(range(-(-end // PAGE_ROWS)), start, tokens, parents, last, 1)
        if share.seen is not None and self._refusal:
            raise EngineError(f"{self._graph}: takes chains of rows only: {self._refusal}")
        fed = {**feeds([share], 1), "ancestors": share.ancestors}
        self._caches.show(self._request, start)
        logits, seconds = infer(self._request, self._inputs, fed, f"{len(tokens)} rows")
        self.computing_seconds += seconds
        self._caches.append(self._request, start, end)
        self.length = end
        return logits

    def _attach(self, caches: OpenVINOCaches) -> None:
        self._caches = caches
        self._request = self._compiled.create_infer_request()
        caches.attach(self._request)
