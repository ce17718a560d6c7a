"""A tiny target in torch, and what it says."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.responses import Response, respond
from tests.families import tiny

__all__ = ["ENDS", "PROMPTS", "VOCABULARY", "answers", "decoder_of"]

ENDS = (2,)
VOCABULARY = 512
_RNG = np.random.default_rng(0)
PROMPTS = [_RNG.integers(3, VOCABULARY, 3 + number % 7).tolist() for number in range(24)]


@cache
def decoder_of(family: str = "llama-tied") -> Decoder:
    """In fp32."""
    model = tiny(family)
    names = tensor_shapes(model.config)
    return Decoder(model.config, {name: torch.tensor(model.read(name)) for name in names})


@cache
def answers() -> list[Response]:
    """Greedy ones, of 20 tokens at most."""
    temperatures = [0.0] * len(PROMPTS)
    return respond(decoder_of(), PROMPTS, temperatures, length=20, ends=ENDS, seed=0)
