"""The kernels on a GPU against the oracle, bit for bit: what verifies, masks and moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.launches import (
    Launch,
    LogitsType,
    compact_launches,
    tree_mask_launches,
    verify_launches,
    verify_workspace,
)
from speccompile.plugins.schema import MOST_NODES, RULES, TREE_MASK, Rule
from speccompile.plugins.tree import compact_rows, tree_mask
from speccompile.runtime.device import Device
from tests.gpu.arena import Arena, stored, widened
from tests.gpu.opening import open_cuda
from tests.gpu.round_steps import check_rounds
from tests.gpu.sections import Task
from tests.trees import Rounds, random_parents, random_rounds, verdicts, verify_inputs

__all__ = ["check_compaction", "check_masks", "check_verdicts", "run"]

_ARENA = 192 << 20
_BATCH = 16
_TYPES: Sequence[LogitsType] = get_args(LogitsType)
_VOCABULARIES = (49152, 49157, 151936, 152064)
_OUTPUTS = ("path", "count", "next_token", "emitted")


def run(task: Task) -> None:
    with open_cuda(task) as device:
        arena = Arena(device, _ARENA)
        task.note("masks", {"trees": check_masks(device, arena, task, cases=100)})
        task.note("compaction", {"trees": check_compaction(device, arena, task, cases=50)})
        task.note("rounds", {"steps": check_rounds(device, arena, task, cases=20)})
        trees = check_large(device, arena, task, _VOCABULARIES)
        task.note("real vocabularies and large trees", {"trees": trees})
        trees = check_verdicts(device, arena, task, seeds=150, share=0.9)
        task.note("random trees", {"trees": trees})


def check_verdicts(
    device: Device, arena: Arena, task: Task, *, seeds: int, share: float = 1.0
) -> int:
    """Random trees over small vocabularies, NaNs, infinities and ties among their logits, by all
    rules in all types, until the `share` of the time has passed; returns how many."""
    trees = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rounds = random_rounds(seed, _BATCH, int(rng.integers(1, 20)), int(rng.integers(2, 120)))
        for logits_type in _TYPES:
            for rule in RULES:
                skew = {"logits": _skew(rng, logits_type), "draft_logits": _skew(rng, logits_type)}
                what = f"{rule} {logits_type}, seed {seed}"
                trees += _compare(device, arena, task, rule, rounds, logits_type, what, skew)
            trees += _bushes(device, arena, task, seed, logits_type)
        if not task.has_time(share):
            break
    return trees


def check_large(device: Device, arena: Arena, task: Task, vocabularies: Sequence[int]) -> int:
    """Vocabularies as models have them, with filters; and trees of the most nodes."""
    trees = 0
    filters = np.array([[0.8, 50, 0.9, 0.01], [1.0, 0, 1.0, 0.0], [0.0, 0, 1.0, 0.0]], np.float32)
    for vocabulary in vocabularies:
        rounds = random_rounds(vocabulary, 3, 4, vocabulary, broken=0.0)
        rounds = replace(rounds, given=np.ones(3, np.int64), sampling=filters)
        for logits_type in _TYPES:
            what = f"traversal {logits_type}, {vocabulary} tokens"
            trees += _compare(device, arena, task, "traversal", rounds, logits_type, what)
    for rule in ("token", "traversal"):
        rounds = random_rounds(1, 4, 64, 300)
        trees += _compare(device, arena, task, rule, rounds, "float16", f"{rule}, 64 nodes")
        rounds = random_rounds(3, 1, MOST_NODES, 12, broken=0.0)
        rounds = replace(rounds, given=np.ones(1, np.int64))
        what = f"{rule}, {MOST_NODES} nodes"
        trees += _compare(device, arena, task, rule, rounds, "float32", what)
    return trees


def check_masks(device: Device, arena: Arena, task: Task, *, cases: int) -> int:
    names: list[str] = [argument.name for argument in TREE_MASK.outputs]
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        nodes = MOST_NODES if seed == 0 else int(rng.integers(1, 64))
        capacity = nodes + int(rng.integers(8, 600))
        window = int(rng.choice([0, 1, 5, 100, 4096]))
        parents = np.stack([random_parents(rng, nodes) for _ in range(3)])
        lengths = rng.integers(0, capacity - nodes + 1, 3)
        masks = tree_mask(parents, lengths, capacity, window)
        expected: dict[str, NDArray[Any]] = dict(zip(names, masks, strict=True))
        outputs = {name: np.full_like(array, 1) for name, array in expected.items()}
        at = arena.place({"parents": parents, "lengths": lengths, **outputs})
        _launch(device, tree_mask_launches(3, nodes, capacity, window, at))
        _same(task, f"TreeMask, seed {seed}", arena.read(*names), expected)
    return 3 * cases


def check_compaction(device: Device, arena: Arena, task: Task, *, cases: int) -> int:
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        heads, width, nodes = int(rng.integers(1, 5)), 8 * int(rng.integers(1, 17)), 12
        shape = 4, heads, 40, width
        lengths = rng.integers(0, shape[2] - nodes, 4)
        count = rng.integers(1, nodes + 1, 4)
        path = np.full((4, nodes), -1)
        for row, size in zip(path, count, strict=True):
            row[:size] = [0, *sorted(rng.choice(np.arange(1, nodes), size - 1, replace=False))]
        caches = {f"cache.{i}": rng.normal(size=shape).astype(np.float16) for i in range(3)}
        arrays = {"path": path, "count": count, "lengths": lengths}
        # Where the caches lie is known only once they are placed, and is an array itself.
        table = {"table": np.zeros(len(caches), np.int64)}
        at = arena.place({**table, **arrays, **caches})
        table["table"][:] = [at[name] for name in caches]
        at = arena.place({**table, **arrays, **caches})
        sizes = 4, nodes, heads, shape[2], 2 * width
        _launch(device, compact_launches(*sizes, at["table"], len(caches), at))
        expected = {
            name: compact_rows(cache, path, count, lengths) for name, cache in caches.items()
        }
        _same(task, f"CompactRows, seed {seed}", arena.read(*caches), expected)
    return 4 * cases


def _bushes(device: Device, arena: Arena, task: Task, seed: int, logits_type: LogitsType) -> int:
    """Siblings that are seldom accepted: verdicts come from what rejections left of the laws."""
    rng, nodes = np.random.default_rng(seed), 12
    vocabulary = 3 + seed % 20
    rounds = random_rounds(seed, _BATCH, nodes, vocabulary, broken=0.0)
    parents = rng.integers(0, np.minimum(np.arange(nodes), 3).clip(1), (_BATCH, nodes))
    parents[:, 0] = -1
    uniforms = rounds.uniforms.copy()
    uniforms[..., 0] = 2**53 - 1 - uniforms[..., 0] // 4
    rounds = replace(
        rounds,
        tokens=rng.integers(0, vocabulary, (_BATCH, nodes)),
        parents=parents,
        given=np.ones(_BATCH, np.int64),
        uniforms=uniforms,
        sampling=np.tile(np.array([1, 0, 1, 0], np.float32), (_BATCH, 1)),
    )
    rules: tuple[Rule, ...] = ("token", "traversal")
    return sum(
        _compare(device, arena, task, rule, rounds, logits_type, f"{rule} of bushes, seed {seed}")
        for rule in rules
    )


def _compare(
    device: Device,
    arena: Arena,
    task: Task,
    rule: Rule,
    rounds: Rounds,
    logits_type: LogitsType,
    what: str,
    skew: dict[str, int] | None = None,
) -> int:
    """How many trees were compared."""
    batch, nodes = rounds.tokens.shape
    vocabulary = rounds.logits.shape[-1]
    logits = {
        name: stored(getattr(rounds, name), logits_type) for name in ("logits", "draft_logits")
    }
    wide = {name: widened(array, logits_type) for name, array in logits.items()}
    inputs = {name: logits.get(name, array) for name, array in verify_inputs(rule, rounds).items()}
    shapes = {"path": (batch, nodes), "count": (batch,), "next_token": (batch,)}
    outputs = {
        name: np.full(shape, -77, np.int64)
        for name, shape in {**shapes, "emitted": (batch, nodes)}.items()
    }
    workspace = np.zeros(verify_workspace(batch, nodes), np.uint8)
    at = arena.place({**inputs, **outputs, "workspace": workspace}, skew)
    sizes = batch, nodes, vocabulary
    _launch(device, verify_launches(rule, logits_type, *sizes, at, at["workspace"]))
    found = arena.read(*_OUTPUTS)
    as_stored = replace(rounds, logits=wide["logits"], draft_logits=wide["draft_logits"])
    _same(task, what, found, verdicts(rule, as_stored))
    return len(rounds.tokens)


def _skew(rng: np.random.Generator, logits_type: LogitsType) -> int:
    size = 4 if logits_type == "float32" else 2
    return int(rng.integers(0, 16 // size)) * size


def _launch(device: Device, launches: Sequence[Launch]) -> None:
    for launch in launches:
        device.launch(launch)


def _same(
    task: Task, what: str, found: dict[str, NDArray[Any]], expected: dict[str, NDArray[Any]]
) -> None:
    for name, array in expected.items():
        differing = np.flatnonzero((found[name] != array).reshape(len(array), -1).any(1))
        if len(differing):
            first = int(differing[0])
            task.compare(
                f"{what}, {name}[{first}]", found[name][first].tolist(), array[first].tolist()
            )
