"""transformers on the same GPU with the same weights: its tokens, and its time beside ours."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speccompile.runtime.device import Device
from speccompile.runtime.device_session import DeviceSession
from speccompile.runtime.request import Request
from tests.gpu.graphs import (
    LARGE,
    LARGE_DRAFT_LAYERS,
    TINY,
    Pair,
    layered_pair,
    noisy_pair,
)
from tests.gpu.opening import open_cuda
from tests.gpu.sections import Skip, Task
from tests.gpu.texts import TIE, TIE_HALF, same_text
from tests.gpu.torch_decoder import Decoder
from tests.gpu.torch_model import CudaQueue

__all__ = ["compare_texts", "llama", "run"]

_PROPOSALS = 4


def run(task: Task) -> None:
    if not torch.cuda.is_available():
        raise Skip(f"torch {torch.__version__} has no CUDA that runs here")
    torch.set_float32_matmul_precision("highest")
    with open_cuda(task) as device:
        queue = CudaQueue(device)
        tiny = noisy_pair(queue, TINY, capacity=160, shares_cache=False)
        compare_texts(device, tiny, task, "fp32", tokens=96, tie=TIE)
        large = layered_pair(queue, LARGE, LARGE_DRAFT_LAYERS, capacity=512)
        compare_texts(device, large, task, "fp16, 180 M parameters", tokens=128, tie=TIE_HALF)


def compare_texts(
    device: Device, pair: Pair, task: Task, what: str, *, tokens: int, tie: float
) -> None:
    """`generate`, plain and assisted, and ours: greedy, the same number of proposals."""
    prompt = [int(token) for token in np.random.default_rng(8).integers(3, 500, 32)]
    session = DeviceSession(pair.rounds(device))
    ours: dict[str, list[int]] = {}
    times: dict[str, float] = {}
    for name, length in (("plain", 0), ("speculative", _PROPOSALS)):
        request = Request(tokens, draft_length=length)
        for _ in range(2):  # the first captures
            start = time.perf_counter()
            ours[name] = list(session.generate(prompt, request))
            times[name] = time.perf_counter() - start
    target, draft = llama(pair.target), llama(pair.draft)
    draft.generation_config.update(
        num_assistant_tokens=_PROPOSALS,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    helped: Mapping[str, Mapping[str, Any]] = {
        "generate": {},
        "assisted": {"assistant_model": draft},
    }
    theirs: dict[str, list[int]] = {}
    for name, settings in helped.items():
        for _ in range(2):
            start = time.perf_counter()
            theirs[name] = _generate(target, prompt, tokens, settings)
            times[name] = time.perf_counter() - start
    common = {
        name: same_text(
            task, f"{name}, {what}", text, theirs["generate"], prompt, pair.target_rows, tie
        )
        for name, text in {**ours, "assisted": theirs["assisted"]}.items()
    }
    milliseconds = {name: round(1e3 * taken / tokens, 4) for name, taken in times.items()}
    figures = {"ms_per_token": milliseconds, "tokens_as_generate": common, "tokens": tokens}
    task.note(what, {**figures, "accepted": round(session.statistics.acceptance, 3)})


def llama(decoder: Decoder) -> Any:  # noqa: ANN401 - transformers has no types
    """transformers' model with a copy of a decoder's weights, where these are."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = decoder.shape
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=decoder.capacity,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(decoder.dtype)  # to convert it later would round RoPE's frequencies
    try:
        with torch.device(decoder.device):
            model: Any = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    model.load_state_dict(decoder.weights)
    return model.eval()


def _generate(
    model: Any,  # noqa: ANN401
    prompt: Sequence[int],
    count: int,
    settings: Mapping[str, Any],
) -> list[int]:
    tokens = torch.tensor([prompt], device=model.device)
    with torch.inference_mode():
        found: Tensor = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
            **settings,
        )
    text: list[int] = found[0, len(prompt) :].tolist()
    return text
