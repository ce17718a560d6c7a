"""load: find a model, check it, and write down its dimensions and its tokenizer.

The weights stay where they are; `quantize` reads them, tensor by tensor, from the same source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.sources.checkpoint import Checkpoint
from speccompile.compiler.sources.opening import open_checkpoint

__all__ = ["Loaded", "run"]

_FILE = "model.json"


class Loaded:
    """What a later stage knows of a loaded model: ``folder/model.json``."""

    def __init__(self, folder: Path) -> None:
        content: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        self.config = TypeAdapter(DecoderConfig).validate_python(content["config"])
        self.tokenizer: dict[str, Any] = content["tokenizer"]
        self.provenance: dict[str, Any] = content["provenance"]
        self._open: dict[str, Any] = content["open"]

    def checkpoint(self) -> Checkpoint:
        """Open the weights again."""
        cache = Path(self._open["cache"])
        return open_checkpoint(self._open["source"], sha256=self._open["sha256"], cache=cache)


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `source`, `sha256` (may be null)."""
    source, sha256, cache = settings["source"], settings["sha256"], settings["cache"]
    checkpoint = open_checkpoint(
        source, sha256=sha256, cache=Path(cache), report=settings["report"]
    )
    content = {
        "config": asdict(checkpoint.config),
        "tokenizer": asdict(checkpoint.tokenizer),
        "provenance": asdict(checkpoint.provenance),
        "open": {"source": source, "sha256": sha256, "cache": cache},
    }
    (folder / _FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")
