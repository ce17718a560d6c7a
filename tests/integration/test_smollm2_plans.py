"""The catalogue's model as TensorRT plans, built without a GPU."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner

from speccompile.cli.main import cli
from speccompile.compiler import pipeline
from speccompile.compiler.assemble import (
    assemble,
    candidates,
    choose,
    write_manifest,
    write_measurements,
)
from speccompile.compiler.cache import StageCache, cache_limit, default_cache
from speccompile.compiler.execute import Observer, StageResult, run_stages
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.compiler.report.plans import describe_plans
from speccompile.plugins.cubins import abi
from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.measurements import unmeasured
from tests.plans import NEEDS_RTX

pytestmark = [
    pytest.mark.model,
    NEEDS_RTX,
    pytest.mark.skipif(
        "SPECCOMPILE_LONG_TESTS" not in os.environ,
        reason="builds plans of the real model for seven minutes: set SPECCOMPILE_LONG_TESTS=1",
    ),
]

ARCHITECTURES = ("sm120",)
LAYERS, MATRICES = 30, 134_479_872  # SmolLM2-135M's, and its int8 weights in bytes


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    keys = {"tensorrt": list(ARCHITECTURES), "tensorrt_library": "tensorrt_rtx"}
    return load_recipe("smollm2-135m", engine=keys)


@pytest.fixture(scope="module")
def results(recipe: Recipe) -> dict[str, StageResult]:
    try:
        cache = StageCache(default_cache(), cache_limit())
        with cache:
            return run_stages(pipeline.plan(recipe), cache, Observer())
    except SpeccompileError as error:
        if "network" in str(error):
            pytest.skip(f"the weights cannot be fetched: {error}")
        raise


@pytest.fixture(scope="module")
def artifact(
    recipe: Recipe, results: dict[str, StageResult], tmp_path_factory: pytest.TempPathFactory
) -> Artifact:
    """As a build puts it together; what it does on a CPU is proved in the other module."""
    root = tmp_path_factory.mktemp("artifacts")
    chosen = choose(candidates(recipe, results))
    manifest = write_manifest(root, assemble(root, recipe, results, chosen))
    write_measurements(root, manifest, unmeasured(manifest))
    return open_artifact(root)


@pytest.fixture(scope="module")
def plans(
    recipe: Recipe, results: dict[str, StageResult], artifact: Artifact
) -> list[dict[str, Any]]:
    """What a build reports of every plan."""
    return describe_plans(recipe, results, artifact.manifest)


def test_there_is_a_plan_of_each_role_for_each_architecture(
    artifact: Artifact, plans: list[dict[str, Any]]
) -> None:
    expected = {(role, name) for role in ("target", "draft") for name in ARCHITECTURES}
    assert {(plan["role"], plan["architecture"]) for plan in plans} == expected
    for name, gpu in artifact.manifest.gpus.items():
        assert name == f"tensorrt-rtx-{gpu.architecture}"
        assert gpu.plugin == abi()
        assert artifact.path(gpu.kernels).read_bytes().startswith(b"\x7fELF")
        target, draft = gpu.plans
        assert (target.role, target.precision, target.rule) == ("target", "fp16", "traversal")
        assert (draft.role, draft.precision, draft.rule) == ("draft", "int8", "walk")
        assert draft.shares_cache


def test_caches_are_updated_in_place_and_the_plugins_are_in_it(
    plans: list[dict[str, Any]],
) -> None:
    for plan in plans:
        assert plan["layers"]["KV_CACHE_UPDATE"] == 2 * LAYERS
        assert plan["layers"]["PLUGIN_V3"] == 2  # TreeMask and SpecVerify, not their bodies
        for operator in ("TreeMask", "SpecVerify"):
            for callback in ("create_plugin", "get_output_shapes", "configure_plugin"):
                assert plan["plugin_calls"][f"{operator}.{callback}"] > 0


def test_the_drafts_weights_are_int8_in_the_plan(plans: list[dict[str, Any]]) -> None:
    for plan in plans:
        if plan["role"] == "draft":
            assert plan["int8_weight_bytes"] == MATRICES
            # The tied table is in it twice: as rows to look up, and as a matrix.
            assert plan["bytes"] < 0.75 * _target(plans, plan["architecture"])["bytes"]
        else:
            assert plan["int8_weight_bytes"] == 0


def test_the_graphs_compute_what_the_contract_does(plans: list[dict[str, Any]]) -> None:
    for plan in plans:
        assert plan["accuracy"]["relative_error"] < 2e-2
        assert plan["accuracy"]["top1_agreement"] > 0.95
        assert plan["state"].startswith("not run")


def test_doctor_explains_what_cards_they_need(artifact: Artifact) -> None:
    done = CliRunner().invoke(cli, ["doctor", str(artifact.root), "--json"])
    assert done.exit_code == 0  # the CPU's engines run here
    engines = {engine["name"]: engine for engine in json.loads(done.stdout)["artifact"]["engines"]}
    for architecture in ARCHITECTURES:
        needs = {need["what"]: need for need in engines[f"tensorrt-rtx-{architecture}"]["needs"]}
        assert needs["GPU"]["need"] == architecture


def _target(plans: list[dict[str, Any]], architecture: str) -> dict[str, Any]:
    [found] = [p for p in plans if (p["role"], p["architecture"]) == ("target", architecture)]
    return found
