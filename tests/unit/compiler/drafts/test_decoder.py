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


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "phi4", "granite", "olmo2"])
def test_with_a_cache_it_computes_the_same(family: str) -> None:
    decoder = decoder_of(family)
    tokens = torch.tensor([TOKENS[:12], TOKENS[20:32]])
    cache = KeyValues.of(decoder.config, 2, 12, torch.float32)
    with torch.inference_mode():
        whole = decoder.hidden(tokens)
        for start, end in ((0, 7), (7, 8), (8, 9), (9, 12)):
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
    assert cache.length == 12


def test_a_window_is_kept_without_a_cache_only() -> None:
    decoder = decoder_of("mistral-sliding")
    cache = KeyValues.of(decoder.config, 1, 40, torch.float32)
    visible = torch.ones(1, 40, 40, dtype=torch.bool).tril()
    with pytest.raises(ValueError, match="is not kept"):
        decoder.hidden(torch.tensor([TOKENS[:40]]), visible=visible, cache=cache)
