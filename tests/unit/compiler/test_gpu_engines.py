"""The folders of plans in an artifact, from the results of the stages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from speccompile.compiler import gpu_engines
from speccompile.compiler.execute import StageResult
from speccompile.compiler.gpu_engines import assemble_gpus, planned
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.compiler.tensorrt.installed import Installed
from speccompile.compiler.usage import Usage
from speccompile.plugins.cubins import abi
from speccompile.runtime.manifest import PlanInfo

INFO = PlanInfo(
    role="target",
    plan="model.onnx",
    precision="fp16",
    rule="traversal",
    layers=30,
    kv_heads=3,
    heads=9,
    head_dim=64,
    capacity=2080,
    vocab_size=49152,
    batch=1,
    rows=128,
    shares_cache=False,
)


def test_a_folder_for_each_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_engines, "installed_library", _installed)
    recipe = _recipe(["sm89", "sm120"])
    results = {result.name: result for result in _results(tmp_path / "stages", recipe)}
    staging = tmp_path / "artifact"
    gpus = assemble_gpus(staging, recipe, results)
    assert list(gpus) == ["tensorrt-rtx-sm89", "tensorrt-rtx-sm120"]
    for architecture in ("sm89", "sm120"):
        engines = gpus[f"tensorrt-rtx-{architecture}"]
        assert engines.architecture == architecture
        assert (engines.library, engines.library_version) == ("tensorrt_rtx", "1.7.1")
        assert engines.plugin == abi()
        folder = f"engines/tensorrt-rtx-{architecture}"
        assert engines.kernels == f"{folder}/kernels.cubin"
        assert (staging / engines.kernels).read_text() == f"kernels {architecture}"
        contents = {
            f"{folder}/target.plan": f"plan target {architecture}",
            f"{folder}/target-1024.plan": f"plan target {architecture}-1024",
            f"{folder}/draft.plan": f"plan draft {architecture}",
            f"{folder}/draft-1024.plan": f"plan draft {architecture}-1024",
        }
        assert {plan.plan: (staging / plan.plan).read_text() for plan in engines.plans} == contents
        assert [(plan.role, plan.capacity) for plan in engines.plans] == [
            *(("target", 2080), ("target", 1056)),
            *(("draft", 2080), ("draft", 1056)),
        ]


def test_a_recipe_without_gpus_has_no_folder(tmp_path: Path) -> None:
    assert assemble_gpus(tmp_path, _recipe([]), {}) == {}
    assert list(tmp_path.iterdir()) == []


def _installed(name: str) -> Installed:
    assert name == "auto"
    return Installed("tensorrt_rtx", "1.7.1")


def _recipe(architectures: list[str]) -> Recipe:
    engine = {"tensorrt": architectures, "capacities": [1024]}
    return load_recipe("smollm2-135m", engine=engine)


def _results(folder: Path, recipe: Recipe) -> Iterator[StageResult]:
    """Of the stages that plans come from; every file holds the name of its stage."""

    def result(name: str, file: str, text: str) -> StageResult:
        path = folder / name.replace(" ", "-")
        path.mkdir(parents=True)
        (path / file).write_text(text, encoding="utf-8")
        return StageResult(name, path, False, Usage(1.0, 1))

    for architecture in recipe.engine.tensorrt:
        name = f"kernels {architecture}"
        yield result(name, "kernels.cubin", name)
    for role, capacity in planned(recipe):
        size = f"-{capacity}" if capacity else ""
        slots = capacity + 32 if capacity else 2080
        info = asdict(replace(INFO, capacity=slots)) | {"role": role}
        yield result(f"lower {role} tensorrt{size}", "plan.json", json.dumps(info))
        for architecture in recipe.engine.tensorrt:
            name = f"plan {role} {architecture}{size}"
            yield result(name, "engine.plan", name)
