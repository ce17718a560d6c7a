"""Configurations of every generation of transformers give the decoder that it would run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers import AutoConfig

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.families.catalogue import FAMILIES, family_of
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata
from tests.families import TINY, tiny

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
}
GPT2_SIZES: dict[str, Any] = {"vocab_size": 100, "n_embd": 48, "n_layer": 12, "n_head": 4}
FACTORS = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]


def read(settings: dict[str, Any]) -> DecoderConfig:
    metadata = Metadata("a/config.json", settings)
    return family_of(metadata).read(metadata)


def sizes(model_type: str) -> dict[str, Any]:
    return {"model_type": model_type, **(GPT2_SIZES if model_type == "gpt2" else SIZES)}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_left_out_settings_are_those_of_transformers(model_type: str) -> None:
    given = sizes(model_type)
    complete = AutoConfig.for_model(**given, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    assert read(given) == read(complete.to_dict())


@pytest.mark.parametrize("name", TINY)
def test_a_saved_configuration_is_read_as_the_one_it_was(name: str) -> None:
    """What transformers writes leaves out what are its defaults."""
    model = tiny(name)
    saved = json.loads(model.model.config.to_json_string(use_diff=True))
    assert read(saved) == model.config


ROPES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("llama", {"rope_theta": 5e5}, {"rope_theta": 5e5}),
    ("llama", {"rope_theta": 500_000, "rope_scaling": None}, {"rope_theta": 5e5}),
    (
        "llama",
        {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    ),
    (
        "llama",
        {
            "rope_theta": 5e5,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            },
        },
        {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ),
    (
        "qwen2",
        {
            "rope_theta": 1e6,
            "rope_scaling": {
                "type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 256,
            },
        },
        {
            "rope_type": "yarn",
            "rope_theta": 1e6,
            "factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ),
]


@pytest.mark.parametrize(("model_type", "version_4", "version_5"), ROPES)
def test_rope_settings_of_either_generation(
    model_type: str, version_4: dict[str, Any], version_5: dict[str, Any]
) -> None:
    given = {**sizes(model_type), "max_position_embeddings": 1024}
    parameters = {"rope_type": "default", **version_5}
    found = read(given | version_4)
    assert found == read(given | {"rope_parameters": parameters})
    assert found != read(given | {"rope_theta": 123.0})
    assert found == read(AutoConfig.for_model(**given, **_copied(version_4)).to_dict())


@pytest.mark.parametrize("kind", ["su", "longrope"])
def test_longrope_of_either_generation(kind: str) -> None:
    """Phi-3 keeps the original context outside the scaling; the rotated part of a head too."""
    given = {**sizes("phi3"), "max_position_embeddings": 1024, "partial_rotary_factor": 1.0}
    outside = {"original_max_position_embeddings": 256, "pad_token_id": 0}
    factors = {"short_factor": FACTORS, "long_factor": FACTORS}
    old = {**outside, "rope_theta": 1e4, "rope_scaling": {"type": kind, **factors}}
    new = {
        **outside,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, **factors},
    }
    assert read(given | old) == read(given | new)
    assert read(given | old).context_length == 256  # one set of factors holds up to there
    if kind == "longrope":
        assert read(given | old) == read(AutoConfig.for_model(**given, **_copied(old)).to_dict())


def test_both_ropes_of_gemma3_of_either_generation() -> None:
    given = sizes("gemma3_text")
    old = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 2e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window_pattern": 4,
    }
    new = {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        },
        "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 3,
    }
    assert read(given | old) == read(given | new)
    assert read(given | old) == read(AutoConfig.for_model(**given, **_copied(old)).to_dict())


def _copied(settings: dict[str, Any]) -> dict[str, Any]:
    """transformers writes into what it is given."""
    copied: dict[str, Any] = json.loads(json.dumps(settings))
    return copied


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("llama", {"hidden_size": None}, r"hidden_size is missing"),
        ("llama", {"hidden_size": "48"}, r"hidden_size must be of type int, not '48'"),
        ("llama", {"hidden_size": True}, r"hidden_size must be of type int, not True"),
        ("llama", {"num_attention_heads": 0}, r"num_attention_heads must be at least 1"),
        ("llama", {"num_key_value_heads": -1}, r"num_key_value_heads must be at least 1"),
        ("llama", {"hidden_act": "relu"}, r"hidden_act relu is not supported; supported: silu"),
        ("llama", {"rope_scaling": {"type": "ntk"}}, r"rope_type ntk .* supported: default"),
        ("llama", {"rope_scaling": {"type": "linear"}}, r"rope_scaling: factor is missing"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale": 1.0}},
            r"rope_parameters: mscale 1\.0 is not supported; supported: yarn without it",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale_all_dim": 1.0}},
            r"mscale_all_dim 1\.0",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "truncate": False}},
            r"truncate False",
        ),
        (
            "phi3",
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
            r"short_factor of length 1 is not supported; supported: 6 factors",
        ),
        ("mistral", {"layer_types": ["chunked_attention"] * 12}, r"layer_types chunked_attention"),
        ("mistral", {"layer_types": ["full_attention"]}, r"has 1 entries for 12 layers"),
        ("smollm3", {"use_sliding_window": True}, r"use_sliding_window True"),
        ("smollm3", {"no_rope_layers": [1, 0]}, r"no_rope_layers of length 2"),
        ("gemma2", {"use_bidirectional_attention": True}, r"use_bidirectional_attention True"),
        ("gemma3_text", {"query_pre_attn_scalar": None}, r"query_pre_attn_scalar is missing"),
        ("gpt2", {"scale_attn_weights": False}, r"scale_attn_weights False"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, r"inverse_layer_idx True"),
    ],
)
def test_refusals(model_type: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=rf"^a/config\.json: [^\n]*{message}[^\n]*$"):
        read(sizes(model_type) | changes)
