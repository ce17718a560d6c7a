"""quantize: write one role's weights in its precision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.quantize import write_weights
from speccompile.compiler.stages.load import Loaded

__all__ = ["run"]


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `precision`. The input is a `load` stage."""
    (source,) = inputs.values()
    loaded = Loaded(source)
    write_weights(loaded.config, loaded.checkpoint().tensor, settings["precision"], folder)
