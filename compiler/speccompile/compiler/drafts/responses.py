"""What the target says to prompts: generated in batches, with what it thought of every token.

A draft learns the target's own words, whose law it has to meet, not those of a book
(https://arxiv.org/abs/2310.08461). Kept per token are the target's most likely tokens and their
probabilities at a temperature of 1: nearly all of its law in a thousandth of the room; and the
rows that the head made this law from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speccompile.compiler.drafts.decoder import Decoder, KeyValues

__all__ = ["LIKELIEST", "Response", "respond"]

LIKELIEST = 16
"""Tokens kept of every law."""

_CROWDED = 0.75  # of a batch still speaking: below, the others leave it


@dataclass(frozen=True)
class Response:
    """What followed a prompt: `tokens` [n], and for each the `likeliest` [n, LIKELIEST] in its
    place with their `probabilities`, and the row of `hidden` [n, hidden] before it, in halves.

    `read` [text - 1, 2, layers, kv heads, D], where it was kept, are the keys and values of some of
    the target's layers; see `TargetCaches`.
    """

    prompt: NDArray[np.int32]
    tokens: NDArray[np.int32]
    likeliest: NDArray[np.int32]
    probabilities: NDArray[np.float16]
    hidden: NDArray[np.float16]
    read: NDArray[np.float16] | None = None

    @property
    def text(self) -> NDArray[np.int32]:
        """Prompt and response as one sequence."""
        return np.concatenate([self.prompt, self.tokens])


@torch.inference_mode()
def respond(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    *,
    length: int,
    ends: Sequence[int],
    seed: int,
    kept: Sequence[int] = (),
) -> list[Response]:
    """Answer all `prompts` at once, each at its temperature, with at most `length` tokens.

    What the cache holds of the layers `kept`, where there are any, is kept in `read`.
    """
    batch = _Batch.of(decoder, prompts, temperatures, length, frozenset(ends), kept)
    numbers = torch.Generator().manual_seed(seed)
    for _ in range(length):
        if not batch.step(numbers):
            break
    batch.end()
    return [batch.response(row, prompt) for row, prompt in enumerate(prompts)]


@dataclass
class _Batch:
    """Sequences in step: prompts end in the same slot, so that shorter ones begin later."""

    decoder: Decoder
    cache: KeyValues
    hidden: Tensor  # [b, hidden] of the last tokens of the sequences still speaking
    rows: Tensor  # [b] their numbers
    starts: Tensor  # [b] their first slots
    temperatures: Tensor  # [b]
    ends: frozenset[int]
    said: list[list[tuple[int, Tensor, Tensor, Tensor]]]
    kept: Sequence[int]  # layers
    read: dict[int, NDArray[np.float16]]  # of sequences that left, by number
    longest: int  # the slot behind all prompts

    @classmethod
    def of(
        cls,
        decoder: Decoder,
        prompts: Sequence[Sequence[int]],
        temperatures: Sequence[float],
        length: int,
        ends: frozenset[int],
        kept: Sequence[int],
    ) -> _Batch:
        longest = max(map(len, prompts))
        starts = torch.tensor([longest - len(prompt) for prompt in prompts])
        tokens = torch.tensor([[*[0] * (longest - len(p)), *p] for p in prompts])
        dtype = decoder.tensors["model.embed_tokens.weight"].dtype
        cache = KeyValues.of(decoder.config, len(prompts), longest + length, dtype)
        slots = torch.arange(longest)
        own = slots[None, :, None] == slots  # padding sees itself, for a law needs somebody
        causal = slots[None, :, None] >= slots
        visible = own | (causal & (slots >= starts[:, None, None]))
        positions = (slots - starts[:, None]).clamp(min=0)
        hidden = decoder.hidden(tokens, positions=positions, visible=visible, cache=cache)[:, -1]
        said = [list[tuple[int, Tensor, Tensor, Tensor]]() for _ in prompts]
        rows = torch.arange(len(prompts))
        drawn = torch.tensor(temperatures)
        return cls(
            decoder, cache, hidden, rows, starts, drawn, ends, said, tuple(kept), {}, longest
        )

    def step(self, numbers: torch.Generator) -> bool:
        """Let every sequence say a token; whether any goes on."""
        logits = self.decoder.logits(self.hidden).float()
        largest, likeliest = logits.topk(LIKELIEST)
        probabilities = (largest - logits.logsumexp(-1, keepdim=True)).exp()
        tokens = _chosen(likeliest, probabilities, self.temperatures, numbers)
        laws = (likeliest, probabilities.half(), self.hidden.half())
        for row, token, *law in zip(self.rows.tolist(), tokens.tolist(), *laws, strict=True):
            said = self.said[row]
            if not said or said[-1][0] not in self.ends:
                said.append((token, *law))
        going = torch.tensor([self.said[row][-1][0] not in self.ends for row in self.rows.tolist()])
        speaking = int(going.sum())
        if speaking <= _CROWDED * len(going):
            self._keep(going)
            tokens = tokens[going]
        if speaking:
            self._read(tokens)
        return speaking > 0

    def response(self, row: int, prompt: Sequence[int]) -> Response:
        tokens, likeliest, probabilities, hidden = zip(*self.said[row], strict=True)
        return Response(
            np.array(prompt, np.int32),
            np.array(tokens, np.int32),
            torch.stack(likeliest).numpy().astype(np.int32),
            torch.stack(probabilities).numpy(),
            torch.stack(hidden).numpy(),
            self.read.get(row),
        )

    def end(self) -> None:
        """Let those leave that are left."""
        self._leave(torch.ones(len(self.rows), dtype=torch.bool))

    def _read(self, tokens: Tensor) -> None:
        slots = torch.arange(self.cache.length + 1)
        positions = self.cache.length - self.starts[:, None]
        visible = (slots >= self.starts[:, None])[:, None]
        hidden = self.decoder.hidden(
            tokens[:, None], positions=positions, visible=visible, cache=self.cache
        )
        self.hidden = hidden[:, 0]

    def _keep(self, going: Tensor) -> None:
        self._leave(~going)
        self.cache.keep(going)
        self.rows, self.starts = self.rows[going], self.starts[going]
        self.temperatures = self.temperatures[going]

    def _leave(self, leaving: Tensor) -> None:
        if not self.kept:
            return
        for row in torch.nonzero(leaving)[:, 0].tolist():
            number = int(self.rows[row])
            slots = slice(int(self.starts[row]), self.longest + len(self.said[number]) - 1)
            keys, values = (
                torch.stack([tensor[layer, row, :, slots] for layer in self.kept])
                for tensor in (self.cache.keys, self.cache.values)
            )
            both = torch.stack((keys, values))  # [2, layers, kv heads, n, D]
            self.read[number] = both.movedim(3, 0).half().contiguous().numpy()


def _chosen(
    likeliest: Tensor, probabilities: Tensor, temperatures: Tensor, numbers: torch.Generator
) -> Tensor:
    """A token of each row [b, LIKELIEST]: the first, or drawn at the row's temperature."""
    drawing = temperatures > 0
    tokens = likeliest[:, 0].clone()
    if drawing.any():
        tempered = probabilities[drawing] ** (1.0 / temperatures[drawing, None])
        place = torch.multinomial(tempered, 1, generator=numbers)
        tokens[drawing] = likeliest[drawing].gather(1, place)[:, 0]
    return tokens
