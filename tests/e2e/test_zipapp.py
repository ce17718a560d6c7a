"""``run.pyz`` on a host that has nothing of the project installed."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.integration.conftest import artifact, cache, model_folder, recipe_file

__all__ = ["artifact", "cache", "model_folder", "recipe_file"]


def test_the_archive_runs_where_only_the_engine_is_installed(
    artifact: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "host", with_pip=True)
    python = tmp_path / "host/bin/python"
    packages = ["numpy", "tokenizers", "jinja2", "openvino<2026.5", "onnxruntime"]
    install = [str(python), "-m", "pip", "install", "--quiet", *packages]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the engines cannot be installed here: {done.stderr.strip()[-200:]}")
    absent = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert absent.returncode != 0
    ours = [
        sys.executable,
        "-m",
        "speccompile.cli.main",
        "run",
        str(artifact),
        "def f",
        "-n",
        "12",
        "-q",
    ]
    theirs = [str(python), str(artifact / "run.pyz"), "def f", "-n", "12", "-q"]
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        for command in (ours, theirs)
    ]
    assert outputs[0] == outputs[1]
    refused = subprocess.run(
        [python, artifact / "run.pyz", "hi", "--top-p", "0"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert refused.returncode == 2
    assert "top_p" in refused.stderr
    assert "Traceback" not in refused.stderr
