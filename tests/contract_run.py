"""A contract under ONNX Runtime, of several sequences at once and with any tree of rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from speccompile.compiler.contract import build_contract
from speccompile.compiler.decoder import DecoderConfig

__all__ = ["ContractRun", "relative_error"]


class ContractRun:
    """`batch` sequences in caches of `capacity` slots; what a row sees is the caller's to say."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, NDArray[np.float32]],
        capacity: int,
        *,
        batch: int = 1,
    ) -> None:
        stored = {name: ir.tensor(values, name=name) for name, values in weights.items()}
        model = build_contract(config, stored, capacity)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(
            ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {value.name: value.shape for value in self._session.get_inputs()}
        self._caches = {
            name: np.zeros((batch, *shape[1:]), np.float32)
            for name, shape in self._inputs.items()
            if "cache" in name
        }
        self._window = config.window(capacity) or capacity
        self._slots = np.arange(capacity)
        self._positions = np.zeros((batch, capacity), np.int64)  # of the row in each slot

    def append(self, tokens: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits [B, N, V] of `tokens` [B, N], sequence b's in the slots from starts[b] on."""
        slots = starts[:, None] + np.arange(tokens.shape[1])
        return self.append_tree(tokens, starts, slots, self._slots <= slots[..., None])

    def append_tree(
        self,
        tokens: NDArray[np.int64],
        starts: NDArray[np.int64],
        positions: NDArray[np.int64],
        mask: NDArray[np.bool_],
    ) -> NDArray[np.float32]:
        """The same with `positions` [B, N], and a `mask` [B, N, capacity] of the slots rows see."""
        for held, new, start in zip(self._positions, positions, starts, strict=True):
            held[start : start + len(new)] = new
        near = self._positions[:, None] > positions[..., None] - self._window
        feeds = {
            "input_ids": tokens,
            "position_ids": positions,
            "attention_mask": mask[:, None],
            "sliding_mask": (mask & near)[:, None],
            "write_index": starts,
        }
        names = ["logits", *(f"new_{name}" for name in self._caches)]
        used = {name: value for name, value in feeds.items() if name in self._inputs}
        logits, *caches = (
            np.asarray(value) for value in self._session.run(names, used | self._caches)
        )
        self._caches = dict(zip(self._caches, caches, strict=True))
        return logits


def relative_error(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """The largest difference, of the largest expected magnitude."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())
