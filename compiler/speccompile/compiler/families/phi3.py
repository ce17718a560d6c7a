"""Phi-3, Phi-3.5 and Phi-4: Llama with fused projections, and LongRoPE on part of a head."""

from __future__ import annotations

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.families.family import Converted, Family, Stored
from speccompile.compiler.families.reading import read_decoder, sliding_kinds
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["PHI3"]


def _phi3(settings: Metadata) -> DecoderConfig:
    layers = settings.size("num_hidden_layers")
    return read_decoder(settings, sliding_kinds(settings, sliding=[True] * layers))


def _stored(config: DecoderConfig, name: str) -> Stored:
    """q, k and v lie in one matrix, gate and up in another."""
    owner, _, part = name.removesuffix(".weight").rpartition(".")
    query, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    inner = config.intermediate_size
    fused = {
        "q_proj": ("qkv_proj", (0, query)),
        "k_proj": ("qkv_proj", (query, query + kv)),
        "v_proj": ("qkv_proj", (query + kv, query + 2 * kv)),
        "gate_proj": ("gate_up_proj", (0, inner)),
        "up_proj": ("gate_up_proj", (inner, 2 * inner)),
    }
    if part not in fused:
        return Stored(name)
    matrix, rows = fused[part]
    return Stored(f"{owner}.{matrix}.weight", rows)


PHI3 = Family(
    "phi3",
    "Phi3ForCausalLM",
    _phi3,
    Converted("phi3", {"attention.sliding_window": "sliding_window"}),
    defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
    stored=_stored,
    published_code=frozenset({"Phi3Config", "Phi3ForCausalLM"}),
)
