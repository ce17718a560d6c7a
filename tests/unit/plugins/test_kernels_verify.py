from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.plugins.cubins import kernel_sources
from speccompile.plugins.launches import LogitsType, verify_launches, verify_workspace
from speccompile.plugins.schema import MOST_NODES, RULES, Rule
from tests.kernels import HostKernels, addresses, build_host_kernels, host_kernels
from tests.trees import Rounds, random_rounds, verdicts, verify_inputs

DTYPES: dict[LogitsType, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
TYPES = list(DTYPES)
BATCH = 16


@pytest.mark.parametrize("logits_type", TYPES)
@pytest.mark.parametrize("rule", RULES)
def test_kernels_judge_random_trees_as_the_oracle_does(rule: Rule, logits_type: LogitsType) -> None:
    for seed in range(70):  # 4 rules, 3 types, 16 trees: 13,440
        rng = np.random.default_rng(seed)
        nodes, vocabulary = int(rng.integers(1, 20)), int(rng.integers(2, 120))
        rounds = random_rounds(seed, BATCH, nodes, vocabulary)
        assert differing(host_kernels(), rule, rounds, logits_type) == [], f"seed {seed}"


@pytest.mark.parametrize("logits_type", TYPES)
@pytest.mark.parametrize("rule", ["token", "traversal"])
def test_many_siblings_are_rejected_as_by_the_oracle(rule: Rule, logits_type: LogitsType) -> None:
    for seed in range(20):
        assert differing(host_kernels(), rule, bushes(seed, 3 + seed), logits_type) == []


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("rule", RULES)
def test_the_threads_of_a_block_agree_with_one(rule: Rule, threads: int) -> None:
    for seed in range(4):
        rounds = random_rounds(100 + seed, BATCH, 6, 90)
        assert differing(host_kernels(), rule, rounds, "float16", threads) == []


@pytest.mark.parametrize("rule", ["token", "traversal"])
def test_large_trees(rule: Rule) -> None:
    assert differing(host_kernels(), rule, random_rounds(1, 4, 64, 300), "float16") == []
    most = random_rounds(3, 1, MOST_NODES, 12, broken=0.0)
    assert differing(host_kernels(), rule, replace(most, given=np.ones(1, np.int64))) == []


@pytest.mark.parametrize("vocabulary", [49152, 49157, 151936, 152064])
@pytest.mark.parametrize("logits_type", TYPES)
def test_vocabularies_of_real_models(logits_type: LogitsType, vocabulary: int) -> None:
    rounds = random_rounds(vocabulary, 2, 4, vocabulary, broken=0.0)
    filters = np.array([[0.8, 50, 0.9, 0.01], [1.0, 0, 1.0, 0.0]], np.float32)
    rounds = replace(rounds, given=np.ones(2, np.int64), sampling=filters)
    assert differing(host_kernels(), "traversal", rounds, logits_type) == []


@pytest.mark.parametrize(
    "sampling",
    [
        (0.0, 3, 0.5, 0.1),
        (1e-40, 0, 1.0, 0.0),
        (1, 1, 1, 0),
        (1, 0, 0, 0),
        (1, 0, 1, 1),
        (9, 7, 0.7, 0.2),
    ],
)
def test_a_filter_alone(sampling: tuple[float, ...]) -> None:
    for seed in range(20):
        rounds = random_rounds(seed, BATCH, 7, 33)
        rounds = replace(rounds, sampling=np.tile(np.array(sampling, np.float32), (BATCH, 1)))
        assert differing(host_kernels(), "traversal", rounds) == []


def test_rows_that_begin_anywhere() -> None:
    """The target's rows and the draft's differ in where they begin in their 16 bytes."""
    rounds = random_rounds(5, BATCH, 5, 61)
    for shift in range(1, 8):
        logits = np.empty(rounds.logits.size + shift, np.float16)[shift:].reshape(
            rounds.logits.shape
        )
        logits[:] = rounds.logits
        moved = replace(rounds.astype(np.float16), logits=logits)
        assert differing(host_kernels(), "traversal", moved, "float16") == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("fmaxf(rejection.weight * p[i] - q[i], 0.0f)", "p[i]", id="no-residual"),
        pytest.param("q[i] * rejection.draft_scale", "q[i]", id="draft-not-renormalized"),
    ],
)
def test_wrong_kernels_are_told_from_right_ones(right: str, wrong: str) -> None:
    text = kernel_sources()["residual.cuh"]
    assert right in text
    mutant = build_host_kernels({**kernel_sources(), "residual.cuh": text.replace(right, wrong)})
    assert any(differing(mutant, "traversal", bushes(seed, 5)) for seed in range(20))


