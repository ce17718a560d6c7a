"""Open a contract: a graph on disk, and the folder of the weights it refers to."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
from onnx_ir.external_data import set_base_dir

__all__ = ["open_contract"]


def open_contract(graph: Path, weights: Path) -> ir.Model:
    """The contract in file `graph`, its weights read from the weights file in folder `weights`.

    ONNX looks for external data beside the graph and refuses links; this is told where it is, so
    that several graphs can share one file that is never copied.
    """
    model = ir.load(graph)
    set_base_dir(model.graph, weights)
    return model
