"""Responses on disk: one file for every batch, written once, so that a stop costs one batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.responses import Response, respond
from speccompile.compiler.drafts.target_caches import TargetCaches

__all__ = ["BATCH", "Shards", "read_responses", "write_responses"]

BATCH = 96
"""Sequences answered together: more are no faster, since arithmetic is what takes time by then."""

_BLOCK = 16 * BATCH  # prompts, among which those of a batch are found

_HALF = (0.0, 0.7)
"""Temperatures, in turn: what is said greedily, and what might be said as well."""


class _Batch(NamedTuple):
    prompts: Sequence[Sequence[int]]
    path: Path
    seed: int


@dataclass(frozen=True)
class Shards:
    """The responses of `target` (its SHA-256) to `prompts` in `folder`, `length` tokens each at
    most; all greedy, or every second.

    A file is named by all that it depends on: with more prompts behind these, or another order of
    whole blocks, what was answered is found again.
    """

    folder: Path
    target: str
    prompts: Sequence[Sequence[int]]
    length: int
    seed: int
    greedy: bool = False

    @property
    def count(self) -> int:
        """Of batches."""
        return len(self._batches)

    @property
    def complete(self) -> bool:
        """Whether all is answered."""
        return all(batch.path.exists() for batch in self._batches)

    @property
    def names(self) -> list[str]:
        """Of the files: what else is made of the responses depends on these."""
        return [batch.path.name for batch in self._batches]

    def generate(
        self,
        decoder: Decoder,
        ends: Sequence[int],
        report: Callable[[int, int], None],
        caches: TargetCaches | None = None,
    ) -> int:
        """Answer what has not been answered; `report` is told batches done and tokens said, which
        are returned too. What the decoder read by then is kept in `caches`."""
        kept = caches.layers if caches else ()
        self.folder.mkdir(parents=True, exist_ok=True)
        said = 0
        for number, (prompts, path, seed) in enumerate(self._batches):
            if not path.exists():
                temperatures = [_HALF[row % 2] * (not self.greedy) for row in range(len(prompts))]
                responses = respond(
                    decoder,
                    prompts,
                    temperatures,
                    length=self.length,
                    ends=ends,
                    seed=seed,
                    kept=kept,
                )
                if caches:
                    caches.keep(responses)
                said += sum(len(response.tokens) for response in responses)
                write_responses(path, responses)
            report(number + 1, said)
        return said

    def read(self) -> list[Response]:
        """All of them."""
        return [each for batch in self._batches for each in read_responses(batch.path)]

    @cached_property
    def _batches(self) -> list[_Batch]:
        """Prompts of about the same length, so that little is padding; in an order of no meaning,
        so that whatever is finished first is like the whole."""
        found = list[_Batch]()
        for start in range(0, len(self.prompts), _BLOCK):
            block = self.prompts[start : start + _BLOCK]
            by_length = sorted(block, key=len)
            batches = [by_length[at : at + BATCH] for at in range(0, len(block), BATCH)]
            rng = np.random.default_rng([self.seed, start])
            found.extend(self._batch(batches[at]) for at in rng.permutation(len(batches)))
        return found

    def _batch(self, prompts: Sequence[Sequence[int]]) -> _Batch:
        identity = json.dumps([self.target, self.length, self.seed, self.greedy, prompts])
        digest = hashlib.sha256(identity.encode())
        seed = int.from_bytes(digest.digest()[:7])
        return _Batch(prompts, self.folder / f"{digest.hexdigest()[:32]}.safetensors", seed)


def write_responses(path: Path, responses: Sequence[Response]) -> None:
    """One file of responses, whole or not at all."""

    def joined(field: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(each, field) for each in responses])

    partial = path.with_suffix(".partial")
    save_file(
        {
            "prompt_lengths": np.array([len(each.prompt) for each in responses], np.int32),
            "lengths": np.array([len(each.tokens) for each in responses], np.int32),
            "prompts": joined("prompt"),
            **{field: joined(field) for field in _BY_TOKEN},
        },
        partial,
    )
    partial.replace(path)


_BY_TOKEN = ("tokens", "likeliest", "probabilities", "hidden")


def read_responses(path: Path) -> Iterator[Response]:
    """What `write_responses` wrote."""
    arrays = load_file(path)
    prompts = np.split(arrays["prompts"], np.cumsum(arrays["prompt_lengths"])[:-1])
    cuts = np.cumsum(arrays["lengths"])[:-1]
    parts = (np.split(arrays[field], cuts) for field in _BY_TOKEN)
    for fields in zip(prompts, *parts, strict=True):
        yield Response(*fields)
