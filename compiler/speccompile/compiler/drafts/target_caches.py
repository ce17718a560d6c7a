"""What a target's cache holds of the texts that a student learns from, kept on disk.

A student that works in the target's cache needs that of every text, every time it reads it. To make
it is several times the student's own work, so it is made once: while the target answers, or later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from speccompile.compiler.drafts.decoder import Decoder, KeyValues
from speccompile.compiler.drafts.responses import Response

__all__ = ["TargetCaches", "read_by"]

_TOGETHER = 96  # texts of a file
_AT_ONCE = 16  # of them in a batch


@dataclass(frozen=True)
class TargetCaches:
    """Of a `target`, whose weights have that `sha256`, what some `layers` hold; in `folder`."""

    target: Decoder
    sha256: str
    layers: Sequence[int]
    folder: Path

    def of(
        self, responses: Sequence[Response], report: Callable[[int, int], None]
    ) -> list[Response]:
        """The same, with what the target read of each in `read`.

        A file is named by all that it depends on, and found again. `report` is told how many
        texts are done of how many.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        found = list[Response]()
        for start in range(0, len(responses), _TOGETHER):
            together = responses[start : start + _TOGETHER]
            path = self.folder / f"{self._name(together)}.npy"
            if not path.exists():
                self._write(path, together)
            cuts = np.cumsum([len(each.text) - 1 for each in together])[:-1]
            rows = np.split(np.load(path, mmap_mode="r"), cuts)
            found.extend(
                replace(each, read=read) for each, read in zip(together, rows, strict=True)
            )
            report(len(found), len(responses))
        return found

    def keep(self, responses: Sequence[Response]) -> None:
        """What the target read while it answered, `read` of at most as many as a file has."""
        self.folder.mkdir(parents=True, exist_ok=True)
        read = [each.read for each in responses if each.read is not None]
        _save(self.folder / f"{self._name(responses)}.npy", read)

    def _name(self, responses: Sequence[Response]) -> str:
        dtype = str(self.target.tensors["model.norm.weight"].dtype)
        texts = [each.text.tolist() for each in responses]
        identity = json.dumps([self.sha256, list(self.layers), dtype, texts])
        return hashlib.sha256(identity.encode()).hexdigest()[:32]

    def _write(self, path: Path, responses: Sequence[Response]) -> None:
        texts = [torch.from_numpy(each.text[:-1].astype(np.int64)) for each in responses]
        read: dict[int, NDArray[np.float16]] = {}
        by_length = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        for start in range(0, len(texts), _AT_ONCE):
            chosen = by_length[start : start + _AT_ONCE]
            tokens = torch.nn.utils.rnn.pad_sequence([texts[at] for at in chosen], True)
            cache = read_by(self.target, tokens, self.layers)
            both = torch.stack((cache.keys, cache.values)).half().numpy()
            for row, at in enumerate(chosen):  # [2, layers, kv heads, n, D] by place
                read[at] = np.moveaxis(both[:, :, row, :, : len(texts[at])], 3, 0)
        _save(path, [read[at] for at in range(len(texts))])


def _save(path: Path, read: Sequence[NDArray[np.float16]]) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, np.concatenate(read))
    partial.replace(path)


@torch.no_grad()
def read_by(target: Decoder, tokens: torch.Tensor, layers: Sequence[int]) -> KeyValues:
    """What the target's cache holds of `tokens` [B, N] in these `layers`."""
    batch, count = tokens.shape
    dtype = target.tensors["model.embed_tokens.weight"].dtype
    cache = KeyValues.of(target.config, batch, count, dtype)
    target.hidden(tokens, cache=cache)
    chosen = list(layers)
    return KeyValues(cache.keys[chosen], cache.values[chosen], count)
