import platform
from importlib import metadata
from pathlib import Path

import pytest

from speccompile.runtime import host
from speccompile.runtime.errors import CompatibilityError
from speccompile.runtime.manifest import Requirements

INSTALLED = {"openvino": "2026.4.1", "numpy": "2.10.0rc1", "onnxruntime-gpu": "1.32.0"}


@pytest.fixture(autouse=True)
def _fake_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def version(name: str) -> str:
        if name not in INSTALLED:
            raise metadata.PackageNotFoundError(name)
        return INSTALLED[name]

    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: Fast CPU\nflags\t\t: sse2 avx2\n\nflags\t\t: other\n")
    monkeypatch.setattr(host, "_CPUINFO", cpuinfo)
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def requirements(*cpu_flags: str, architecture: str = "x86_64", **packages: str) -> Requirements:
    return Requirements(architecture, cpu_flags, packages)


def refusal(requires: Requirements) -> str:
    with pytest.raises(CompatibilityError) as caught:
        host.check(requires)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_host_that_has_everything() -> None:
    host.check(requirements("avx2", "sse2", openvino="2026.4", numpy="2.9", onnxruntime="1.32"))


@pytest.mark.parametrize("version", ["2026.3", "2026.5", "2025.4"])
def test_openvino_is_held_to_its_minor_release(version: str) -> None:
    message = refusal(requirements(openvino=version))
    assert f"needs openvino {version}.*, here is 2026.4.1" in message


@pytest.mark.parametrize("version", ["2.11", "3.0"])
def test_others_may_be_newer_but_not_older(version: str) -> None:
    message = refusal(requirements(numpy=version))
    assert f"needs numpy {version} or newer, here is 2.10.0rc1" in message


def test_everything_is_named_at_once() -> None:
    needs = requirements(
        "avx2", "amx_bf16", "avx512f", architecture="aarch64", openvino="2027.1", tokenizers="0.21"
    )
    message = refusal(needs)
    assert "architecture aarch64, here is x86_64" in message
    assert "CPU flags amx_bf16, avx512f, Fast CPU has none of these" in message
    assert "openvino 2027.1.*, here is 2026.4.1" in message
    assert "tokenizers 0.21 or newer, here is none" in message


def test_flags_are_not_checked_where_they_are_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host, "_CPUINFO", tmp_path / "absent")
    assert host.cpu_flags() is None
    host.check(requirements("avx512f"))


def test_describe() -> None:
    facts = host.describe()
    assert facts.cpu == "Fast CPU"
    assert facts.architecture == "x86_64"
    assert facts.cores >= 1
    assert facts.memory_bytes is None or facts.memory_bytes > 1 << 20
    assert facts.packages == {"numpy": "2.10.0rc1", "openvino": "2026.4.1", "onnxruntime": "1.32.0"}


def test_arm_names_its_flags_features(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "arm").write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    monkeypatch.setattr(host, "_CPUINFO", tmp_path / "arm")
    assert host.cpu_flags() == frozenset({"fp", "asimd"})
