"""A session of ONNX Runtime, opened as all of its engines are."""

from __future__ import annotations

from pathlib import Path

from speccompile.runtime.engines.ort import ort
from speccompile.runtime.errors import EngineError

__all__ = ["one_line", "open_session"]


def open_session(graph: Path, threads: int) -> ort.InferenceSession:
    """On the CPU; `threads` = 0 takes every core. Raises EngineError."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Two sessions with spinning workers halve each other: stop spinning when a run ends.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises classes of its own, all unrelated
        raise EngineError(f"{graph}: ONNX Runtime cannot open it: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """What an error says, without its line breaks."""
    return " ".join(str(error).split())
