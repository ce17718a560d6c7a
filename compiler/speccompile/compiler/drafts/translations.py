"""What an encoder-decoder answers to sources, greedily, and the laws that it chose by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speccompile.compiler.drafts.decoder import KeyValues
from speccompile.compiler.drafts.encoder_decoder import EncoderDecoder
from speccompile.compiler.drafts.responses import LIKELIEST, Response

__all__ = ["as_response", "translate"]


def as_response(source: Sequence[int], answer: Sequence[int]) -> Response:
    """An answer that somebody else gave: its law knows nothing but its tokens."""
    tokens = np.array(answer, np.int32)
    law = np.ones((len(tokens), 1), np.float16)
    return Response(np.array(source, np.int32), tokens, tokens[:, None], law, _no_rows(len(tokens)))


@torch.inference_mode()
def translate(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], *, length: int, end: int
) -> list[Response]:
    """Answer all `sources` at once, with at most `length` tokens each, `end` included."""
    source = model.read(*_padded(sources))
    dtype = model.tensors["model.embed_tokens.weight"].dtype
    cache = KeyValues.of(model.config, len(sources), length, dtype)
    speaking = torch.arange(len(sources))
    tokens = torch.full_like(speaking, model.encoder.start_token)
    said: list[list[tuple[Tensor, Tensor]]] = [[] for _ in sources]
    for _ in range(length):
        logits = model.logits(model.answer(tokens[:, None], source, cache)[:, 0])
        largest, likeliest = logits.topk(min(LIKELIEST, logits.shape[1]))
        law = (largest - logits.logsumexp(-1, keepdim=True)).exp()
        for row, *token in zip(speaking.tolist(), likeliest, law, strict=True):
            said[row].append((token[0], token[1]))
        tokens = likeliest[:, 0]
        going = tokens != end
        if not going.any():
            break
        if not going.all():
            cache.keep(going)
            source.keep(going)
            speaking, tokens = speaking[going], tokens[going]
    return [_response(*each) for each in zip(sources, said, strict=True)]


def _response(source: Sequence[int], said: Sequence[tuple[Tensor, Tensor]]) -> Response:
    likeliest = torch.stack([token for token, _ in said]).numpy().astype(np.int32)
    law = torch.stack([each for _, each in said]).half().numpy()
    tokens = likeliest[:, 0].copy()
    return Response(np.array(source, np.int32), tokens, likeliest, law, _no_rows(len(tokens)))


def _no_rows(count: int) -> NDArray[np.float16]:
    """A response's rows of the head, which nothing reads that is made of these."""
    return np.zeros((count, 0), np.float16)


def _padded(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """[B, S] of sources, and which of these are no padding."""
    lengths = torch.tensor([len(each) for each in sources])
    longest = int(lengths.max())
    tokens = torch.tensor([[*each, *[0] * (longest - len(each))] for each in sources])
    return tokens, torch.arange(longest) < lengths[:, None]
