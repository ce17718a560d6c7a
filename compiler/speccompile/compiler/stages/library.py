"""library: is the TensorRT here that a recipe asks for, and does it build for these GPUs?

Asked first of all: it takes a second, and what comes before a plan takes minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.tensorrt.builder import choose_architecture
from speccompile.compiler.tensorrt.library import open_library

__all__ = ["run"]


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `library`, `version`, `architectures`. Raises SpeccompileError for what the library
    cannot build for; nothing is written."""
    library = open_library(settings["library"])
    for architecture in settings["architectures"]:
        choose_architecture(architecture, library)
