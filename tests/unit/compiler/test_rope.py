"""Rotary embeddings are those of transformers.

To a last bit: torch's fp32 power rounds either way, by the instructions of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from speccompile.compiler.decoder import Rope
from speccompile.compiler.rope import (
    linear_rope,
    llama3_rope,
    long_rope,
    plain_rope,
    rope_tables,
    yarn_rope,
)

THETAS = (10_000.0, 100_000.0, 500_000.0, 1_000_000.0, 5_000_000.0)
DIMS = (16, 48, 64, 96, 128, 256)
LAST_BIT = 2.0**-23


def oracle(kind: str, theta: float, dim: int, **scaling: object) -> tuple[torch.Tensor, float]:
    """Frequencies and attention factor."""
    config = LlamaConfig(
        head_dim=dim,
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": kind, "rope_theta": theta, **scaling},
    )
    rotary = LlamaRotaryEmbedding(config)
    frequencies: Any = rotary.inv_freq
    return frequencies, float(rotary.attention_scaling)


def assert_same(ours: Rope, theirs: tuple[torch.Tensor, float], *, bits: int = 2) -> None:
    frequencies, factor = theirs
    np.testing.assert_allclose(ours.frequencies, frequencies.numpy(), rtol=bits * LAST_BIT, atol=0)
    assert ours.attention_factor == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("dim", DIMS)
def test_frequencies(theta: float, dim: int) -> None:
    assert_same(plain_rope(theta, dim), oracle("default", theta, dim))
    assert_same(linear_rope(theta, dim, factor=3.0), oracle("linear", theta, dim, factor=3.0))
    bands = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    assert_same(
        llama3_rope(theta, dim, **bands, original_context=8192),
        oracle("llama3", theta, dim, **bands, original_max_position_embeddings=8192),
        bits=16,  # its ramp takes the difference of two near numbers
    )


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(
    "more", [{}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"attention_factor": 2.0}], ids=str
)
def test_yarn(theta: float, dim: int, more: dict[str, float]) -> None:
    assert_same(
        yarn_rope(theta, dim, factor=4.0, original_context=8192, **more),
        oracle("yarn", theta, dim, factor=4.0, original_max_position_embeddings=8192, **more),
    )


@pytest.mark.parametrize("dim", [96, 128])
@pytest.mark.parametrize("attention_factor", [None, 1.5])
def test_longrope(dim: int, attention_factor: float | None) -> None:
    factors = [1.0 + index / 16 for index in range(dim // 2)]
    stated = {"attention_factor": attention_factor} if attention_factor else {}
    config = Phi3Config(
        hidden_size=dim * 4,
        num_attention_heads=4,
        pad_token_id=0,
        max_position_embeddings=131_072,
        original_max_position_embeddings=4096,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "short_factor": factors,
            "long_factor": factors,
            **stated,
        },
    )
    init: Callable[..., tuple[torch.Tensor, float]] = ROPE_INIT_FUNCTIONS["longrope"]
    ours = long_rope(
        10_000.0,
        dim,
        channel_factors=factors,
        factor=32.0,
        original_context=4096,
        attention_factor=attention_factor,
    )
    assert_same(ours, init(config, "cpu", seq_len=1))


def test_tables() -> None:
    positions = 8192
    config = LlamaConfig(
        head_dim=64,
        max_position_embeddings=positions,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )
    expected = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(positions)[None])
    rope = plain_rope(100_000.0, 64)
    angles = np.outer(np.arange(positions), rope.frequencies)
    for found, theirs in zip(rope_tables(rope, positions), expected, strict=True):
        assert found.dtype == np.float32
        assert found.shape == (positions, 32)
        assert (np.abs(found - theirs[0, :, :32].numpy()) <= (1 + 2 * angles) * LAST_BIT).all()


def test_tables_are_scaled_by_the_attention_factor() -> None:
    cosines, sines = rope_tables(Rope((0.5, 0.25), attention_factor=1.5), 3)
    angles = np.outer(np.arange(3), [0.5, 0.25])
    np.testing.assert_allclose(cosines, 1.5 * np.cos(angles), rtol=1e-6)
    np.testing.assert_allclose(sines, 1.5 * np.sin(angles), rtol=1e-6)
