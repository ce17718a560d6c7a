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


def run_passes(
    model: ir.Model,
    passes: Sequence[Pass],
    *,
    after: Callable[[str, ir.Model], None] | None = None,
) -> dict[str, int]:
    """Run `passes` in order; returns the number of rewrites of each.

    `after` is called with the name of each pass and the graph that it left.
    """
    counts: dict[str, int] = {}
    for entry in passes:
        before = _operators(model)
        if missing := entry.requires - before:
            raise _broken(entry, f"needs {_names(missing)}, which the graph lacks", counts)
        rewrites = entry.run(model)
        RemoveUnusedNodesPass()(model)
        operators = _operators(model)
        if missing := entry.ensures - operators:
            raise _broken(entry, f"should have produced {_names(missing)}", counts)
        if left := entry.removes & operators:
            raise _broken(entry, f"left {_names(left)} behind", counts)
        counts[entry.name] = rewrites
        if after:
            after(entry.name, model)
    return counts


def _operators(model: ir.Model) -> frozenset[str]:
    return frozenset(node.op_type for node in model.graph)


def _names(operators: frozenset[str]) -> str:
    return ", ".join(sorted(operators))


def _broken(entry: Pass, what: str, done: dict[str, int]) -> LoweringError:
    earlier = ", ".join(done) or "none"
    return LoweringError(f"lowering pass {entry.name} {what} (passes before it: {earlier})")
