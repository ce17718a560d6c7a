"""Engines of lowered graphs, as the stages open them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from speccompile.compiler.stages.lower import GRAPH_FILE
from speccompile.runtime.engine import Encoder, Engine
from speccompile.runtime.engines.opening import open_encoder, open_engine
from speccompile.runtime.manifest import EngineInfo

__all__ = ["Opened", "open_lowered"]


class Opened(NamedTuple):
    """An engine and the encoder of its model, where it has one."""

    engine: Engine
    encoder: Encoder | None

    def read(self, source: Sequence[int]) -> None:
        """Give the engine a source, if its rows attend to one, and begin anew."""
        if self.encoder:
            self.encoder.read(source)
        self.engine.rollback(0)


def open_lowered(info: EngineInfo, folder: Path, *, threads: int) -> Opened:
    """What a `lower` stage left in `folder`. It has read no source."""
    encoder = open_encoder(info, folder / info.encoder, threads=threads) if info.encoder else None
    engine = open_engine(info, folder / GRAPH_FILE, threads=threads, encoder=encoder)
    return Opened(engine, encoder)
