"""Responses on disk: one file for every batch, written once, so that a stop costs one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.responses import Response, respond

__all__ = ["BATCH", "Shards"]

BATCH = 96
"""Sequences answered together: more are no faster, since arithmetic is what takes time by then."""

_HALF = (0.0, 0.7)
"""Temperatures, in turn: what is said greedily, and what might be said as well."""


@dataclass(frozen=True)
class Shards:
    """The responses to `prompts` in `folder`, `length` tokens each at most.

    Which prompts share a batch, and the numbers that are drawn, follow from `seed`: a batch can be
    made again from nothing else. Held-out prompts are answered `greedy`.
    """

    folder: Path
    prompts: Sequence[Sequence[int]]
    length: int
    seed: int
    greedy: bool = False

    @property
    def count(self) -> int:
        """Of batches."""
        return -(-len(self.prompts) // BATCH)

    @property
    def complete(self) -> bool:
        """Whether all is answered."""
        return all(self._path(number).exists() for number in range(self.count))

    def generate(
        self, decoder: Decoder, ends: Sequence[int], report: Callable[[int, int], None]
    ) -> int:
        """Answer what has not been answered; `report` is told batches done and tokens said, which
        are returned too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        said = 0
        for number, batch in enumerate(self._batches()):
            path = self._path(number)
            if not path.exists():
                temperatures = [_HALF[row % 2] * (not self.greedy) for row in range(len(batch))]
                responses = respond(
                    *(decoder, [self.prompts[index] for index in batch], temperatures),
                    length=self.length,
                    ends=ends,
                    seed=self.seed + number,
                )
                said += sum(len(response.tokens) for response in responses)
                _write(path, responses)
            report(number + 1, said)
        return said

    def read(self) -> list[Response]:
        """All of them."""
        return [each for number in range(self.count) for each in _read(self._path(number))]

    def _batches(self) -> Iterator[NDArray[np.int64]]:
        """Prompts of about the same length, so that little is padding, in an order of no meaning:
        whatever is finished first is like the whole."""
        lengths = np.array([len(prompt) for prompt in self.prompts])
        by_length = np.argsort(lengths, kind="stable")
        batches = np.array_split(by_length, self.count)
        yield from (batches[at] for at in np.random.default_rng(self.seed).permutation(self.count))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05}.safetensors"


def _write(path: Path, responses: Sequence[Response]) -> None:
    def joined(field: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(each, field) for each in responses])

    partial = path.with_suffix(".partial")
    save_file(
        {
            "prompt_lengths": np.array([len(each.prompt) for each in responses], np.int32),
            "lengths": np.array([len(each.tokens) for each in responses], np.int32),
            "prompts": joined("prompt"),
            "tokens": joined("tokens"),
            "likeliest": joined("likeliest"),
            "probabilities": joined("probabilities"),
        },
        partial,
    )
    partial.replace(path)


def _read(path: Path) -> Iterator[Response]:
    arrays = load_file(path)
    prompts = np.split(arrays["prompts"], np.cumsum(arrays["prompt_lengths"])[:-1])
    cuts = np.cumsum(arrays["lengths"])[:-1]
    parts = (np.split(arrays[key], cuts) for key in ("tokens", "likeliest", "probabilities"))
    for fields in zip(prompts, *parts, strict=True):
        yield Response(*fields)
