"""From a Hugging Face configuration to a DecoderConfig: which model families can be compiled.

A setting that changes the arithmetic and that the decoder does not implement is refused by name:
a model that was built without it would run and give other text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["decoder_config"]


def decoder_config(config: Mapping[str, object], *, where: str = "config.json") -> DecoderConfig:
    """Read the contents of a config.json, which messages name as `where`.

    Raises SourceError for another family, for code in place of a family, for a missing
    dimension, and for settings that the family allows but the decoder does not.
    """
    settings = Metadata(where, config)
    if "auto_map" in config:
        raise SourceError(
            f"{where}: auto_map asks to run Python from the model's folder, which is never done; "
            "use a model of a built-in architecture"
        )
    family = settings.required("model_type", str)
    if family not in _FAMILIES:
        raise SourceError(
            f"{where}: model_type {family} is not supported; supported: {', '.join(_FAMILIES)}"
        )
    return _FAMILIES[family](settings)


def _llama(settings: Metadata) -> DecoderConfig:
    architectures = settings.optional("architectures", list)
    if architectures and "LlamaForCausalLM" not in architectures:
        _refuse(settings, "architectures", architectures, "LlamaForCausalLM")
    if settings.optional("quantization_config", dict) is not None:
        raise SourceError(
            f"{settings.where}: quantization_config is not supported; use the model's fp32, fp16 "
            "or bf16 weights, the compiler quantizes them itself"
        )
    if (activation := settings.optional("hidden_act", str)) not in (None, "silu"):
        _refuse(settings, "hidden_act", activation, "silu")
    for bias in ("attention_bias", "mlp_bias"):
        if settings.optional(bias, bool):
            _refuse(settings, bias, True, "false")
    hidden_size = settings.size("hidden_size")
    heads = settings.size("num_attention_heads")
    # Left-out keys have the defaults of transformers' LlamaConfig.
    return DecoderConfig(
        vocab_size=settings.size("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=settings.size("intermediate_size"),
        layers=settings.size("num_hidden_layers"),
        heads=heads,
        kv_heads=settings.size("num_key_value_heads", heads),
        head_dim=settings.size("head_dim", hidden_size // heads),
        context_length=settings.size("max_position_embeddings", 2048),
        rope_theta=_rope_theta(settings),
        rms_norm_eps=settings.optional("rms_norm_eps", float) or 1e-6,
        tied_embeddings=settings.optional("tie_word_embeddings", bool) or False,
    )


def _rope_theta(settings: Metadata) -> float:
    """The base of unscaled RoPE, from where transformers 5 (rope_parameters) or 4 keeps it."""
    theta = settings.optional("rope_theta", float)
    for key in ("rope_parameters", "rope_scaling"):
        rope = Metadata(f"{settings.where}: {key}", settings.optional(key, dict) or {})
        kind = rope.optional("rope_type", str) or rope.optional("type", str) or "default"
        if kind != "default":
            _refuse(settings, f"{key}.rope_type", kind, "default")
        if rope.optional("partial_rotary_factor", float) not in (None, 1.0):
            raise SourceError(f"{rope.where}.partial_rotary_factor is not supported")
        theta = rope.optional("rope_theta", float) or theta
    return theta or 10_000.0


def _refuse(settings: Metadata, key: str, value: object, supported: str) -> None:
    raise SourceError(f"{settings.where}: {key} {value} is not supported; supported: {supported}")


_FAMILIES: dict[str, Callable[[Metadata], DecoderConfig]] = {"llama": _llama}
