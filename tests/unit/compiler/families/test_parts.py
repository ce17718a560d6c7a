"""Every part of every family shows in its logits: left out, the models would not be equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, LayerKind, tensor_shapes
from speccompile.compiler.rope import plain_rope
from tests.contract_run import ContractRun, relative_error
from tests.families import CONTEXT, TINY, Tiny, tiny

VISIBLE = 1e-3  # a hundred times the tolerance of test_equality.py

Change = Callable[[DecoderConfig], DecoderConfig]


@cache
def model_of(name: str) -> Tiny:
    return tiny(name)


@cache
def tokens() -> NDArray[np.int64]:
    return np.random.default_rng(2).integers(3, 512, CONTEXT)


@cache
def logits_of(name: str) -> NDArray[np.float32]:
    return model_of(name).logits(tokens().tolist())


def error_of(name: str, config: DecoderConfig, *, without: str | None = None) -> float:
    """Of the model with `config` in place of its own, and without the tensors so named."""
    model = model_of(name)
    weights = {
        tensor: model.read(tensor)
        for tensor in tensor_shapes(model.config)
        if without is None or without not in tensor
    }
    run = ContractRun(config, weights, CONTEXT)
    return relative_error(run.append(tokens()[None], np.array([0]))[0], logits_of(name))


def setting(**parts: Any) -> Change:  # noqa: ANN401 - any field of a DecoderConfig
    return lambda config: replace(config, **parts)


def of_kinds(change: Callable[[LayerKind, int], LayerKind]) -> Change:
    """Change every kind of layer; the function gets the channels of a head too."""
    return lambda config: replace(
        config, kinds=tuple(change(kind, config.head_dim) for kind in config.kinds)
    )


def rope_of(theta: float) -> Change:
    return of_kinds(lambda kind, dim: replace(kind, rope=plain_rope(theta, dim)))


def slower(kind: LayerKind, dim: int) -> LayerKind:
    """Every rotation slower by a hundredth."""
    if kind.rope is None:
        return kind
    frequencies = tuple(value * 0.99 for value in kind.rope.frequencies)
    return replace(kind, rope=replace(kind.rope, frequencies=frequencies))


def unscaled(kind: LayerKind, dim: int) -> LayerKind:
    return replace(kind, rope=kind.rope and replace(kind.rope, attention_factor=1.0))


def windowed(change: int | None, kind: LayerKind, dim: int) -> LayerKind:
    """Each window wider by `change`, or none."""
    return replace(kind, window=kind.window + change if kind.window and change else None)


@pytest.mark.parametrize("name", TINY)
def test_unchanged_the_models_are_equal(name: str) -> None:
    assert error_of(name, model_of(name).config) < VISIBLE / 100


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", rope_of(5_000.0)),
        ("llama", setting(activation="gelu")),
        ("llama", setting(norm_epsilon=1e-2)),
        ("llama", setting(attention_scale=0.2)),
        ("llama3", rope_of(500_000.0)),
        ("llama-linear", rope_of(10_000.0)),
        ("qwen2-yarn", rope_of(10_000.0)),
        ("qwen2-yarn", of_kinds(unscaled)),
        ("phi4", rope_of(10_000.0)),
        ("phi4", of_kinds(unscaled)),
        ("phi4", of_kinds(slower)),
        ("smollm3", rope_of(2_000_000.0)),
        ("mistral-sliding", of_kinds(partial(windowed, None))),
        ("mistral-sliding", of_kinds(partial(windowed, 1))),
        ("mistral-sliding", of_kinds(partial(windowed, -1))),
        ("qwen2-sliding", of_kinds(partial(windowed, None))),
        ("gemma2", of_kinds(partial(windowed, None))),
        ("gemma3", of_kinds(partial(windowed, None))),
        ("phi3", of_kinds(partial(windowed, None))),
        ("gemma2", setting(attention_softcap=None)),
        ("gemma2", setting(logit_softcap=None)),
        ("gemma2", setting(norm_after=False)),
        ("gemma2", setting(embedding_scale=1.0)),
        ("gemma2", setting(attention_scale=32**-0.5)),
        ("gemma2", setting(activation="silu")),
        ("gemma3", setting(query_key_norm="none")),
        ("gemma3", rope_of(10_000.0)),
        ("gemma3", rope_of(1_000_000.0)),
        ("qwen3", setting(query_key_norm="none")),
        ("olmo2", setting(query_key_norm="none")),
        ("olmo2", setting(norm_epsilon=1e-2)),
        ("gpt2", setting(learned_positions=None)),
        ("gpt2", setting(activation="silu")),
        ("granite", setting(embedding_scale=1.0)),
        ("granite", setting(residual_scale=1.0)),
        ("granite", setting(attention_scale=16**-0.5)),
        ("granite", setting(logit_scale=1.0)),
    ],
)
def test_a_part_left_out_shows(name: str, change: Change) -> None:
    config = change(model_of(name).config)
    assert config != model_of(name).config
    assert error_of(name, config) > VISIBLE


@pytest.mark.parametrize(
    ("name", "bias"),
    [
        *(("llama-biased", part) for part in ("q_proj", "k_proj", "v_proj", "o_proj")),
        *(("llama-biased", part) for part in ("gate_proj", "up_proj", "down_proj")),
        *(("qwen2", part) for part in ("q_proj", "k_proj", "v_proj")),
        *(("gpt2", part) for part in ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")),
    ],
)
def test_a_bias_left_out_shows(name: str, bias: str) -> None:
    assert error_of(name, model_of(name).config, without=f"{bias}.bias") > VISIBLE


def test_the_two_gelus_are_told_apart() -> None:
    """They differ by 3e-4 of a unit at most, yet by more than the tolerance."""
    config = setting(activation="gelu")(model_of("gpt2").config)
    assert error_of("gpt2", config) > 3e-5
