"""The rotary embedding of a configuration, from where transformers 5 or 4 keeps its settings."""

from __future__ import annotations

from speccompile.compiler.decoder import Rope
from speccompile.compiler.rope import linear_rope, llama3_rope, long_rope, plain_rope, yarn_rope
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["context_length", "read_rope"]


def read_rope(settings: Metadata, head_dim: int, parameters: Metadata | None = None) -> Rope:
    """The rotary embedding; `parameters` are those of one kind of layer, where kinds differ."""
    rope = parameters or _parameters(settings)
    theta = _number(rope, settings, "rope_theta") or 10_000.0
    dim = int(head_dim * (_number(rope, settings, "partial_rotary_factor") or 1.0))
    context = _trained_context(settings)
    original = _original_context(settings, rope) or context
    match kind := _kind(rope):
        # Dynamic NTK scaling begins past the trained context, which is never passed here.
        case "default" | "dynamic":
            return plain_rope(theta, dim)
        case "linear":
            return linear_rope(theta, dim, factor=rope.required("factor", float))
        case "llama3":
            return llama3_rope(
                theta,
                dim,
                factor=rope.required("factor", float),
                low_freq_factor=rope.required("low_freq_factor", float),
                high_freq_factor=rope.required("high_freq_factor", float),
                original_context=original,
            )
        case "yarn":
            _refuse_variants_of_yarn(rope)
            return yarn_rope(
                theta,
                dim,
                factor=rope.optional("factor", float) or context / original,
                original_context=original,
                beta_fast=rope.optional("beta_fast", float) or 32.0,
                beta_slow=rope.optional("beta_slow", float) or 1.0,
                attention_factor=rope.optional("attention_factor", float),
            )
        case "longrope":
            return long_rope(
                theta,
                dim,
                channel_factors=_channel_factors(rope, dim),
                factor=rope.optional("factor", float) or context / original,
                original_context=original,
                attention_factor=rope.optional("attention_factor", float),
            )
        case _:
            raise rope.refusal(
                "rope_type", kind, "default, dynamic, linear, llama3, yarn, longrope"
            )


def context_length(settings: Metadata) -> int:
    """The longest sequence; with LongRoPE the one up to which a single set of factors holds."""
    context, rope = _trained_context(settings), _parameters(settings)
    if _kind(rope) == "longrope":
        return min(context, _original_context(settings, rope) or context)
    return context


def _parameters(settings: Metadata) -> Metadata:
    for key in ("rope_parameters", "rope_scaling"):
        if values := settings.optional(key, dict):
            return Metadata(f"{settings.where}: {key}", values)
    return Metadata(f"{settings.where}: rope_parameters", {})


def _kind(rope: Metadata) -> str:
    """Its name; the oldest files write ``type``, and LongRoPE's as su."""
    kind = rope.optional("rope_type", str) or rope.optional("type", str) or "default"
    return "longrope" if kind == "su" else kind


def _number(rope: Metadata, settings: Metadata, key: str) -> float | None:
    return rope.optional(key, float) or settings.optional(key, float)


def _trained_context(settings: Metadata) -> int:
    return settings.size("max_position_embeddings", 2048)


def _original_context(settings: Metadata, rope: Metadata) -> int | None:
    key = "original_max_position_embeddings"
    return rope.optional(key, int) or settings.optional(key, int)


def _refuse_variants_of_yarn(rope: Metadata) -> None:
    for key in ("mscale", "mscale_all_dim"):
        if (value := rope.optional(key, float)) is not None:
            raise rope.refusal(key, value, "yarn without it")
    if rope.optional("truncate", bool) is False:
        raise rope.refusal("truncate", False, "true")


def _channel_factors(rope: Metadata, dim: int) -> list[float]:
    factors = rope.sequence("short_factor", float)
    if len(factors) != dim // 2:
        raise rope.refusal("short_factor", f"of length {len(factors)}", f"{dim // 2} factors")
    return factors
