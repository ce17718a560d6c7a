"""The main keys of published config.json files, and what is known of those models."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pytest

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.families.catalogue import FAMILIES, family_of
from speccompile.compiler.sources.metadata import Metadata

SETTINGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("published.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Known:
    """A model's `parameters` in millions, and `parts` that its decoder must have.

    `windows` are those of its first layers; `rotated` counts the channels of a head in the first
    one, None being all.
    """

    parameters: int
    parts: dict[str, Any]
    windows: tuple[int | None, ...] = (None,)
    rotated: int | None = None


KNOWN = {
    "Llama-3.2-1B": Known(1236, {"context_length": 131072, "kv_heads": 8}),
    "Mistral-7B-v0.3": Known(7248, {"head_dim": 128, "context_length": 32768}),
    "Mistral-7B-v0.1": Known(7242, {"tied_embeddings": False}, windows=(4096, 4096)),
    "SmolLM3-3B": Known(3075, {"layer_kinds": (0, 0, 0, 1) * 9, "tied_embeddings": True}),
    "Qwen2.5-Coder-1.5B": Known(1544, {"qkv_bias": True, "output_bias": False, "head_dim": 128}),
    "Qwen3-0.6B": Known(596, {"query_key_norm": "head", "attention_scale": 128**-0.5}),
    "gemma-2-2b": Known(
        2614,
        {
            "attention_softcap": 50.0,
            "logit_softcap": 30.0,
            "embedding_scale": 48.0,
            "activation": "gelu_tanh",
            "tied_embeddings": True,
        },
        windows=(4096, None, 4096, None),
    ),
    "gemma-3-1b": Known(
        1000,
        {"query_key_norm": "head", "attention_softcap": None, "logit_softcap": None},
        windows=(*[512] * 5, None, 512),
    ),
    "gemma-3-270m": Known(268, {"attention_scale": 256**-0.5}, windows=(*[512] * 5, None, 512)),
    "Phi-3.5-mini": Known(3821, {"context_length": 4096, "head_dim": 96}, windows=(262144,)),
    "Phi-4-mini": Known(
        3836, {"context_length": 4096, "head_dim": 128}, windows=(262144,), rotated=96
    ),
    "gpt2": Known(
        124, {"learned_positions": 1024, "norm": "layer", "activation": "gelu_tanh"}, rotated=0
    ),
    "granite-3.1-2b": Known(
        2534,
        {
            "attention_scale": 1 / 64,
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "logit_scale": 1 / 8,
        },
    ),
    "OLMo-2-0425-1B": Known(
        1485, {"query_key_norm": "all_heads", "norm_before": False, "norm_after": True}
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_published_models(name: str) -> None:
    known, settings = KNOWN[name], Metadata(f"{name}/config.json", SETTINGS[name])
    config = family_of(settings).read(settings)
    assert {part: getattr(config, part) for part in known.parts} == known.parts
    windows = tuple(config.kind(layer).window for layer in range(len(known.windows)))
    assert windows == known.windows
    assert _rotated(config) == (config.head_dim if known.rotated is None else known.rotated)
    parameters = sum(prod(shape) for shape in tensor_shapes(config).values())
    assert round(parameters / 1e6) == known.parameters


def test_there_is_one_of_every_family() -> None:
    assert KNOWN.keys() == SETTINGS.keys()
    assert {settings["model_type"] for settings in SETTINGS.values()} == set(FAMILIES)


def _rotated(config: DecoderConfig) -> int:
    rope = config.kind(0).rope
    return 2 * len(rope.frequencies) if rope else 0
