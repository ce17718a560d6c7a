"""compile: open a lowered graph with its engine, and compare what it computes with the contract."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan
from pathlib import Path
from typing import Any, Literal

import numpy as np

from speccompile.compiler.reference import ContractEngine, read_source
from speccompile.compiler.stages.check import Checked
from speccompile.compiler.stages.export import CONTRACT_FILE, ENCODER_FILE
from speccompile.compiler.stages.lower import GRAPH_FILE, read_token_ids
from speccompile.compiler.stages.opened import open_lowered
from speccompile.compiler.stages.vocabulary import TOKEN_IDS_FILE
from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.errors import EngineError
from speccompile.runtime.host import cpu_flags
from speccompile.runtime.manifest import EngineInfo
from speccompile.runtime.proof.closeness import ROUNDED_TOLERANCE, closeness

__all__ = [
    "Compiled",
    "compare",
    "row_invariant_from",
    "run",
    "sample_tokens",
]

_FILE = "engine.json"

# Against the contract on the same weights: the largest error over the largest logit for engines
# that sum in fp32, and the mean KL divergence in nats for those that quantize activations too.
FP32_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Compiled:
    """What a later stage knows of an engine: ``folder/engine.json``."""

    engine: EngineInfo
    accuracy: Mapping[str, float]

    @classmethod
    def read(cls, folder: Path) -> Compiled:
        content: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        return cls(EngineInfo(**content["engine"]), content["accuracy"])


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `role`, `backend`, `precision`, `arithmetic`, `threads`, `shares_cache`.

    The inputs are a `load`, the `check`, an `export`, a `quantize` and a `lower` stage.
    """
    loaded, checked, exported, quantized, lowered = inputs.values()
    model = Checked(loaded, checked)
    config, token_ids = model.config, read_token_ids(lowered)
    info = EngineInfo(
        role=settings["role"],
        backend=settings["backend"],
        graph=GRAPH_FILE,
        precision=settings["precision"],
        arithmetic=_arithmetic(settings["backend"], settings["arithmetic"]),
        layers=config.layers,
        kv_heads=config.kv_heads,
        heads=config.heads,
        head_dim=config.head_dim,
        capacity=model.capacity,
        vocab_size=config.vocab_size,
        min_rows=1,
        shares_cache=settings["shares_cache"],
        token_ids=None if token_ids is None else TOKEN_IDS_FILE,
        encoder=ENCODER_FILE if config.encoder else None,
    )
    sample = sample_tokens(config.vocab_size, min(64, model.capacity // 2))
    report = settings["report"]
    report("running the contract")
    read = read_source(exported / ENCODER_FILE, sample, quantized) if config.encoder else None
    expected = _all_rows(ContractEngine(exported / CONTRACT_FILE, quantized, source=read), sample)
    report(f"opening the graph with {info.backend}")
    opened = open_lowered(info, lowered, threads=settings["threads"])
    opened.read(sample)
    engine = opened.engine
    computed = _all_rows(engine, sample)
    if token_ids is not None:
        expected, computed = expected[:, token_ids], computed[:, token_ids]
    accuracy = compare(expected, computed)
    _check(info, accuracy)
    if info.role == "target":  # a draft need not be exact, so it is never padded
        report("looking from how many rows on they are exact")
        info = replace(info, min_rows=row_invariant_from(engine, sample))
    content = {"engine": asdict(info), "accuracy": accuracy}
    (folder / _FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def _arithmetic(backend: str, asked: str) -> Literal["fp32", "bf16"]:
    """bf16 sums where they are asked for and the engine and the processor have them."""
    native = not {"avx512_bf16", "amx_bf16"}.isdisjoint(cpu_flags() or ())
    return "bf16" if asked == "bf16" and backend == "openvino" and native else "fp32"


def row_invariant_from(engine: Engine, tokens: Sequence[int], most: int = 9) -> int:
    """The fewest rows from which on a row's bits do not depend on the number of rows in its step.

    The rows of `tokens`, of which there must be at least 2 x `most`, are computed in steps of every
    size up to `most`. Returns 1 if one row already agrees, and 0 where no size does.
    """
    context = len(tokens) - 2 * most + 1
    engine.rollback(0)
    prefill(engine, tokens[:context])
    rows = {size: _rows_by(engine, tokens, context, size, most) for size in range(1, most + 1)}
    for fewest in range(1, most):
        others = range(fewest + 1, most + 1)
        if all(np.array_equal(rows[fewest], rows[other]) for other in others):
            return fewest
    return 0


def _rows_by(engine: Engine, tokens: Sequence[int], start: int, size: int, count: int) -> Logits:
    """The logits of `count` rows from `start` on, in whole steps of `size`."""
    engine.rollback(start)
    rows: list[Logits] = []
    while len(rows) * size < count:
        first = start + len(rows) * size
        rows.append(engine.step(tokens[first : first + size]).copy())
    return np.concatenate(rows)[:count]


def sample_tokens(vocab_size: int, count: int) -> list[int]:
    """Arbitrary tokens, the same in every build."""
    return [int(token) for token in np.random.default_rng(0).integers(0, vocab_size, count)]


def _all_rows(engine: Engine, tokens: Sequence[int]) -> Logits:
    engine.rollback(0)
    return engine.step(tokens).copy()


def compare(expected: Logits, actual: Logits) -> dict[str, float]:
    """The fields of `Closeness`: NaN for what is not finite."""
    found = asdict(closeness(expected, actual))
    return {name: nan if value is None else value for name, value in found.items()}


def _check(info: EngineInfo, accuracy: Mapping[str, float]) -> None:
    measure, limit = ("relative_error", FP32_TOLERANCE)
    if info.precision in ("int8", "mixed") or info.arithmetic == "bf16":
        measure, limit = ("kl_divergence", ROUNDED_TOLERANCE)
    if not accuracy[measure] <= limit:
        raise EngineError(
            f"{info.backend} computes the {info.role} otherwise than the contract: "
            f"{measure} {accuracy[measure]:.3g} is above {limit:g}; leave this engine out of "
            "engine.cpu, or choose another precision"
        )
