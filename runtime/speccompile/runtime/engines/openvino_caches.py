"""The key-value caches of an OpenVINO graph, which the engine owns and never moves."""

from __future__ import annotations

from copy import copy

import openvino as ov

from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["PAGE_ROWS", "OpenVINOCaches"]

PAGE_ROWS = 32  # fixed by the CPU plugin


class OpenVINOCaches:
    """One key and one value cache a layer; engines that share them share this object, or, of fewer
    layers, one `of_layers` of it.

    Where the graph attends in pages, it writes them itself. Where it returns the new rows of a
    layer, as ``new_key_cache.i``, it is shown the rows so far, and its own are appended here.
    """

    def __init__(self, info: EngineInfo, compiled: ov.CompiledModel) -> None:
        returned = {name for port in compiled.outputs for name in port.names}
        pages = -(-info.capacity // PAGE_ROWS)
        paged = ov.Shape((pages, info.kv_heads, PAGE_ROWS, info.head_dim))
        whole = ov.Shape((1, info.kv_heads, info.capacity, info.head_dim))
        self._pages: dict[str, ov.Tensor] = {}
        self._rows: dict[str, ov.Tensor] = {}
        for port in compiled.inputs:
            name = port.any_name
            if name.startswith(("key_cache.", "value_cache.")):
                appended = f"new_{name}" in returned
                cache = ov.Tensor(port.element_type, whole if appended else paged)
                cache.data[:] = 0
                (self._rows if appended else self._pages)[name] = cache

    def of_layers(self, compiled: ov.CompiledModel) -> OpenVINOCaches:
        """These very caches, as far as a graph of some of the layers has them.

        Raises EngineError where it has others.
        """
        names = {
            port.any_name
            for port in compiled.inputs
            if port.any_name.startswith(("key_cache.", "value_cache."))
        }
        if strange := names - self._pages.keys() - self._rows.keys():
            raise EngineError(f"the target has no {min(strange)}; build the artifact again")
        caches = copy(self)
        caches._pages = {name: cache for name, cache in self._pages.items() if name in names}
        caches._rows = {name: cache for name, cache in self._rows.items() if name in names}
        return caches

    def attach(self, request: ov.InferRequest) -> None:
        """Give `request` the pages, once for all its steps."""
        for name, cache in self._pages.items():
            request.set_tensor(name, cache)

    def show(self, request: ov.InferRequest, length: int) -> None:
        """Give `request` the first `length` rows for its next step."""
        for name, cache in self._rows.items():
            end = ov.Coordinate([*cache.shape[:2], length, cache.shape[3]])
            request.set_tensor(name, ov.Tensor(cache, ov.Coordinate([0] * 4), end))

    def append(self, request: ov.InferRequest, start: int, end: int) -> None:
        """Keep the rows that `request` returned as those from `start` to `end`."""
        for name, cache in self._rows.items():
            cache.data[:, :, start:end] = request.get_tensor(f"new_{name}").data
