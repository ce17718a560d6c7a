from __future__ import annotations

import numpy as np
import pytest
import torch

from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.drafts.decoder import KeyValues
from speccompile.compiler.drafts.encoder_decoder import EncoderDecoder
from tests.t5_models import T5_KINDS, TinyT5, tiny_t5

RNG = np.random.default_rng(2)
SOURCES = [RNG.integers(2, 400, length).tolist() for length in (40, 7)]
"""The longer one is beyond the last bucket of distances."""
ANSWERS = [[0, *RNG.integers(2, 400, 34).tolist()] for _ in SOURCES]


@pytest.fixture(scope="module", params=T5_KINDS)
def tiny(request: pytest.FixtureRequest) -> TinyT5:
    return tiny_t5(str(request.param))


def model_of(tiny: TinyT5) -> EncoderDecoder:
    names = tensor_shapes(tiny.config)
    return EncoderDecoder(tiny.config, {name: torch.tensor(tiny.read(name)) for name in names})


def padded(sources: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, sources))
    tokens = torch.tensor([each + [0] * (longest - len(each)) for each in sources])
    real = torch.arange(longest) < torch.tensor([[len(each)] for each in sources])
    return tokens, real


def test_a_padded_batch_is_what_transformers_computes_one_by_one(tiny: TinyT5) -> None:
    model = model_of(tiny)
    with torch.inference_mode():
        hidden = model.answer(torch.tensor(ANSWERS), model.read(*padded(SOURCES)))
        rows = model.logits(hidden).numpy()
    for found, source, answer in zip(rows, SOURCES, ANSWERS, strict=True):
        expected = tiny.logits(source, answer)
        assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-5


def test_with_a_cache_it_computes_the_same(tiny: TinyT5) -> None:
    model, answers = model_of(tiny), torch.tensor(ANSWERS)
    cache = KeyValues.of(tiny.config, len(SOURCES), answers.shape[1], torch.float32)
    with torch.inference_mode():
        source = model.read(*padded(SOURCES))
        whole = model.answer(answers, source)
        for start, end in ((0, 1), (1, 2), (2, 30), (30, 35)):
            part = model.answer(answers[:, start:end], source, cache)
            torch.testing.assert_close(part, whole[:, start:end], rtol=1e-4, atol=1e-4)
        kept = torch.tensor([1])
        source.keep(kept)
        short = model.answer(answers[kept, :20], source)
    torch.testing.assert_close(short, whole[kept, :20], rtol=1e-4, atol=1e-4)
