"""The most tokens per second that the memory of a machine allows, and how much of it is reached.

A token needs its round's weights and cached rows from memory, whatever else is done:

    ceiling = bandwidth x tokens a round / bytes a round
    bytes a round = target's weights + draft's steps x draft's weights + cached rows seen

Steps and rows are those that ran, each read once a step however many rows it computes. Not counted
are rows of tables that are picked one by one (embeddings, rotations), activations, logits and what
is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from speccompile.runtime.bench.graph_weights import (
    BFLOAT16,
    FLOAT,
    FLOAT16,
    GraphWeight,
    read_weights,
)
from speccompile.runtime.bench.limit import Limit
from speccompile.runtime.bench.run import Run
from speccompile.runtime.engines.cache_precision import cache_number_bytes
from speccompile.runtime.manifest import EngineInfo
from speccompile.runtime.runner import Runner

__all__ = ["Ceiling", "StepBytes", "step_bytes", "step_reads"]

_CONVERTED = (FLOAT, FLOAT16, BFLOAT16)
_AS_STORED = ("PanelMatMul", 1)

# Inputs of which a step reads its own rows alone.
_TABLES = {
    ("Gather", 0),
    ("PanelGather", 0),
    ("CachedAttention", 8),
    ("CachedAttention", 9),
    ("RotaryEmbedding", 1),
    ("RotaryEmbedding", 2),
}


@dataclass(frozen=True)
class StepBytes:
    """Bytes that a step of an engine reads: all its `weights`, and of each row in the cache that it
    sees the `row`, which is the keys and values of all layers."""

    weights: int
    row: int


@dataclass(frozen=True)
class Ceiling:
    """What a machine can do at most for the engines of an artifact, by their role."""

    limit: Limit
    reads: Mapping[str, StepBytes]

    def tokens_per_second(self, runs: Iterable[Run]) -> float:
        """If memory were read at the full bandwidth and nothing else took time; for runs that have
        decoded."""
        runs = list(runs)
        tokens = sum(run.statistics.decode_tokens for run in runs)
        return self.limit.bandwidth * tokens / self.bytes_read(runs)

    def share(self, runs: Iterable[Run]) -> float:
        """Of that, what was reached by the wall clock."""
        runs = list(runs)
        seconds = sum(run.decode_seconds for run in runs)
        return self.bytes_read(runs) / seconds / self.limit.bandwidth

    def bytes_read(self, runs: Iterable[Run]) -> int:
        """By all steps of decoding."""
        total = 0
        for statistics in (run.statistics for run in runs):
            for role, steps, context in (
                ("target", statistics.target_steps, statistics.target_context),
                ("draft", statistics.draft_steps, statistics.draft_context),
            ):
                if steps:
                    total += steps * self.reads[role].weights + context * self.reads[role].row
        return total


def step_reads(runner: Runner, drafts: Iterable[str]) -> dict[str, StepBytes] | None:
    """What a step of the target reads, and one of the model that `drafts` ask. None on a GPU, and
    where they ask several models: nobody counts whose steps were whose."""
    engines = runner.manifest.engines
    asked = {name for draft in drafts for name in runner.models(draft)} & engines.keys()
    if runner.placement or len(asked) > 1:
        return None
    roles = {"target": "target", **dict.fromkeys(asked, "draft")}
    return {
        roles[name]: step_bytes(info, runner.artifact.path(info.graph))
        for name, info in engines.items()
        if name in roles
    }


def step_bytes(info: EngineInfo, graph: Path) -> StepBytes:
    """What an engine of a CPU reads, with its weights as it holds them once it is open.

    A sliding layer counts as one that sees the whole context. Raises EngineError for a file that
    is no graph.
    """
    weights = sum(
        weight.count * _held_bytes(weight, info)
        for weight in read_weights(graph).values()
        if not weight.readers <= _TABLES
    )
    numbers = 2 * info.layers * info.kv_heads * info.head_dim
    return StepBytes(weights, numbers * cache_number_bytes(info))


def _held_bytes(weight: GraphWeight, info: EngineInfo) -> int:
    """Of a number: but for our own operators, 16-bit weights are converted when a graph is opened
    to compute in fp32, and fp32 ones to bf16; int8 ones stay bytes."""
    if weight.dtype not in _CONVERTED or _AS_STORED in weight.readers:
        return weight.number_bytes
    return 4 if info.arithmetic == "fp32" else 2
