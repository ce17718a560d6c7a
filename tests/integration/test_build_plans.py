"""A build with TensorRT plans, for a GPU that is not here."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from rich.console import Console

from speccompile.cli.build_summary import print_summary
from speccompile.cli.main import main
from speccompile.compiler.build import Built
from speccompile.compiler.stages import rehearse
from speccompile.plugins.cubins import abi
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import EngineError, SpeccompileError
from tests.building import Builder, Table
from tests.plans import NEEDS_RTX

pytestmark = NEEDS_RTX

FOLDER = "tensorrt-rtx-sm89"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def builder(place: Path) -> Builder:
    return Builder(place)


@pytest.fixture(scope="module")
def tables(place: Path, model_folder: Path) -> dict[str, Table]:
    prompts = place / "one.txt"
    prompts.write_text("The sky is\n", encoding="utf-8")
    return {
        "target": {"source": model_folder},
        "draft": {"source": "target", "precision": "int8"},
        "validate": {"prompts": prompts},
        "engine": {
            "cpu": ["onnxruntime"],
            "tensorrt": ["sm89"],
            "tensorrt_library": "tensorrt_rtx",
            "capacities": [128],
        },
    }


@pytest.fixture(scope="module")
def built(builder: Builder, place: Path, tables: dict[str, Table]) -> Built:
    return _build(builder, tables, graphs=place / "graphs")


def test_the_manifest_has_the_plans(built: Built) -> None:
    artifact = open_artifact(built.path)
    assert list(artifact.manifest.gpus) == [FOLDER]
    engines = artifact.manifest.gpus[FOLDER]
    assert (engines.library, engines.architecture) == ("tensorrt_rtx", "sm89")
    assert engines.plugin == abi()
    assert artifact.path(engines.kernels).read_bytes().startswith(b"\x7fELF")
    folder = f"engines/{FOLDER}"
    assert [(plan.plan, plan.capacity) for plan in engines.plans] == [
        (f"{folder}/target.plan", 288),
        (f"{folder}/target-128.plan", 160),
        (f"{folder}/draft.plan", 288),
        (f"{folder}/draft-128.plan", 160),
    ]
    assert all(artifact.path(plan.plan).stat().st_size > 10**5 for plan in engines.plans)
    target, _, draft, _ = engines.plans
    assert (target.rule, target.precision, target.shares_cache) == ("traversal", "fp16", False)
    assert (draft.rule, draft.precision, draft.shares_cache) == ("walk", "int8", True)


def test_the_report_says_what_is_proved(built: Built) -> None:
    plans = json.loads((built.path / "reports/build.json").read_bytes())["plans"]
    assert [plan["role"] for plan in plans] == ["target", "target", "draft", "draft"]
    for plan in plans:
        assert (plan["folder"], plan["library"]) == (FOLDER, "tensorrt_rtx")
        assert plan["layers"]["KV_CACHE_UPDATE"] == 4
        assert plan["layers"]["PLUGIN_V3"] == 2
        assert plan["plugin_calls"]["SpecVerify.configure_plugin"] == 1
        assert (plan["int8_weight_bytes"] > 0) == (plan["role"] == "draft")
        usual = 6 if plan["role"] == "target" else 1
        rows = [profile["rows"] for profile in plan["profiles"]]
        assert rows == [[1, usual, 128]]
        assert plan["state"].startswith("not run")
    whole, shorter = plans[0::2], plans[1::2]
    assert all(0 < plan["accuracy"]["relative_error"] < 2e-2 for plan in whole)
    assert all(plan["accuracy"] is None for plan in shorter)


def test_people_are_told(built: Built) -> None:
    page = (built.path / "reports/report.html").read_text("utf-8")
    assert "Plans for GPUs" in page
    assert page.count("<td>not run") == 4
    printed = io.StringIO()
    print_summary(Console(file=printed, width=1000), built)
    [line] = re.findall("^sm89: .*", printed.getvalue(), re.M)
    assert "tensorrt_rtx 1." in line
    assert re.search(r"target \S+ MB, target \S+ MB \(160 slots\), draft \S+ MB", line)
    assert re.search(
        r"rehearsed on the CPU: relative error 0\.\d+ \(target\), 0\.\d+ \(draft\); not run", line
    )


def test_the_lowering_is_dumped(built: Built, place: Path) -> None:
    for role, precision in (("target", "traversal"), ("draft", "walk")):
        names = [path.name for path in sorted((place / "graphs" / f"{role}-tensorrt").iterdir())]
        assert names[0] == "00-contract.onnx"
        assert any(name.endswith(f"-verify_{precision}.onnx") for name in names)
        graph = onnx.load(
            place / "graphs" / f"{role}-tensorrt" / names[-1], load_external_data=False
        ).graph
        assert {"TreeMask", "SpecVerify"} <= {node.op_type for node in graph.node}


def test_the_doctor_misses_the_gpu(
    built: Built, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)  # where there is a GPU
    monkeypatch.setattr(sys, "argv", ["speccompile", "doctor", str(built.path), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code  # the CPU's engines can run
    engines = json.loads(capsys.readouterr().out)["artifact"]["engines"]
    runs = {engine["name"]: (engine["runs"], engine["lacks"]) for engine in engines}
    assert runs["cpu"] == (True, [])
    assert runs[FOLDER] == (False, ["GPU", "driver's CUDA"])


def test_a_graph_that_computes_something_else_is_refused(
    built: Built, place: Path, tmp_path: Path
) -> None:
    assert built.report["plans"]
    lowered = shutil.copytree(_stage(place, "lower-target-tensorrt"), tmp_path / "lowered")
    weights = lowered / "model.onnx.data"
    content = weights.read_bytes()
    half = len(content) // 2
    weights.write_bytes(content[:half] + bytes(len(content) - half))
    names = ("load-target", "check", "export-target", "quantize-target")
    inputs = {name: _stage(place, name) for name in names} | {"lower": lowered}
    message = "TensorRT's graph computes the target otherwise than the contract: relative_error"
    with pytest.raises(EngineError, match=message):
        rehearse.run(tmp_path, inputs, {"threads": 1, "report": print})


def test_from_an_empty_cache_only_the_bytes_of_plans_are_others(
    built: Built, place: Path, tmp_path: Path, tables: dict[str, Table]
) -> None:
    """TensorRT-RTX writes what is in a plan in another order every time."""
    again = Builder(tmp_path)
    for kernels in (place / "cache/stages").glob("kernels-*"):  # which take the longest
        shutil.copytree(kernels, tmp_path / "cache/stages" / kernels.name)
    other = _build(again, tables).manifest
    plans = {plan.plan for plan in other.gpus[FOLDER].plans}
    same = {path: entry for path, entry in other.files.items() if path not in plans}
    assert same == {path: built.manifest.files[path] for path in same}
    for path in plans:
        assert other.files[path].size == built.manifest.files[path].size
    assert replace(other, files={}) == replace(built.manifest, files={})


def test_with_one_cache_the_artifact_is_the_same(
    built: Built, builder: Builder, tables: dict[str, Table]
) -> None:
    assert _build(builder, tables).manifest.identity == built.manifest.identity


def test_a_gpu_that_the_library_does_not_know_is_refused_at_once(
    tmp_path: Path, tables: dict[str, Table]
) -> None:
    engine = {**tables["engine"], "tensorrt": ["sm89", "sm90"]}
    with pytest.raises(SpeccompileError, match=r"\ATensorRT-RTX \S+ does not build for sm90, only"):
        _build(Builder(tmp_path), {**tables, "engine": engine})
    assert not list((tmp_path / "cache/stages").glob("load-*"))


def _stage(place: Path, name: str) -> Path:
    """Its result in the cache, where a hash of 24 digits follows its name."""
    [folder] = (place / "cache/stages").glob(f"{name}-{'?' * 24}")
    return folder


def _build(builder: Builder, tables: Mapping[str, Table], *, graphs: Path | None = None) -> Built:
    return builder(
        graphs=graphs,
        target=tables["target"],
        draft=tables["draft"],
        engine=tables["engine"],
        validate=tables["validate"],
    )
