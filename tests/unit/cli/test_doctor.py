"""The command on hosts with and without GPUs, and on an artifact with engines for two of them.

What it does with plans that can run, is in `test_self_tests`.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import pytest

from speccompile.cli import diagnosis
from speccompile.cli.main import main
from speccompile.runtime import host
from speccompile.runtime.files import FileEntry
from speccompile.runtime.manifest import EngineInfo, Manifest, ModelInfo, Requirements
from speccompile.runtime.measurements import unmeasured
from tests.cuda import PLANS, FakeGpu, give_gpus, give_library

CONTENTS = {
    "engines/cpu/target.onnx": b"graph",
    **{path: bytes(1000) for path in (PLANS.kernels, *(plan.plan for plan in PLANS.plans))},
}
HERE = Requirements(host.describe().architecture, (), {"tokenizers": "0.1"})
ELSEWHERE = Requirements("pdp11", (), {"openvino": "1.0"})
MANIFEST = Manifest(
    schema=6,
    name="tiny [bold]model[/bold]",
    compiler_version="0.1.0",
    model=ModelInfo(512, 64, 2, 2, 16, 1, (2,)),
    engines={
        "target": EngineInfo(
            *("target", "openvino", "engines/cpu/target.onnx", "fp16", "fp32"),
            *(2, 2, 4, 16, 64, 512),
            min_rows=1,
            shares_cache=False,
        )
    },
    requires=HERE,
    provenance={},
    files={
        path: FileEntry(sha256(content).hexdigest(), len(content), "engine")
        for path, content in CONTENTS.items()
    },
    gpus={"tensorrt-sm89": PLANS, "tensorrt-sm120": replace(PLANS, architecture="sm120")},
)

Doctor = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Doctor:
    """Calls the command; returns exit code, lines of output and error output."""
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))
    give_library(monkeypatch, "1.7.1.116")
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)

    def run(*arguments: object) -> tuple[int, list[str], str]:
        arguments = ("--no-self-test", *arguments)
        monkeypatch.setattr(sys, "argv", ["speccompile", "doctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert captured.err.count("\n") <= 1
        lines = [line.rstrip() for line in captured.out.splitlines()]
        return int(ended.value.code or 0), lines, captured.err

    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    for path, content in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    write(folder, MANIFEST)
    return folder


def write(root: Path, manifest: Manifest) -> None:
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    (root / "measurements.json").write_bytes(unmeasured(manifest).to_bytes())


def fact(lines: list[str], name: str) -> str:
    """What stands beside `name`, with its continuation lines."""
    [start] = [index for index, line in enumerate(lines) if line.startswith(f"{name}  ")]
    values = [lines[start][len(name) :]]
    for line in lines[start + 1 :]:
        if not line.startswith("  "):
            break
        values.append(line)
    return " ".join(" ".join(values).split())


def block(lines: list[str], headline: str) -> dict[str, list[str]]:
    """The needs under a headline: what is needed -> the words of the rest of its row."""
    rows = lines[lines.index(headline) + 1 :]
    rows = rows[: rows.index("")]
    assert rows[0].split() == ["requires", "need", "have"]
    return {row.split("  ")[0]: row.split("  ", 1)[1].split() for row in rows[1:]}


def test_the_machine(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "not" / "yet"))
    monkeypatch.setattr(host, "cpu_flags", lambda: frozenset({"sse2", "amx_bf16", "avx2"}))
    code, lines, error = doctor()
    assert (code, error) == (0, "")
    assert max(map(len, lines)) <= 80
    assert int(fact(lines, "cores")) >= 1
    assert fact(lines, "memory").endswith(" GB")
    assert fact(lines, "instructions") == "avx2 amx_bf16"
    assert fact(lines, "Python") == ".".join(map(str, sys.version_info[:3]))
    assert f"numpy {metadata.version('numpy')}" in fact(lines, "to run")
    assert f"pydantic {metadata.version('pydantic')}" in fact(lines, "to build")
    assert fact(lines, "tensorrt_rtx") == "1.7.1.116"
    assert fact(lines, "tensorrt") == "not installed (pip install 'speccompile[cuda]')"
    assert "CUDA packages are not installed" in fact(lines, "GPU")
    assert fact(lines, "cache").endswith(" GB free")
    assert str(tmp_path / "not" / "yet") in "".join(lines).replace(" ", "")
    assert not (tmp_path / "not").exists()


def test_gpus_and_what_hides_them(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, FakeGpu(), FakeGpu("Evil \x1b[31m"), present=3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    _, lines, _ = doctor()
    assert fact(lines, "driver") == "580.95.05, runs CUDA up to 13.1"
    uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert fact(lines, "GPU 0") == f"NVIDIA L4, sm89, 24.0 GB, {uuid}"
    assert "hides 1 of 3 GPUs" in fact(lines, "GPUs")
    assert "\x1b" not in "".join(lines)


def test_what_can_be_built(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rtx:
        class ComputeCapability:
            __members__ = dict.fromkeys(("NONE", "CURRENT", "SM75", "SM120"))

    monkeypatch.setitem(sys.modules, "tensorrt_rtx", Rtx)
    built = "engines for the CPU plans for sm75 sm120 with tensorrt_rtx"
    assert fact(doctor()[1], "can build") == built
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    assert fact(doctor()[1], "can build").endswith("tensorrt_rtx, which cannot be imported")

    give_library(monkeypatch, "11.1.0.106", "tensorrt")
    assert fact(doctor()[1], "can build").endswith("tensorrt, which builds on a GPU only")
    give_gpus(monkeypatch, FakeGpu(), FakeGpu())
    assert fact(doctor()[1], "can build").endswith("plans for sm89 with tensorrt")

    give_library(monkeypatch, None)
    assert fact(doctor()[1], "can build").endswith(
        "no plans for GPUs without tensorrt or tensorrt_rtx"
    )


def uninstall(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    installed = metadata.version

    def version(name: str) -> str:
        if name in names:
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(metadata, "version", version)


def test_packages_that_are_not_installed(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    uninstall(monkeypatch, "gguf", "torch", "rich")
    _, lines, _ = doctor()
    missing = "not installed: gguf, torch (pip install 'speccompile[compiler]')"
    assert fact(lines, "to build").endswith(missing)
    assert fact(lines, "to run").endswith("not installed: rich (pip install speccompile)")
    assert fact(lines, "can build").startswith("nothing before")


def test_a_cpu_build_needs_no_gpu_packages(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = "cuda-bindings", "cuda-core", "nvidia-cuda-nvrtc"
    uninstall(monkeypatch, "matplotlib", "nvtx", *packages)
    _, lines, _ = doctor()
    missing = ", ".join(packages)
    assert fact(lines, "for GPUs") == (
        f"not installed: {missing}, nvtx (pip install 'speccompile[cuda]')"
    )
    assert fact(lines, "can build") == (f"engines for the CPU no plans for GPUs without {missing}")


def test_every_package_of_the_extras_is_shown(doctor: Doctor) -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [
        *project["dependencies"],
        *extras["compiler"],
        *extras["cuda"],
        *extras["tensorrt-rtx"],
    ]
    document = json.loads("\n".join(doctor("--json")[1]))
    shown = {package["name"] for package in document["packages"]}
    libraries = {"tensorrt", "tensorrt-rtx-cu13"}
    assert {line.split(">")[0] for line in asked} - libraries == shown - {"speccompile"}
    assert {library["name"] for library in document["libraries"]} == {"tensorrt", "tensorrt_rtx"}


def test_an_artifact_on_a_host_without_a_gpu(doctor: Doctor, root: Path) -> None:
    code, lines, error = doctor(root)
    assert (code, error) == (0, "")
    assert max(map(len, lines)) <= 80
    assert fact(lines, "artifact") == "tiny [bold]model[/bold]"
    assert fact(lines, "identity") == MANIFEST.identity
    cpu = block(lines, "cpu  can run here")
    assert cpu["architecture"] == [HERE.architecture, HERE.architecture, "ok"]
    assert cpu["tokenizers"] == ["0.1", metadata.version("tokenizers"), "ok"]
    gpu = block(lines, "tensorrt-sm89  cannot run here")
    assert gpu["GPU"] == ["sm89", "none", "LACKING"]
    assert gpu["driver's CUDA"] == ["13.0", "or", "newer", "none", "LACKING"]
    assert gpu["tensorrt_rtx"] == ["1.7.1.116", "1.7.1.116", "ok"]
    assert gpu["memory for 1024 slots"] == ["0.1", "MB", "none", "LACKING"]
    stuck = ", ".join(f"{name} (lacks GPU, driver's CUDA)" for name in sorted(MANIFEST.gpus))
    assert fact(lines, "verdict") == f"can run here: cpu; cannot: {stuck}"
    assert "verdict" in "".join(lines[-2:])


def test_an_artifact_on_a_host_with_one_of_its_gpus(
    doctor: Doctor, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = FakeGpu("NVIDIA L2", memory=100_000)
    large = FakeGpu("NVIDIA B200", (10, 0), 180_000_000_000)
    give_gpus(monkeypatch, large, small, FakeGpu())
    code, lines, _ = doctor(root)
    assert code == 0
    gpu = block(lines, "tensorrt-sm89  can run on GPU 2, not verified on this GPU")
    assert all(row[-1] == "ok" for row in gpu.values())
    gpu = block(lines, "tensorrt-sm120  cannot run here")
    assert gpu["GPU"] == ["sm120", "sm100", "LACKING"]
    said = "can run here: cpu, tensorrt-sm89 (not verified); cannot: tensorrt-sm120 (lacks GPU)"
    assert fact(lines, "verdict") == said


def test_plans_of_one_capacity_are_enough(
    doctor: Doctor, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_gpus(monkeypatch, FakeGpu(memory=1000 + 64 * 64))
    gpu = block(doctor(root)[1], "tensorrt-sm89  can run on GPU 0, not verified on this GPU")
    assert gpu["memory for 64 slots"][-1] == "ok"
    assert gpu["memory for 1024 slots"][-1] == "LACKING"
    give_gpus(monkeypatch, FakeGpu(memory=1000 + 64 * 64 - 1))
    _, lines, _ = doctor(root)
    block(lines, "tensorrt-sm89  cannot run here")
    assert "tensorrt-sm89 (lacks memory)" in fact(lines, "verdict")


def test_plans_can_run_where_the_cpu_engines_cannot(
    doctor: Doctor, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, replace(MANIFEST, requires=ELSEWHERE))
    give_gpus(monkeypatch, FakeGpu())
    code, lines, error = doctor(root)
    assert (code, error) == (0, "")
    assert block(lines, "cpu  cannot run here")["architecture"][0] == "pdp11"
    assert fact(lines, "verdict").startswith("can run here: tensorrt-sm89 (not verified)")


def test_an_artifact_that_cannot_run_here(doctor: Doctor, root: Path) -> None:
    write(root, replace(MANIFEST, requires=ELSEWHERE))
    code, lines, error = doctor(root)
    assert code == 4
    assert fact(lines, "verdict") == "nothing of it can run here"
    assert "no engine of the artifact can run here: cpu lacks architecture, openvino; " in error
    assert "tensorrt-sm89 lacks GPU, driver's CUDA" in error
    code, lines, _ = doctor(root, "--json")
    assert code == 4
    assert "no engine" in json.loads("\n".join(lines))["artifact"]["error"]


def test_a_damaged_artifact_is_refused_as_such(doctor: Doctor, root: Path) -> None:
    (root / PLANS.kernels).unlink()
    code, lines, error = doctor(root)
    assert code == 3
    assert "cpu  can run here" in lines
    assert "kernels.cubin' is missing" in error
    code, lines, error = doctor(root / "engines")
    assert (code, lines) == (3, [])
    assert "is not a speccompile artifact" in error


def test_json(doctor: Doctor, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, FakeGpu())
    document = json.loads("\n".join(doctor("--json", root)[1]))
    assert document["driver"] == {"version": "580.95.05", "cuda": "13.1"}
    assert document["gpus"][0]["architecture"] == "sm89"
    assert document["gpus_reason"] is None
    assert document["cache"]["free_bytes"] > 0
    assert document["artifact"]["identity"] == MANIFEST.identity
    assert document["artifact"]["error"] is None
    engines = {engine["name"]: engine for engine in document["artifact"]["engines"]}
    assert {name: engine["runs"] for name, engine in engines.items()} == {
        "cpu": True,
        "tensorrt-sm89": True,
        "tensorrt-sm120": False,
    }
    assert engines["tensorrt-sm89"]["gpu"]["index"] == 0
    assert engines["tensorrt-sm89"]["needs"][0] == {
        "what": "GPU",
        "need": "sm89",
        "have": "sm89",
        "met": True,
    }
    assert "artifact" not in json.loads("\n".join(doctor("--json")[1]))


def test_help(doctor: Doctor) -> None:
    code, lines, _ = doctor("--help")
    assert code == 0
    assert lines[0].startswith("Usage: ")
    assert lines[0].endswith("doctor [OPTIONS] [ARTIFACT]")


def test_the_instructions_of_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cpu_flags", lambda: frozenset({"fp", "sve", "asimd"}))
    assert diagnosis.diagnose().instructions == ("asimd", "sve")
    monkeypatch.setattr(host, "cpu_flags", lambda: None)
    assert diagnosis.diagnose().instructions is None
