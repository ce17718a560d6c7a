from __future__ import annotations

import pytest
from transformers import LlamaConfig

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.families import decoder_config
from speccompile.compiler.sources.checkpoint import SourceError

SETTINGS: dict[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
}


def test_left_out_settings_are_those_of_transformers() -> None:
    given = {key: value for key, value in SETTINGS.items() if key != "architectures"}
    assert decoder_config(SETTINGS) == decoder_config(LlamaConfig.from_dict(given).to_dict())


def test_all_settings() -> None:
    full = SETTINGS | {
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "rope_theta": 5e5,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "rope_scaling": None,
    }
    assert decoder_config(full) == DecoderConfig(
        vocab_size=100,
        hidden_size=48,
        intermediate_size=80,
        layers=3,
        heads=6,
        kv_heads=2,
        head_dim=16,
        context_length=512,
        rope_theta=5e5,
        rms_norm_eps=1e-5,
        tied_embeddings=True,
    )


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 100000},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}},
        {"rope_theta": 1e5, "rope_scaling": {"type": "default"}},
    ],
)
def test_rope_theta_of_either_generation(rope: dict[str, object]) -> None:
    assert decoder_config(SETTINGS | rope).rope_theta == 100_000.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, r"model_type gpt2 is not supported; supported: llama"),
        ({"auto_map": {}}, r"auto_map"),
        ({"architectures": ["LlamaForSequenceClassification"]}, r"supported: LlamaForCausalLM"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantization_config"),
        ({"hidden_act": "gelu"}, r"hidden_act gelu is not supported; supported: silu"),
        ({"attention_bias": True}, r"attention_bias True is not supported"),
        ({"mlp_bias": True}, r"mlp_bias True is not supported"),
        ({"rope_parameters": {"rope_type": "llama3"}}, r"rope_parameters.rope_type llama3"),
        ({"rope_scaling": {"type": "linear"}}, r"rope_scaling.rope_type linear"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, r"partial_rotary_factor"),
        ({"hidden_size": None}, r"hidden_size is missing"),
        ({"hidden_size": "48"}, r"hidden_size must be of type int, not '48'"),
        ({"hidden_size": True}, r"hidden_size must be of type int, not True"),
        ({"num_attention_heads": 0}, r"num_attention_heads must be at least 1"),
        ({"num_key_value_heads": -1}, r"num_key_value_heads must be at least 1"),
    ],
)
def test_refusals(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SourceError, match=rf"^a/config\.json: .*{message}"):
        decoder_config(SETTINGS | changes, where="a/config.json")
