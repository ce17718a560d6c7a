"""What an artifact takes at run time, from its dimensions alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.precision import tensor_precisions
from speccompile.runtime.errors import SpeccompileError

__all__ = ["cache_bytes", "check_budget", "weight_bytes"]

_BYTES_HELD = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
_CONVERTED = {"fp16": 4, "bf16": 4}  # by OpenVINO, which computes in fp32


def weight_bytes(
    config: DecoderConfig,
    precision: str,
    layers: Mapping[str, str],
    engines: Sequence[str],
    *,
    head_rows: int = 0,
) -> int:
    """The weights of an open engine, of those `engines` that takes most; `precision` and `layers`
    as in `tensor_precisions`.

    A head of `head_rows` tokens, other than 0, is a matrix of its own.
    """
    held = _BYTES_HELD | (_CONVERTED if "openvino" in engines else {})
    shapes = tensor_shapes(config)
    precisions = tensor_precisions(config, precision, layers)
    sizes = {name: prod(shapes[name]) * held[kind] for name, kind in precisions.items()}
    if head_rows:
        whole = "model.embed_tokens.weight" if config.tied_embeddings else "lm_head.weight"
        restricted = sizes[whole] * head_rows // config.vocab_size
        if not config.tied_embeddings:
            del sizes[whole]
        sizes["restricted head"] = restricted
    if config.encoder:  # an engine of its own, which reads the table of embeddings too
        sizes["embeddings of the encoder"] = sizes["model.embed_tokens.weight"]
    return sum(sizes.values())


def cache_bytes(config: DecoderConfig, capacity: int) -> int:
    """The fp32 key and value caches of one sequence, and as many of its source, if it has one."""
    kinds = 4 if config.encoder else 2
    return kinds * config.layers * config.kv_heads * capacity * config.head_dim * 4


def check_budget(parts: Mapping[str, int], gigabytes: float | None) -> None:
    """Raise SpeccompileError, with the parts, if they take more than `gigabytes` (10^9 bytes)."""
    total = sum(parts.values())
    if gigabytes is not None and total > gigabytes * 1e9:
        listing = ", ".join(f"{name} {size / 1e9:.3g}" for name, size in parts.items())
        raise SpeccompileError(
            f"engine.memory_gb is {gigabytes:g}, but the artifact takes {total / 1e9:.3g} GB "
            f"({listing}); raise it, lower context.length, or choose a lower precision"
        )
