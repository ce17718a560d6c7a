"""rehearse: run the graph of a plan in ONNX Runtime, and compare it with the contract.

TensorRT builds a plan without a GPU, but cannot run it there. What its graph says can be run: with
function bodies in place of the plugins, and every fp16 value rounded. Only TensorRT's own kernels
are then left to be proved on a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.stages.check import Checked
from speccompile.compiler.stages.compile import compare, sample_tokens
from speccompile.compiler.stages.export import CONTRACT_FILE
from speccompile.compiler.stages.lower import GRAPH_FILE
from speccompile.compiler.stages.lower_plan import read_plan
from speccompile.compiler.tensorrt.rehearsal import PlanRun
from speccompile.plugins.spec_verify import Tree, TreeVerdict, spec_verify
from speccompile.plugins.tree import tree_mask
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import PlanInfo
from speccompile.runtime.proof.closeness import HALF_TOLERANCE, ROUNDED_TOLERANCE

__all__ = ["Rehearsed", "check_accuracy", "check_verdict", "read_accuracy", "run"]

_FILE = "rehearsal.json"
_WAY_OUT = "leave engine.tensorrt out of the recipe, or choose another precision"

# Behind the root the target's own choice is the second child, and likewise behind that.
_PARENTS = np.array([-1, 0, 0, 2, 2])


class Rehearsed(NamedTuple):
    """The logits of a prompt's rows and then of the `tree`'s, and the verdict on the tree."""

    logits: Logits
    tree: Tree
    verdict: TreeVerdict
    emitted: list[int]


def read_accuracy(folder: Path) -> dict[str, float]:
    """How close the graph is to the contract: `stages.compile.compare`."""
    content: dict[str, float] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return content


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `threads`. The inputs are a `load`, the `check`, an `export`, a `quantize` and the
    `lower` stage of a plan.

    Raises EngineError where the graph is not close to the contract, or judges otherwise than its
    rule.
    """
    loaded, checked, exported, quantized, lowered = inputs.values()
    info, report = read_plan(lowered), settings["report"]
    vocabulary = Checked(loaded, checked).config.vocab_size
    prompt = sample_tokens(vocabulary, min(64, info.capacity // 2))
    report("running the plan's graph in ONNX Runtime")
    graph, threads = ir.load(lowered / GRAPH_FILE), settings["threads"]
    rehearsed = _rehearse(PlanRun(graph, lowered, info.rule, threads=threads), prompt)
    check_verdict(info, rehearsed)
    report("running the contract")
    contract = ContractEngine(exported / CONTRACT_FILE, quantized, threads=threads)
    accuracy = compare(_expected(contract, prompt, rehearsed.tree), rehearsed.logits)
    check_accuracy(info, accuracy)
    (folder / _FILE).write_text(json.dumps(accuracy, indent=1), encoding="utf-8")


def check_verdict(info: PlanInfo, rehearsed: Rehearsed) -> None:
    """Refuse a verdict that is not the greedy one of the graph's own logits."""
    tree = rehearsed.tree
    expected = spec_verify("greedy", rehearsed.logits[-len(tree.tokens) :], tree)
    emitted = expected.emitted(tree)
    if rehearsed.verdict != expected or rehearsed.emitted != emitted:
        raise EngineError(
            f"TensorRT's graph of the {info.role} judges otherwise than by its rule, "
            f"{info.rule}: at temperature 0 it accepts the path {rehearsed.verdict.path} and emits "
            f"{rehearsed.emitted}, not {expected.path} and {emitted}; leave engine.tensorrt out "
            "of the recipe, and report it"
        )


def check_accuracy(info: PlanInfo, accuracy: Mapping[str, float]) -> None:
    """Refuse a graph that is further from the contract than its arithmetic explains."""
    measure, limit = "relative_error", HALF_TOLERANCE
    if info.precision in ("int8", "mixed"):
        measure, limit = "kl_divergence", ROUNDED_TOLERANCE
    if not accuracy[measure] <= limit:
        raise EngineError(
            f"TensorRT's graph computes the {info.role} otherwise than the contract: "
            f"{measure} {accuracy[measure]:.3g} is above {limit:g}; {_WAY_OUT}"
        )


def _rehearse(plan: PlanRun, prompt: list[int]) -> Rehearsed:
    """Read a prompt, go on greedily, and have a tree judged that the graph agrees with in part."""
    read = plan.step(np.array([prompt]))
    plan.lengths[:] = len(prompt)
    choices = [int(read["next_token"][0])]
    for _ in range(2):
        outputs = plan.step(np.array([choices[-1:]]))
        plan.lengths += 1
        choices.append(int(outputs["next_token"][0]))
    plan.lengths[:] = len(prompt)
    vocabulary = read["logits"].shape[2]
    root, first, second = choices
    others = [(token + 1) % vocabulary for token in (first, second)]
    tree = Tree(np.array([root, others[0], first, others[1], second]), _PARENTS)
    judged = plan.step(tree.tokens[None], tree.parents[None], given=np.array([tree.given]))
    count = int(judged["count"][0])
    return Rehearsed(
        logits=np.concatenate([_single(read["logits"]), _single(judged["logits"])]),
        tree=tree,
        verdict=TreeVerdict(judged["path"][0, :count].tolist(), int(judged["next_token"][0])),
        emitted=judged["emitted"][0, : count - tree.given + 1].tolist(),
    )


def _single(logits: NDArray[np.generic]) -> Logits:
    """Those of the one sequence."""
    rows: Logits = logits[0].astype(np.float32)
    return rows


def _expected(contract: ContractEngine, prompt: list[int], tree: Tree) -> Logits:
    """The contract's logits of the rows that were rehearsed."""
    rows = contract.step(prompt)
    length = np.array([len(prompt)])
    positions, mask, _ = tree_mask(tree.parents[None], length, contract.capacity, 0)
    return np.concatenate(
        [rows, contract.step_rows(tree.tokens.tolist(), positions[0], mask[0, 0])]
    )
