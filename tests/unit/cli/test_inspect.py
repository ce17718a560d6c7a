"""The command on hand-made artifacts, whole and damaged."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from speccompile.cli.main import main
from speccompile.runtime import host
from speccompile.runtime.files import FileEntry
from speccompile.runtime.manifest import EngineInfo, Manifest, ModelInfo, Requirements
from speccompile.runtime.measurements import Defaults, Measurements
from tests.cuda import PLANS

CONTENTS = {
    "engines/cpu/target.onnx": bytes(300),
    "engines/cpu/draft.onnx": b"d",
    "run.pyz": b"",
    "reports/build.json": b"{}",
}
ENTRIES = {
    path: FileEntry(sha256(content).hexdigest(), len(content), path.split("/")[0])
    for path, content in CONTENTS.items()
}
TARGET = EngineInfo(
    *("target", "openvino", "engines/cpu/target.onnx", "fp16", "fp32", 2, 2, 4, 16, 80, 512),
    min_rows=2,
    shares_cache=False,
)
DRAFT = replace(
    TARGET,
    role="draft",
    backend="onnxruntime",
    graph="engines/cpu/draft.onnx",
    precision="int8",
    min_rows=1,
)
MANIFEST = Manifest(
    schema=6,
    name="tiny [bold]model[/bold]",
    compiler_version="0.1.0",
    model=ModelInfo(512, 64, 2, 2, 16, 1, (2, 7)),
    engines={"draft": DRAFT, "target": TARGET},
    requires=Requirements(host.describe().architecture, (), {"tokenizers": "0.1"}),
    provenance={
        "target": {"source": "somewhere", "sha256": "ab" * 32, "license": "MIT \x1b[31m"},
        "recipe": {"name": "tiny"},
    },
    files={path: entry for path, entry in ENTRIES.items() if not path.startswith("reports/")},
)
MEASUREMENTS = Measurements(
    schema=6,
    manifest=MANIFEST.identity,
    cost_ms={"draft": {1: 2.0, 2: 2.5}, "target": {1: 7.0, 2: 8.0, 3: 10.0}},
    acceptance=(0.75, 0.5),
    lossless=True,
    defaults=Defaults("model", 1),
    files={path: entry for path, entry in ENTRIES.items() if path.startswith("reports/")},
)

Inspect = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    for path, content in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    write(folder, MANIFEST)
    return folder


def write(root: Path, manifest: Manifest, measurements: Measurements = MEASUREMENTS) -> None:
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    measurements = replace(measurements, manifest=manifest.identity)
    (root / "measurements.json").write_bytes(measurements.to_bytes())


@pytest.fixture
def inspect(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inspect:
    def invoke(*arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        monkeypatch.setattr(sys, "argv", ["speccompile", "inspect", str(root), *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        code = exit_info.value.code
        assert isinstance(code, int)
        assert captured.err.count("\n") <= 1
        return code, captured.out, captured.err

    return invoke


def test_a_whole_artifact(inspect: Inspect) -> None:
    code, output, error = inspect()
    lines = output.splitlines()
    assert (code, error) == (0, "")
    assert max(map(len, lines)) <= 80
    words = [line.split() for line in lines]
    assert ["name", "tiny", "[bold]model[/bold]"] in words
    assert ["identity", MANIFEST.identity] in words
    assert ["target", "openvino", "fp16", "fp32", "steps", "of", "2+", "80"] in words
    assert ["draft", "onnxruntime", "int8", "fp32", "80"] in words
    assert ["target", "7.0", "8.0", "10.0"] in words
    assert ["acceptance", "0.75", "0.50"] in words
    assert ["target", "sha256", "ab" * 32] in words
    assert ["run.pyz", "run.pyz", "0", "B", "ok"] in words
    assert ["reports/build.json", "reports", "2", "B", "ok"] in words


def test_what_is_measured_is_told_from_what_it_is(inspect: Inspect) -> None:
    output = inspect()[1]
    start = output.index(
        "\nmeasured    on the host of the build or of `tune`; no part of the identity"
    )
    for fact in ("lossless", "speed", "acceptance", "ms by rows"):
        assert output.index(f"\n{fact}") > start
    for fact in ("identity", "model", "engine", "target sha256"):
        assert output.index(f"\n{fact}") < start
    document = json.loads(inspect("--json")[1])
    assert document["measured"].keys() == {
        *("lossless", "defaults", "acceptance", "experts", "cost_ms"),
        *("plain_tokens_per_second", "predicted_speedup"),
    }


def test_speed(inspect: Inspect) -> None:
    # A round drafts in a step of 2 rows, 2.5 ms, verifies in 8 ms, and yields 1.75 tokens.
    _, output, _ = inspect("--json")
    measured = json.loads(output)["measured"]
    assert measured["plain_tokens_per_second"] == pytest.approx(1000 / 7)
    assert measured["predicted_speedup"] == pytest.approx(1.75 * 7 / (2.5 + 8))


def test_the_order_is_target_first(inspect: Inspect) -> None:
    _, output, _ = inspect()
    assert output.index("target  openvino") < output.index("draft   onnxruntime")


def test_json_is_complete(inspect: Inspect, root: Path) -> None:
    code, output, _ = inspect("--json")
    document = json.loads(output)
    assert code == 0
    assert document["identity"] == sha256((root / "manifest.json").read_bytes()).hexdigest()
    assert document["bytes"] == 303
    assert document["provenance"]["recipe"] == {"name": "tiny"}
    assert document["measured"]["cost_ms"]["target"] == {"1": 7.0, "2": 8.0, "3": 10.0}
    assert document["error"] is None
    architecture, tokenizers = document["requires"]
    assert architecture["need"] == architecture["have"]
    assert tokenizers["what"] == "tokenizers"
    assert tokenizers["met"] is True
    assert document["files"]["run.pyz"] == {
        "role": "run.pyz",
        "size": 0,
        "sha256": sha256().hexdigest(),
        "state": "ok",
    }


def test_no_hash(inspect: Inspect, root: Path) -> None:
    (root / "engines/cpu/draft.onnx").write_bytes(b"D")
    code, output, _ = inspect("--json", "--no-hash")
    states = {path: entry["state"] for path, entry in json.loads(output)["files"].items()}
    assert code == 0
    assert states == dict.fromkeys(CONTENTS, "not hashed")


def test_a_damaged_artifact_is_shown_and_refused(inspect: Inspect, root: Path) -> None:
    (root / "engines/cpu/draft.onnx").write_bytes(b"D")
    code, output, error = inspect()
    assert code == 3
    assert ["engines/cpu/draft.onnx", "engines", "1", "B", "changed"] in [
        line.split() for line in output.splitlines()
    ]
    assert error.startswith("error: ")
    assert "the content of 'engines/cpu/draft.onnx' changed" in error


def test_states_of_files(inspect: Inspect, root: Path) -> None:
    (root / "engines/cpu/draft.onnx").write_bytes(b"longer")
    (root / "run.pyz").unlink()
    (root / "added\x1b[31m").write_bytes(b"")
    code, output, _ = inspect("--json")
    document = json.loads(output)
    states = {path: entry["state"] for path, entry in document["files"].items()}
    assert code == 3
    assert "'run.pyz' is missing" in document["error"]
    assert states == {
        "engines/cpu/target.onnx": "ok",
        "engines/cpu/draft.onnx": "6 bytes",
        "run.pyz": "missing",
        "reports/build.json": "ok",
        "added\x1b[31m": "unlisted",
    }


def test_nothing_commands_the_terminal(inspect: Inspect, root: Path) -> None:
    (root / "added\x1b[31m").write_bytes(b"")
    _, output, _ = inspect()
    assert "\x1b" not in output
    assert r"MIT \x1b[31m" in output


def test_an_incompatible_artifact_is_shown_and_refused(inspect: Inspect, root: Path) -> None:
    needs = Requirements("pdp11", ("turbo",), {"openvino": "1.0", "tokenizers": "0.1"})
    write(root, replace(MANIFEST, requires=needs))
    code, output, error = inspect()
    lacking = [line.split()[-4:] for line in output.splitlines() if "LACKING" in line]
    assert code == 4
    assert lacking[0] == ["architecture", "pdp11", host.describe().architecture, "LACKING"]
    assert lacking[1][1:] == ["turbo", "no", "LACKING"]
    assert lacking[2][:2] == ["openvino", "1.0"]
    assert "architecture pdp11" in error


def test_an_artifact_without_draft(inspect: Inspect, root: Path) -> None:
    manifest = replace(MANIFEST, engines={"target": TARGET})
    costs = {"target": MEASUREMENTS.cost_ms["target"]}
    measurements = replace(
        MEASUREMENTS, cost_ms=costs, defaults=Defaults("ngram", 4), acceptance=()
    )
    write(root, manifest, measurements)
    code, output, _ = inspect()
    assert code == 0
    assert "ngram draft of 4" in output
    assert "predicted" not in output


def test_gpu_engines(inspect: Inspect, root: Path) -> None:
    assert "GPU engines" not in inspect()[1]
    draft = replace(PLANS.plans[0], role="draft", plan="engines/gpu/draft.plan")
    engines = replace(PLANS, plans=(PLANS.plans[1], draft, PLANS.plans[0]))
    files = dict(MANIFEST.files)
    for path in (engines.kernels, *(plan.plan for plan in engines.plans)):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(bytes(100_000))
        files[path] = FileEntry(sha256(bytes(100_000)).hexdigest(), 100_000, "engine")
    older = replace(engines, architecture="sm86", plans=engines.plans[:1])
    gpus = {"tensorrt-sm89": engines, "tensorrt-sm86": older}
    write(root, replace(MANIFEST, files=files, gpus=gpus))

    code, output, error = inspect()
    assert (code, error) == (0, "")
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80
    words = [line.split() for line in lines]
    start = words.index(
        ["GPU", "engines", "library", "for", "plans", "by", "cache", "slots", "size"]
    )
    library = ["tensorrt_rtx", "1.7.1.116"]
    assert words[start + 1 : start + 5] == [
        ["tensorrt-sm86", *library, "sm86", "target", "1024", "0.2", "MB"],
        ["tensorrt-sm89", *library, "sm89", "target", "64,", "1024", "0.4", "MB"],
        ["draft", "64"],
        [],
    ]
    assert json.loads(inspect("--json")[1])["gpus"]["tensorrt-sm89"]["cuda"] == "13.0"


@pytest.mark.parametrize("name", ["manifest.json", "measurements.json", "run.pyz"])
def test_a_link_is_refused(inspect: Inspect, root: Path, name: str) -> None:
    (root / name).unlink()
    (root / name).symlink_to("/dev/null")
    code, output, error = inspect()
    assert (code, output) == (3, "")
    assert f"'{name}' is a symbolic link" in error


@pytest.mark.parametrize("damage", [b"", MEASUREMENTS.to_bytes()[:-1], None])
def test_without_measurements_it_is_shown_and_refused(
    inspect: Inspect, root: Path, damage: bytes | None
) -> None:
    (root / "measurements.json").unlink()
    if damage is not None:
        (root / "measurements.json").write_bytes(damage)
    code, output, error = inspect()
    assert code == 3
    assert MANIFEST.identity in output
    assert "not measured" in output
    assert "NOT shown by the build" in output
    assert "measurements.json" in error


def test_no_artifact(inspect: Inspect, root: Path) -> None:
    (root / "manifest.json").write_text("{}")
    assert inspect()[0] == 3
    (root / "manifest.json").unlink()
    code, output, error = inspect("--json")
    assert (code, output) == (3, "")
    assert "is not a speccompile artifact" in error