@pytest.mark.parametrize("rule", RULES)
def test_inputs_that_mean_nothing_do_no_harm(rule: Rule) -> None:
    """A library that times a plugin while it builds a plan makes them up."""
    rng = np.random.default_rng(0)
    for given, parents in (
        (np.zeros(BATCH, np.int64), np.zeros((BATCH, 9), np.int64)),
        (rng.integers(-9, 99, BATCH), rng.integers(-(1 << 40), 1 << 40, (BATCH, 9))),
    ):
        rounds = replace(random_rounds(0, BATCH, 9, 30), given=given, parents=parents)
        found = verified(host_kernels(), rule, rounds, "float32", 1)
        assert (found["count"] >= 1).all()
        assert (found["count"] <= 9).all()


def bushes(seed: int, vocabulary: int) -> Rounds:
    """Trees of many siblings that are seldom accepted: verdicts come from what rejections left."""
    rng, nodes = np.random.default_rng(seed), 12
    rounds = random_rounds(seed, BATCH, nodes, vocabulary, broken=0.0)
    parents = rng.integers(0, np.minimum(np.arange(nodes), 3).clip(1), (BATCH, nodes))
    parents[:, 0] = -1
    uniforms = rounds.uniforms.copy()
    uniforms[..., 0] = 2**53 - 1 - uniforms[..., 0] // 4
    return replace(
        rounds,
        tokens=rng.integers(0, vocabulary, (BATCH, nodes)),
        parents=parents,
        given=np.ones(BATCH, np.int64),
        uniforms=uniforms,
        sampling=np.tile(np.array([1, 0, 1, 0], np.float32), (BATCH, 1)),
    )


def differing(
    kernels: HostKernels,
    rule: Rule,
    rounds: Rounds,
    logits_type: LogitsType = "float32",
    threads: int = 1,
) -> list[tuple[str, int]]:
    """Outputs and sequences in which the kernels and the oracle differ."""
    dtype = DTYPES[logits_type]
    if rounds.logits.dtype != dtype:
        rounds = replace(
            rounds,
            logits=rounds.logits.astype(dtype),
            draft_logits=rounds.draft_logits.astype(dtype),
        )
    wide = rounds.astype(np.float32)
    found = verified(kernels, rule, rounds, logits_type, threads)
    return [
        (name, int(sequence))
        for name, expected in verdicts(rule, wide).items()
        for sequence in np.unique(np.argwhere(found[name] != expected)[:, 0])
    ]


def verified(
    kernels: HostKernels, rule: Rule, rounds: Rounds, logits_type: LogitsType, threads: int
) -> dict[str, NDArray[np.int64]]:
    batch, nodes, vocabulary = rounds.logits.shape
    shapes = {"path": (batch, nodes), "count": (batch,), "next_token": (batch,)}
    outputs = {
        name: np.full(shape, -77, np.int64)
        for name, shape in {**shapes, "emitted": (batch, nodes)}.items()
    }
    arguments = addresses({**verify_inputs(rule, rounds), **outputs})
    sizes = batch, nodes, vocabulary
    workspace = np.empty(verify_workspace(batch, nodes) // 8 + 1, np.complex128)
    launches = verify_launches(rule, logits_type, *sizes, arguments, workspace.ctypes.data)
    kernels.run(launches, threads)
    return outputs
