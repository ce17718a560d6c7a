"""Write down what lowering does: the graph of every role before, between and after the passes.

The graphs are whole but for the contents of their weights, so that they are small and open in any
viewer of ONNX files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from speccompile.compiler.contract_file import open_contract
from speccompile.compiler.execute import StageResult
from speccompile.compiler.lower.backends import lowering, plan_lowering
from speccompile.compiler.lower.passes import Pass, run_passes
from speccompile.compiler.recipe import Recipe
from speccompile.compiler.stages.export import CONTRACT_FILE
from speccompile.compiler.stages.lower import read_token_ids
from speccompile.compiler.stages.lower_plan import read_plan
from speccompile.compiler.tensorrt.installed import installed_library

__all__ = ["dump_graphs"]

_SMALL = 1024  # bytes: constants that steer the graph are worth seeing


def dump_graphs(recipe: Recipe, results: Mapping[str, StageResult], folder: Path) -> list[Path]:
    """Write ``folder/ROLE-ENGINE/NN-PASS.onnx`` and return the files, in order.

    `results` are those of the build's stages. Raises OSError where the folder cannot be written.
    """
    written: list[Path] = []
    for role in recipe.models:
        lowerings = {
            backend: lowering(backend, read_token_ids(results[f"lower {role} {backend}"].folder))
            for backend in recipe.engine.cpu
        } | _plan_lowering(recipe, results, role)
        for name, passes in lowerings.items():
            model = open_contract(
                results[f"export {role}"].folder / CONTRACT_FILE,
                results[f"quantize {role}"].folder,
            )
            dump = _Dump(folder / f"{role}-{name}")
            dump.write("contract", model)
            run_passes(model, passes, after=dump.write)
            written += dump.written
    return written


def _plan_lowering(
    recipe: Recipe, results: Mapping[str, StageResult], role: str
) -> dict[str, Sequence[Pass]]:
    """That of the plan for the whole context, if the recipe asks for plans and the role has any."""
    if f"lower {role} tensorrt" not in results:
        return {}
    plan = read_plan(results[f"lower {role} tensorrt"].folder)
    library = installed_library(recipe.engine.tensorrt_library).name
    return {"tensorrt": plan_lowering(library, plan.rule, plan.capacity)}


class _Dump:
    """The graphs of one lowering, which are the only ones in their `folder`."""

    def __init__(self, folder: Path) -> None:
        self.written: list[Path] = []
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.onnx"):
            stale.unlink()

    def write(self, name: str, model: ir.Model) -> None:
        path = self._folder / f"{len(self.written):02}-{name}.onnx"
        ir.save(_without_weights(model), path)
        self.written.append(path)


def _without_weights(model: ir.Model) -> ir.Model:
    """A copy whose large initializers refer to a file that is not there."""
    copy = model.clone()
    for value in copy.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes > _SMALL:
            value.const_value = ir.ExternalTensor(
                "weights-left-out",
                0,
                tensor.nbytes,
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=str(value.name),
            )
    return copy
