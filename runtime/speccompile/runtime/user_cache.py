"""Where on this machine the user's files are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["default_cache"]


def default_cache() -> Path:
    """$SPECCOMPILE_CACHE, else a folder in the user's cache; it need not exist yet."""
    if chosen := os.environ.get("SPECCOMPILE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "speccompile"
