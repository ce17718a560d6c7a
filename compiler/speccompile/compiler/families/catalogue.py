"""The families that can be compiled, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping

from speccompile.compiler.families.family import Family
from speccompile.compiler.families.gemma import GEMMA2, GEMMA3
from speccompile.compiler.families.gpt2 import GPT2
from speccompile.compiler.families.granite import GRANITE
from speccompile.compiler.families.llama import LLAMA, MISTRAL, SMOLLM3
from speccompile.compiler.families.olmo2 import OLMO2
from speccompile.compiler.families.phi3 import PHI3
from speccompile.compiler.families.qwen import QWEN2, QWEN3
from speccompile.compiler.families.t5 import T5
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["ENCODER_DECODERS", "FAMILIES", "family_of", "gguf_family"]

FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        LLAMA,
        MISTRAL,
        SMOLLM3,
        QWEN2,
        QWEN3,
        GEMMA2,
        GEMMA3,
        PHI3,
        GPT2,
        GRANITE,
        OLMO2,
    )
}

ENCODER_DECODERS: Mapping[str, Family] = {family.model_type: family for family in (T5,)}
"""Families whose decoder has an encoder; of GGUF files they are not read."""

_ALL = {**FAMILIES, **ENCODER_DECODERS}

# Words of a model_type that say what the decoder lacks.
_FOREIGN = {
    "a mixture of experts": ("moe", "mixtral", "dbrx", "deepseek", "gpt_oss", "llama4", "minimax"),
    "a recurrent or hybrid model": (
        *("mamba", "rwkv", "recurrent", "jamba", "zamba", "bamba", "hybrid", "lfm", "xlstm"),
        *("next", "qwen3_5", "nemotron_h"),
    ),
    "a model of images or sound": (
        *("vl", "llava", "vision", "clip", "mllama", "audio", "omni", "whisper", "paligemma"),
        *("gemma3", "gemma3n", "gemma4", "multimodal", "idefics", "smolvlm"),
    ),
    "an encoder-decoder model": ("t5", "bart", "marian", "pegasus", "encoder_decoder"),
}


def family_of(settings: Metadata) -> Family:
    """The family of a config.json.

    Raises SourceError for another family, naming what makes it foreign and what is supported; for
    code in place of a family; and for weights that are quantized already.
    """
    family = _ALL.get(settings.optional("model_type", str) or "")
    _refuse_code(settings, family)
    model_type = settings.required("model_type", str)
    if family is None:
        raise SourceError(
            f"{settings.where}: model_type {model_type}{_foreign(model_type)} is not supported; "
            f"supported: {', '.join(_ALL)}"
        )
    architectures = settings.optional("architectures", list)
    if architectures and family.architecture not in architectures:
        raise settings.refusal("architectures", architectures, family.architecture)
    if settings.optional("quantization_config", dict) is not None:
        raise SourceError(
            f"{settings.where}: quantization_config is not supported; use the model's fp32, fp16 "
            "or bf16 weights, the compiler quantizes them itself"
        )
    return family


def gguf_family(metadata: Metadata) -> Family:
    """The family of a GGUF file; raises SourceError for another one, naming those supported."""
    name = metadata.required("general.architecture", str)
    # Of those that share a name, Llama and Mistral, the first: the converter leaves no difference.
    families: dict[str, Family] = {}
    for family in FAMILIES.values():
        families.setdefault(family.gguf.architecture, family)
    if name not in families:
        raise SourceError(
            f"{metadata.where}: general.architecture {name}{_foreign(name)} is not supported; "
            f"supported: {', '.join(sorted(families))}"
        )
    return families[name]


def _refuse_code(settings: Metadata, family: Family | None) -> None:
    named = settings.optional("auto_map", dict) or {}
    known = family.published_code if family else frozenset[str]()
    # The tokenizer is read from tokenizer.json, whatever class is named for it.
    classes = {
        str(name).rpartition(".")[2] for role, name in named.items() if role != "AutoTokenizer"
    }
    if named and not (known and classes <= known):
        raise SourceError(
            f"{settings.where}: auto_map asks to run Python from the model's folder, which is "
            "never done; use a model of a built-in architecture"
        )


def _foreign(model_type: str) -> str:
    for what, words in _FOREIGN.items():
        if any(word in model_type for word in words):
            return f" ({what})"
    return ""
