"""What the configurations of most families have in common, read once.

A setting that changes the arithmetic and that the decoder does not implement is refused by name:
a model built without it would run and give other text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speccompile.compiler.decoder import Activation, DecoderConfig, LayerKind
from speccompile.compiler.families.rotation import context_length, read_rope
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["activation", "flag", "head_size", "read_decoder", "sliding_kinds", "windows"]

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def read_decoder(settings: Metadata, kinds: Sequence[LayerKind] | None = None) -> DecoderConfig:
    """The decoder of a configuration with Llama's keys, of Llama's parts.

    `kinds` are those of the layers, by default all alike with the RoPE and without a window.
    """
    if kinds is None:
        kinds = [LayerKind(read_rope(settings, head_size(settings)))] * _layers(settings)
    distinct = tuple(dict.fromkeys(kinds))
    heads = settings.size("num_attention_heads")
    return DecoderConfig(
        vocab_size=settings.size("vocab_size"),
        hidden_size=settings.size("hidden_size"),
        intermediate_size=settings.size("intermediate_size"),
        heads=heads,
        kv_heads=settings.size("num_key_value_heads", heads),
        head_dim=head_size(settings),
        context_length=context_length(settings),
        kinds=distinct,
        layer_kinds=tuple(distinct.index(kind) for kind in kinds),
        tied_embeddings=flag(settings, "tie_word_embeddings"),
        norm_epsilon=settings.optional("rms_norm_eps", float) or 1e-6,
        attention_scale=head_size(settings) ** -0.5,
        activation=activation(settings, "hidden_act", "silu"),
    )


def head_size(settings: Metadata) -> int:
    """Channels of a head."""
    heads = settings.size("num_attention_heads")
    return settings.size("head_dim", settings.size("hidden_size") // heads)


def sliding_kinds(settings: Metadata, *, sliding: Sequence[bool]) -> list[LayerKind]:
    """The kinds of layers that differ in their windows only; `sliding` is that of `windows`."""
    rope = read_rope(settings, head_size(settings))
    return [LayerKind(rope, window) for window in windows(settings, sliding=sliding)]


def windows(settings: Metadata, *, sliding: Sequence[bool]) -> list[int | None]:
    """Each layer's window: as layer_types says, else where `sliding` is true."""
    layers = _layers(settings)
    window = settings.optional("sliding_window", int) or None
    if settings.optional("layer_types", list) is not None:
        kinds = settings.sequence("layer_types", str)
        for kind in kinds:
            if kind not in ("full_attention", "sliding_attention"):
                raise settings.refusal("layer_types", kind, "full_attention, sliding_attention")
        sliding = [kind == "sliding_attention" for kind in kinds]
    if len(sliding) != layers:
        raise SourceError(
            f"{settings.where}: layer_types has {len(sliding)} entries for {layers} layers"
        )
    return [window if slides else None for slides in sliding]


def activation(settings: Metadata, key: str, default: str) -> Activation:
    name = settings.optional(key, str) or default
    if name not in _ACTIVATIONS:
        raise settings.refusal(key, name, ", ".join(_ACTIVATIONS))
    return _ACTIVATIONS[name]


def flag(settings: Metadata, key: str, default: bool = False) -> bool:
    value = settings.optional(key, bool)
    return default if value is None else value


def _layers(settings: Metadata) -> int:
    return settings.size("num_hidden_layers")
