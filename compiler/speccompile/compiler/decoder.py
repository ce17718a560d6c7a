"""What a decoder is, whatever file it came from: one definition with the parts families vary in.

A family (see `families/`) is a choice of these parts; `emit.py` emits them, and knows no family.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "DecoderConfig",
    "Encoder",
    "LayerKind",
    "LayerNorms",
    "PositionBias",
    "Rope",
    "is_norm",
    "layer_norms",
    "of_layers",
    "tensor_shapes",
]

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of the first 2 x len(frequencies) channels of a head.

    `frequencies` are radians a position, fp32 values; `attention_factor` scales cosine and sine.
    """

    frequencies: tuple[float, ...]
    attention_factor: float = 1.0


@dataclass(frozen=True)
class LayerKind:
    """How a layer attends: its rotary embedding, if any, and the last `window` positions it sees,
    its own included (None: all)."""

    rope: Rope | None
    window: int | None = None


@dataclass(frozen=True)
class PositionBias:
    """What is added to a score by how far the key is from the query (T5, arXiv 1910.10683).

    Every head learns a number for each of the `buckets` of distances, which become wider up to
    `max_distance` (`position_buckets`). All layers add the same: the first one holds the table.
    """

    buckets: int
    max_distance: int


@dataclass(frozen=True)
class Encoder:
    """What reads the source of a decoder: `layers` of the decoder's own dimensions and parts, each
    of whose rows sees all of the source.

    Every layer of the decoder attends to the encoder's rows, between its own attention and its
    feed-forward, and every sequence of the decoder begins with `start_token`.
    """

    layers: int
    start_token: int


@dataclass(frozen=True)
class DecoderConfig:
    """Dimensions and parts of a decoder.

    Layer i is of kind ``kinds[layer_kinds[i]]``. A sublayer's input is normalized if `norm_before`,
    its output if `norm_after`. `query_key_norm` is per head of D channels or over all heads at
    once. Without `gated`, the feed-forward has an up and a down projection only. Scales multiply
    embeddings, every sublayer's output, attention scores and logits; a softcap c turns x into
    c tanh(x / c). `learned_positions` counts the rows of a table added to the embeddings. With an
    `encoder` the decoder has a source, and cross-attention; both embed tokens by one table.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    context_length: int
    kinds: tuple[LayerKind, ...]
    layer_kinds: tuple[int, ...]
    tied_embeddings: bool
    norm_epsilon: float
    attention_scale: float
    norm: Literal["rms", "layer"] = "rms"
    norm_before: bool = True
    norm_after: bool = False
    query_key_norm: Literal["none", "head", "all_heads"] = "none"
    activation: Activation = "silu"
    gated: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    learned_positions: int | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    position_bias: PositionBias | None = None
    encoder: Encoder | None = None

    @property
    def layers(self) -> int:
        return len(self.layer_kinds)

    def kind(self, layer: int) -> LayerKind:
        return self.kinds[self.layer_kinds[layer]]

    def window(self, capacity: int) -> int | None:
        """The one sliding window of the model's layers; None if a cache of `capacity` fits it."""
        windows = {kind.window for kind in self.kinds if kind.window and kind.window < capacity}
        if len(windows) > 1:
            raise ValueError(f"layers with windows of {sorted(windows)} are not supported")
        return windows.pop() if windows else None


@dataclass(frozen=True)
class LayerNorms:
    """The names of a layer's norms, relative to the layer; None where the family has none."""

    before_attention: str | None
    after_attention: str | None
    before_mlp: str | None
    after_mlp: str | None

    def __iter__(self) -> Iterator[str]:
        names = self.before_attention, self.after_attention, self.before_mlp, self.after_mlp
        return (name for name in names if name)


def layer_norms(config: DecoderConfig) -> LayerNorms:
    """The norms of a layer. Llama's second is named after what it follows: it precedes the mlp."""
    before, after = config.norm_before, config.norm_after
    return LayerNorms(
        before_attention="input_layernorm" if before else None,
        after_attention="post_attention_layernorm" if after else None,
        before_mlp=(
            None
            if not before
            else "pre_feedforward_layernorm"
            if after
            else "post_attention_layernorm"
        ),
        after_mlp="post_feedforward_layernorm" if after else None,
    )


def tensor_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Canonical tensor names with their shapes, in model order.

    The names are those of Hugging Face's Llama and, for parts that it lacks, of the family that
    brought them. Linear weights are ``[out, in]``.
    """
    return dict(_tensors(config))


def is_norm(name: str) -> bool:
    """Whether a canonical tensor is a norm's weight or bias."""
    return name.split(".")[-2].endswith("norm")


def of_layers(name: str, layers: Sequence[int]) -> str:
    """What tensor `name` of a decoder made of some `layers` of another is called in that."""
    parts = name.split(".")
    if parts[:2] == ["model", "layers"]:
        parts[2] = str(layers[int(parts[2])])
    return ".".join(parts)


def _tensors(config: DecoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden = config.hidden_size
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    if config.learned_positions:
        yield "model.embed_positions.weight", (config.learned_positions, hidden)
    if config.encoder:
        yield from _stack(config, "encoder", config.encoder.layers)
    yield from _stack(config, "model", config.layers, cross=config.encoder is not None)
    if not config.tied_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)


def _stack(
    config: DecoderConfig, stack: str, layers: int, *, cross: bool = False
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The layers of decoder or encoder, and the norm behind them."""
    hidden, inner = config.hidden_size, config.intermediate_size
    for index in range(layers):
        layer = f"{stack}.layers.{index}"
        mlp = f"{layer}.mlp"
        for norm in layer_norms(config):
            yield from _norm(config, f"{layer}.{norm}", hidden)
        yield from _attention(config, f"{layer}.self_attn")
        if config.position_bias and index == 0:
            yield f"{layer}.self_attn.position_bias", (config.position_bias.buckets, config.heads)
        if cross:
            yield from _norm(config, f"{layer}.cross_attn_layernorm", hidden)
            yield from _attention(config, f"{layer}.cross_attn")
        if config.gated:
            yield from _linear(f"{mlp}.gate_proj", inner, hidden, config.mlp_bias)
        yield from _linear(f"{mlp}.up_proj", inner, hidden, config.mlp_bias)
        yield from _linear(f"{mlp}.down_proj", hidden, inner, config.mlp_bias)
    yield from _norm(config, f"{stack}.norm", hidden)


def _attention(config: DecoderConfig, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden = config.hidden_size
    query, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    yield from _linear(f"{name}.q_proj", query, hidden, config.qkv_bias)
    yield from _linear(f"{name}.k_proj", kv, hidden, config.qkv_bias)
    yield from _linear(f"{name}.v_proj", kv, hidden, config.qkv_bias)
    if config.query_key_norm != "none":
        per_head = config.query_key_norm == "head"
        yield f"{name}.q_norm.weight", (config.head_dim if per_head else query,)
        yield f"{name}.k_norm.weight", (config.head_dim if per_head else kv,)
    yield from _linear(f"{name}.o_proj", hidden, query, config.output_bias)


def _linear(name: str, width: int, depth: int, bias: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width, depth)
    if bias:
        yield f"{name}.bias", (width,)


def _norm(config: DecoderConfig, name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    if config.norm == "layer":
        yield f"{name}.bias", (width,)
