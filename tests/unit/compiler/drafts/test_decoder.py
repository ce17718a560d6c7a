from __future__ import annotations

import numpy as np
import pytest
import torch

from speccompile.compiler.drafts.decoder import KeyValues
from tests.families import CONTEXT, TINY, tiny
from tests.unit.compiler.drafts.tiny import decoder_of

TOKENS = np.random.default_rng(1).integers(3, 500, CONTEXT - 4).tolist()


@pytest.mark.parametrize("family", TINY)
def test_every_family_is_what_transformers_computes(family: str) -> None:
    decoder = decoder_of(family)
    with torch.inference_mode():
        rows = decoder.logits(decoder.hidden(torch.tensor([TOKENS])))[0].numpy()
    expected = tiny(family).logits(TOKENS)
    assert np.abs(rows - expected).max() / np.abs(expected).max() < 1e-4


@pytest.mark.parametrize("family", TINY)
def test_with_a_cache_it_computes_the_same(family: str) -> None:
    decoder = decoder_of(family)
    tokens = torch.tensor([TOKENS[:40], TOKENS[20:60]])
    cache = KeyValues.of(decoder.config, 2, 40, torch.float32)
    with torch.inference_mode():
        whole = decoder.hidden(tokens)
        for start, end in ((0, 31), (31, 32), (32, 33), (33, 40)):
            slots = torch.arange(end)
            positions = torch.arange(start, end)
            visible = (slots <= positions[:, None]).expand(2, -1, -1)
            part = decoder.hidden(
                tokens[:, start:end],
                positions=positions.expand(2, -1),
                visible=visible,
                cache=cache,
            )
            torch.testing.assert_close(part, whole[:, start:end], rtol=1e-3, atol=1e-3)
    assert cache.length == 40
