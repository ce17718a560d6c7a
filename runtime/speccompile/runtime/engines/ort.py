"""ONNX Runtime, without its telemetry: official builds send it unless told not to.

Whoever imports it here, before anybody else does in the process, gets neither the thread that
uploads nor the identifier of the machine that it would make. The variable can still be set to 0.
"""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

__all__ = ["ort"]
