"""The decoders of the check are transformers' Llama, of which the check on a GPU makes use."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gpu.graphs import TINY, noisy_pair
from tests.gpu.peer import compare_texts, llama
from tests.gpu.sections import Task
from tests.gpu.torch_decoder import Decoder, random_weights
from tests.gpu.torch_model import HostQueue
from tests.unit.gpu.devices import host_device


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 5e-3)], ids=["fp32", "fp16"]
)
def test_a_decoder_is_a_llama(dtype: torch.dtype, tolerance: float) -> None:
    decoder = Decoder(TINY, random_weights(TINY, 1), 96, torch.device("cpu"), dtype)
    tokens = torch.randint(0, TINY.vocabulary, (60,), generator=torch.manual_seed(0)).tolist()
    model: Any = llama(decoder)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0].float()
    error = (decoder.complete(tokens) - expected).abs().max() / expected.abs().max()
    assert error < tolerance


def test_our_texts_are_transformers(capsys: pytest.CaptureFixture[str]) -> None:
    device, task = host_device(), Task(60.0)
    pair = noisy_pair(HostQueue(device), TINY, capacity=96, shares_cache=False)
    compare_texts(device, pair, task, "fp32", tokens=24, tie=1e-4)
    assert task.outcome().reason == ""
    figures = task.figures["fp32"]
    assert figures["tokens_as_generate"] == {"plain": 24, "speculative": 24, "assisted": 24}
    assert set(figures["ms_per_token"]) == {"plain", "speculative", "generate", "assisted"}
