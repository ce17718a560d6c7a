"""Requirements of installed packages, on distributions made for it."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from speccompile.compiler.dependencies import installed

PACKAGES = {
    "alpha": ["Beta_Two[fast]>=1", "gone", "win; sys_platform == 'win32'", "more; extra == 'all'"],
    "beta-two": ["alpha", "gamma; extra == 'fast'"],
    "gamma": [],
    "more": [],
    "win": [],
}


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, requires in PACKAGES.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0"]
        lines += [f"Requires-Dist: {line}" for line in requires]
        lines += ["License-Expression: MIT"] if name == "gamma" else []
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])


def test_all_that_a_package_requires_here() -> None:
    found = installed("alpha")
    assert [*found] == ["alpha", "beta-two", "gamma"]
    assert found["alpha"].requires == ("beta-two",)
    assert found["beta-two"].requires == ("alpha", "gamma")
    assert (found["gamma"].version, found["gamma"].license) == ("1.0", "MIT")
    assert found["alpha"].license is None


def test_extras_bring_more() -> None:
    assert "more" in installed("alpha", ["all"])
    assert [*installed("beta-two")] == ["alpha", "beta-two", "gamma"]


def test_what_is_not_installed_requires_nothing() -> None:
    with pytest.raises(PackageNotFoundError):
        installed("gone")
