"""What a lowering pass is, and how a list of them is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from speccompile.runtime.errors import SpeccompileError

__all__ = ["LoweringError", "Pass", "run_passes"]


class LoweringError(SpeccompileError):
    """A pass met a graph that it cannot rewrite, or left one that breaks its promise."""


@dataclass(frozen=True)
class Pass:
    """One rewriting of a graph, with its contract.

    `requires` are operators that must be present before, `ensures` those that must be present
    after, and `removes` those that must be gone. `run` rewrites in place and returns how often; the
    nodes and initializers that its rewrites left unused are removed for it.
    """

    name: str
    run: Callable[[ir.Model], int]
    requires: frozenset[str] = frozenset()
    ensures: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()


def run_passes(model: ir.Model, passes: Sequence[Pass]) -> dict[str, int]:
    """Run `passes` in order; returns the number of rewrites of each."""
    counts: dict[str, int] = {}
    for entry in passes:
        before = _operators(model)
        if missing := entry.requires - before:
            raise _broken(entry, f"needs {_names(missing)}, which the graph lacks", counts)
        rewrites = entry.run(model)
        RemoveUnusedNodesPass()(model)
        after = _operators(model)
        if missing := entry.ensures - after:
            raise _broken(entry, f"should have produced {_names(missing)}", counts)
        if left := entry.removes & after:
            raise _broken(entry, f"left {_names(left)} behind", counts)
        counts[entry.name] = rewrites
    return counts


def _operators(model: ir.Model) -> frozenset[str]:
    return frozenset(node.op_type for node in model.graph)


def _names(operators: frozenset[str]) -> str:
    return ", ".join(sorted(operators))


def _broken(entry: Pass, what: str, done: dict[str, int]) -> LoweringError:
    earlier = ", ".join(done) or "none"
    return LoweringError(f"lowering pass {entry.name} {what} (passes before it: {earlier})")
