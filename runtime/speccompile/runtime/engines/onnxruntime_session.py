"""A session of ONNX Runtime, opened as all of its engines are."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from speccompile.plugins.cpu.library import DOMAIN, CpuLibraryError, cpu_library
from speccompile.runtime.engines.ort import ort
from speccompile.runtime.errors import EngineError
from speccompile.runtime.user_cache import default_cache

__all__ = ["load_operators", "one_line", "open_session"]


class Options(Protocol):
    """Of a session: what is asked of them here."""

    def register_custom_ops_library(self, path: str) -> None: ...


def open_session(graph: Path, threads: int) -> ort.InferenceSession:
    """On the CPU, with our own operators; `threads` = 0 takes every core. Raises EngineError."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Two sessions with spinning workers halve each other: stop spinning when a run ends.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    lacking = load_operators(options)
    try:
        return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises classes of its own, all unrelated
        reason = one_line(error)
        if lacking and DOMAIN in reason:
            reason = lacking
        raise EngineError(f"{graph}: ONNX Runtime cannot open it: {reason}") from error


def load_operators(options: Options) -> str | None:
    """Let a session have our own operators; where they cannot be had, why. Not every graph needs
    them."""
    try:
        options.register_custom_ops_library(str(cpu_library(default_cache() / "operators")))
    except CpuLibraryError as error:
        return str(error)
    except Exception as error:  # of ONNX Runtime's own classes: the library refuses the processor
        return one_line(error)
    return None


def one_line(error: Exception) -> str:
    """What an error says, without its line breaks."""
    return " ".join(str(error).split())
