"""What is not supported is refused in one line that says what it is and what is supported."""

from __future__ import annotations

from typing import Any

import gguf
import pytest
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

from speccompile.compiler.families.catalogue import FAMILIES, family_of
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata
from tests.families import TINY

SUPPORTED = (
    "llama, mistral, smollm3, qwen2, qwen3, gemma2, gemma3_text, phi3, gpt2, granite, olmo2, t5"
)


def family(**settings: Any) -> str:  # noqa: ANN401 - what a config.json may hold
    return family_of(Metadata("a/config.json", settings)).model_type


@pytest.mark.parametrize("model_type", FAMILIES)
def test_names_are_those_of_the_libraries(model_type: str) -> None:
    known = FAMILIES[model_type]
    model: Any = MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[model_type]]
    assert model.__name__ == known.architecture
    assert known.gguf.architecture in gguf.MODEL_ARCH_NAMES.values()
    assert family(model_type=model_type, architectures=[known.architecture]) == model_type


def test_every_family_has_a_tiny_model() -> None:
    assert {model_type for model_type, _ in TINY.values()} == set(FAMILIES)


@pytest.mark.parametrize(
    ("model_type", "what"),
    [
        ("mixtral", "a mixture of experts"),
        ("qwen3_moe", "a mixture of experts"),
        ("granitemoe", "a mixture of experts"),
        ("gpt_oss", "a mixture of experts"),
        ("deepseek_v2", "a mixture of experts"),
        ("deepseek_v3", "a mixture of experts"),
        ("llama4", "a mixture of experts"),
        ("mamba", "a recurrent or hybrid model"),
        ("recurrent_gemma", "a recurrent or hybrid model"),
        ("rwkv", "a recurrent or hybrid model"),
        ("qwen3_next", "a recurrent or hybrid model"),
        ("gemma3", "a model of images or sound"),
        ("llava", "a model of images or sound"),
        ("qwen2_vl", "a model of images or sound"),
        ("mllama", "a model of images or sound"),
        ("whisper", "a model of images or sound"),
        ("mt5", "an encoder-decoder model"),
        ("bart", "an encoder-decoder model"),
    ],
)
def test_foreign_models_are_named(model_type: str, what: str) -> None:
    message = rf"^a/config\.json: model_type {model_type} \({what}\) is not supported; supported: "
    with pytest.raises(SourceError, match=message + f"{SUPPORTED}$"):
        family(model_type=model_type)


@pytest.mark.parametrize("model_type", ["olmo3", "falcon", "starcoder2", "bert", "../llama", ""])
def test_other_models_are_refused(model_type: str) -> None:
    with pytest.raises(SourceError, match=r"is not supported; supported: llama, mistral"):
        family(model_type=model_type)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"model_type is missing"),
        ({"model_type": 5}, r"model_type must be of type str"),
        (
            {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]},
            r"architectures \['LlamaForSequenceClassification'\] is not supported; "
            r"supported: LlamaForCausalLM",
        ),
        (
            {"model_type": "llama", "quantization_config": {"quant_method": "gptq"}},
            r"quantization_config is not supported; use the model's fp32",
        ),
        ({"model_type": "llama", "auto_map": {"AutoModel": "x.Y"}}, r"auto_map asks to run"),
        ({"model_type": "unknown", "auto_map": {"AutoModel": "x.Y"}}, r"auto_map asks to run"),
        ({"model_type": "llama", "auto_map": {"AutoTokenizer": "x.Y"}}, r"auto_map asks to run"),
        ({"model_type": "phi3", "auto_map": {"AutoModel": 5}}, r"auto_map asks to run"),
    ],
)
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=rf"^a/config\.json: {message}[^\n]*$"):
        family(**settings)
