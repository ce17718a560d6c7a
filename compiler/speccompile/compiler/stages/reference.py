"""reference: run one model in full precision over two texts, layer by layer.

The calibration text gives the largest magnitudes: of the inputs of linear layers, by column, which
quantization may use, and of every node's output, to find what fp16 cannot hold. Of the evaluation
text the last hidden states are kept: the logits that engines are compared with follow from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from speccompile.compiler.calibration import write_statistics
from speccompile.compiler.layerwise import Layerwise
from speccompile.compiler.stages.check import Checked
from speccompile.compiler.texts import paired_windows, token_windows

__all__ = ["Reference", "chunks", "read_overflows", "run"]

_STATES = "hidden.npy"
_TOKENS = "tokens.npy"
_SOURCES = "sources.npy"
_OVERFLOWS = "overflows.json"

_ROWS_AT_ONCE = 128


class Reference:
    """The evaluation text's `tokens` [W, T] and full-precision logits; with an encoder, the
    `sources` [W, S] that they follow."""

    def __init__(self, folder: Path, checked: Checked, *, threads: int = 0) -> None:
        self.tokens: NDArray[np.int64] = np.load(folder / _TOKENS)
        sources = folder / _SOURCES
        self.sources: NDArray[np.int64] | None = np.load(sources) if sources.exists() else None
        self._hidden: NDArray[np.float32] = np.load(folder / _STATES, mmap_mode="r")
        self._model = Layerwise(checked.config, checked.reader(), threads=threads)

    def logits(self) -> Iterator[NDArray[np.float32]]:
        """[rows, V] of all tokens, in the `chunks` of each window."""
        yield from self._model.logits(
            np.ascontiguousarray(window[rows]) for window in self._hidden for rows in chunks(window)
        )


def read_overflows(folder: Path) -> dict[str, float]:
    """Nodes whose output fp16 cannot hold, with its largest magnitude on the calibration text."""
    content: dict[str, float] = json.loads((folder / _OVERFLOWS).read_text(encoding="utf-8"))
    return content


def chunks(window: Sequence[int] | NDArray[np.float32]) -> Iterator[slice]:
    """The rows of a window, a few at a time: the logits of a whole one may be large."""
    for start in range(0, len(window), _ROWS_AT_ONCE):
        yield slice(start, start + _ROWS_AT_ONCE)


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `calibration` and `evaluation` ({text, tokens}), `threads`.

    The inputs are a `load` and the `check` stage.
    """
    loaded, checked = inputs.values()
    model = Checked(loaded, checked)
    tokenizer = Tokenizer.from_str(model.loaded.tokenizer["tokenizer_json"])
    calibration, evaluation = (
        _windows(model, tokenizer, settings[name]) for name in ("calibration", "evaluation")
    )
    decoder = Layerwise(model.config, model.reader(), threads=settings["threads"])
    peaks: dict[str, NDArray[np.float32]] = {}

    def observe(name: str, peak: NDArray[np.float32]) -> None:
        peaks[name] = np.maximum(peaks[name], peak) if name in peaks else peak

    report = settings["report"]
    report(f"{calibration.tokens.size} tokens of the calibration text")
    decoder.hidden_states(calibration.tokens, observe, sources=calibration.sources)
    report(f"{evaluation.tokens.size} tokens of the evaluation text")
    hidden = decoder.hidden_states(evaluation.tokens, sources=evaluation.sources)
    linears = {name: peak for name, peak in peaks.items() if not name.startswith("/")}
    write_statistics(folder, linears)
    limit = float(np.finfo(np.float16).max)
    overflows = {
        name: float(peak)
        for name, peak in peaks.items()
        if name.startswith("/") and float(peak) > limit
    }
    (folder / _OVERFLOWS).write_text(json.dumps(overflows, indent=1), encoding="utf-8")
    np.save(folder / _TOKENS, evaluation.tokens)
    if evaluation.sources is not None:
        np.save(folder / _SOURCES, evaluation.sources)
    np.save(folder / _STATES, hidden)


class _Windows(NamedTuple):
    """A text as a model reads it; see `Reference`."""

    tokens: NDArray[np.int64]
    sources: NDArray[np.int64] | None


def _windows(model: Checked, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> _Windows:
    text, count, encoder = settings["text"], settings["tokens"], model.config.encoder
    if encoder is None:
        return _Windows(token_windows(tokenizer, text, count, model.window), None)
    sources, tokens = paired_windows(tokenizer, text, count, model.window, encoder.start_token)
    return _Windows(tokens, sources)
