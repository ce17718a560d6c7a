"""A build from a model folder to an artifact, whole, interrupted and refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from speccompile.compiler import build as build_module
from speccompile.compiler.assemble import Candidate, candidates
from speccompile.compiler.build import build
from speccompile.compiler.execute import Observer, StageResult
from speccompile.compiler.quality import Quality
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.compiler.report.render import render_build
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Request


class Recorder(Observer):
    def __init__(self) -> None:
        self.results: list[StageResult] = []

    def finished(self, result: StageResult) -> None:
        self.results.append(result)


@pytest.fixture
def recipe(recipe_file: Path) -> Recipe:
    return load_recipe(str(recipe_file))


def test_the_artifact_is_whole_and_says_what_was_measured(artifact: Path) -> None:
    opened = open_artifact(artifact)
    manifest, measurements = opened.manifest, opened.measurements
    assert set(manifest.engines) == {"target", "draft"}
    assert manifest.engines["target"].precision == "fp16"
    assert manifest.engines["draft"].precision == "int8"
    assert manifest.model.context_length == 256
    assert manifest.model.eos_token_ids == (0,)
    assert measurements.lossless
    assert measurements.cost_ms.keys() == manifest.engines.keys()
    costs = measurements.cost_ms["target"]  # a padded step is the one that it is padded to
    assert costs[1] == costs[max(1, manifest.engines["target"].min_rows)]
    reports = ("build.json", "report.html", "provenance.json", "sbom.cdx.json")
    assert set(measurements.files) == {f"reports/{name}" for name in reports}


def test_the_report_has_what_was_found_out(artifact: Path) -> None:
    text = (artifact / "reports/build.json").read_text(encoding="utf-8")
    report = json.loads(text)
    opened = open_artifact(artifact)
    assert report["schema"] == 1
    assert report["identity"] == opened.manifest.identity
    assert report["recipe"] == opened.manifest.provenance["recipe"]
    assert len(report["candidates"]) == 4
    assert sum(entry["chosen"] for entry in report["candidates"]) == 2
    assert report["validation"]["lossless"]
    assert len(report["validation"]["tested_proposals"]) == len(opened.measurements.acceptance)
    assert [stage["name"] for stage in report["stages"]][::22] == ["load target", "validate"]
    assert all(stage["seconds"] > 0 for stage in report["stages"])
    assert all(stage["peak_memory_bytes"] > 10**7 for stage in report["stages"])
    assert report["peak_memory_bytes"] >= max(
        stage["peak_memory_bytes"] for stage in report["stages"]
    )
    model = report["models"]["target"]
    assert (model["layers"], model["vocabulary"]["rows"]) == (2, 512)
    assert (
        model["parameters"]
        == 512 * 64 + 2 * (3 * 64 * 128 + 2 * 64 * 64 + 2 * 64 * 32 + 2 * 64) + 64
    )
    assert report["weights"]["draft"]["bytes"].keys() == {"int8", "fp32"}
    for graph in report["graphs"]:
        assert graph["lowered"]["nodes"] < graph["contract"]["nodes"]
        assert graph["passes"][0] == {"name": "fuse_projections", "rewrites": 4}
    for entry in report["candidates"]:
        if entry["chosen"]:
            engine = opened.manifest.engines[entry["role"]]
            files = (engine.graph, f"{engine.graph}.data")
            assert entry["bytes"] == sum(opened.manifest.files[file].size for file in files)
    assert report["verdict"]["predicted_speedup"].keys() == {str(length) for length in range(9)}


def test_the_report_has_the_fields_that_are_documented(artifact: Path) -> None:
    report = json.loads((artifact / "reports/build.json").read_text(encoding="utf-8"))
    guide = (Path(__file__).parents[2] / "docs/artifact.md").read_text(encoding="utf-8")
    section = guide.partition("## The build report")[2]
    documented = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    names = [name for row in documented for name in re.findall(r"`(\w+)`", row)]
    assert sorted(names) == sorted(report)


def test_the_page_of_the_report_is_that_of_its_figures(artifact: Path) -> None:
    report = json.loads((artifact / "reports/build.json").read_text(encoding="utf-8"))
    page = (artifact / "reports/report.html").read_text(encoding="utf-8")
    assert page == render_build(report)


def test_without_the_drawing_library_the_page_alone_is_left_out(
    recipe: Recipe, artifact: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speccompile.compiler.report.files.can_draw", lambda: False)
    built = build(recipe, tmp_path / "tiny", cache=cache, observer=Observer())
    left = ["reports/build.json", "reports/provenance.json", "reports/sbom.cdx.json"]
    assert list(built.measurements.files) == left
    assert list(open_artifact(built.path).measurements.files) == left


def test_the_graphs_of_every_pass_can_be_looked_at(
    recipe: Recipe, artifact: Path, cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "graphs"
    stale = folder / "target-openvino" / "07-of-an-older-build.onnx"
    stale.parent.mkdir(parents=True)
    stale.touch()
    built = build(recipe, tmp_path / "tiny", cache=cache, observer=Observer(), graphs=folder)
    passes = {
        f"{graph['role']}-{graph['backend']}": [entry["name"] for entry in graph["passes"]]
        for graph in built.report["graphs"]
    }
    assert {path.name for path in folder.iterdir()} == passes.keys()
    for place, names in passes.items():
        files = sorted((folder / place).iterdir())
        expected = [f"{number:02}-{name}" for number, name in enumerate(["contract", *names])]
        assert [path.stem for path in files] == expected
        nodes = [_check_graph(path) for path in files]
        graph = next(
            graph
            for graph in built.report["graphs"]
            if f"{graph['role']}-{graph['backend']}" == place
        )
        assert (nodes[0], nodes[-1]) == (graph["contract"]["nodes"], graph["lowered"]["nodes"])
    assert sum(path.stat().st_size for path in folder.rglob("*.onnx")) < 2_000_000  # no weights


def test_graphs_that_cannot_be_written_are_one_line(
    recipe: Recipe, artifact: Path, cache: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(SpeccompileError, match=r"file: cannot be written: .*; choose another"):
        build(recipe, tmp_path / "tiny", cache=cache, observer=Observer(), graphs=blocked)
    assert not (tmp_path / "tiny").exists()


def test_nothing_in_the_artifact_can_run_unasked(artifact: Path) -> None:
    files = {
        path.relative_to(artifact).as_posix() for path in artifact.rglob("*") if path.is_file()
    }
    kinds = {path.rsplit(".", 1)[-1] for path in files}
    assert kinds <= {"json", "onnx", "data", "jinja", "pyz", "whl", "html"}
    assert "<script" not in (artifact / "reports/report.html").read_text(encoding="utf-8")


def test_the_artifact_works_after_being_moved(artifact: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in sorted(artifact.rglob("*")):
        copy = moved / path.relative_to(artifact)
        copy.mkdir() if path.is_dir() else copy.write_bytes(path.read_bytes())
    request = Request(max_new_tokens=8)
    outputs = [
        list(runner.session().generate(runner.encode_raw("def f"), request))
        for runner in (Runner.open(artifact), Runner.open(moved))
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 0


def test_a_second_build_takes_every_stage_from_the_cache(
    recipe: Recipe, artifact: Path, cache: Path, tmp_path: Path
) -> None:
    recorder = Recorder()
    again = build(recipe, tmp_path / "tiny", cache=cache, observer=recorder).report["stages"]
    assert [result.name for result in recorder.results if not result.cached] == ["validate"]
    first = json.loads((artifact / "reports/build.json").read_text(encoding="utf-8"))["stages"]
    assert again[:-1] == [{**stage, "cached": True} for stage in first[:-1]]


def test_an_interrupted_build_leaves_the_old_artifact_and_is_resumed(
    recipe: Recipe,
    artifact: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destination = tmp_path / "tiny"
    old = build(recipe, destination, cache=cache, observer=Observer()).manifest.identity

    def interrupted(*arguments: object) -> Mapping[str, object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build_module, "publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(recipe, destination, cache=cache, observer=Observer())
    assert open_artifact(destination).manifest.identity == old
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".staging")] == []


def test_a_draft_below_the_gate_fails_the_build_and_leaves_nothing(
    recipe_file: Path, other_model_folder: Path, cache: Path, tmp_path: Path
) -> None:
    text = recipe_file.read_text(encoding="utf-8") + "min_acceptance = 0.5\n"
    text = text.replace("[draft]", f'[draft]\nsource = "{other_model_folder}"')
    strict = tmp_path / "strict.toml"
    strict.write_text(text, encoding="utf-8")
    destination = tmp_path / "out" / "tiny"
    with pytest.raises(SpeccompileError, match=r"below validate\.min_acceptance = 0\.5"):
        build(load_recipe(str(strict)), destination, cache=cache, observer=Observer())
    assert _left_in(destination.parent) == []


def test_a_target_that_lost_too_much_fails_the_build_and_leaves_nothing(
    recipe_file: Path, artifact: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quantizing hardly changes a random model's perplexity: the build is told that it grew."""

    def worse(*arguments: Any) -> dict[str, list[Candidate]]:  # noqa: ANN401
        return {
            role: [replace(entry, quality=_grown(entry.quality)) for entry in among]
            for role, among in candidates(*arguments).items()
        }

    monkeypatch.setattr(build_module, "candidates", worse)
    for limit, refused in (("0.02", True), ("0.03", False)):
        recipe = tmp_path / f"{limit}.toml"
        text = recipe_file.read_text(encoding="utf-8")
        recipe.write_text(f"{text}max_perplexity_increase = {limit}\n", encoding="utf-8")
        destination = tmp_path / limit / "tiny"
        recorder = Recorder()
        if refused:
            with pytest.raises(SpeccompileError) as failure:
                build(load_recipe(str(recipe)), destination, cache=cache, observer=recorder)
            assert str(failure.value) == (
                "tiny: perplexity grows by 2.50% over full precision, above "
                "validate.max_perplexity_increase = 0.02; choose a finer target.precision"
            )
            assert _left_in(destination.parent) == []
            assert "validate" not in [result.name for result in recorder.results]
        else:
            build(load_recipe(str(recipe)), destination, cache=cache, observer=recorder)
            assert _left_in(destination.parent) == ["tiny"]


def _grown(quality: Quality) -> Quality:
    return replace(quality, perplexity=1.025 * quality.reference_perplexity)


def _left_in(folder: Path) -> list[str]:
    """All but the lock, which is left on purpose."""
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


def _check_graph(path: Path) -> int:
    """Load a graph as any viewer would, check that it hangs together, and count its nodes."""
    graph = onnx.load(str(path), load_external_data=False).graph
    known = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        assert known.issuperset(filter(None, node.input)), node.name
        known.update(node.output)
    assert known.issuperset(value.name for value in graph.output)
    return len(graph.node)
