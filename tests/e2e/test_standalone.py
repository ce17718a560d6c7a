"""An artifact on hosts that have nothing of the project installed: its `run.pyz`, its wheel, and a
Triton Inference Server that serves it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from speccompile.runtime.triton.repository import write_model
from tests.integration.conftest import artifact, cache, model_folder, recipe_file
from tests.triton_server import Server, install_server

__all__ = ["artifact", "cache", "model_folder", "recipe_file"]

PROMPT = ["def f", "-n", "12", "--temperature", "1", "--seed", "5", "-q"]
IN_PYTHON = """
import sys
from speccompile.runtime.options import Options
from speccompile.runtime.runner import Runner

runner = Runner.open(sys.argv[1])
options = Options(max_new_tokens=12, temperature=1.0, seed=5, audited=True)
print("".join(next(runner.outputs(runner.session(), runner.encode("def f"), options))))
assert not {"torch", "onnx", "pydantic", "rich"} & set(sys.modules)
"""

BARE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""What processes on a host see: nothing of a checkout that this process may be run from."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a host with what `run.pyz` needs, and nothing else."""
    return _environment(
        tmp_path_factory.mktemp("host"),
        *("numpy", "tokenizers", "jinja2", "openvino<2026.5", "onnxruntime"),
    )


@pytest.fixture(scope="module")
def expected(artifact: Path) -> str:
    """What our own command writes after `PROMPT`."""
    command = [sys.executable, "-m", "speccompile.cli.main", "run", artifact, *PROMPT]
    return _run(*command, env=os.environ)


def test_the_archive_runs_where_only_the_engine_is_installed(
    artifact: Path, host: Path, expected: str
) -> None:
    assert expected.strip()
    assert _fails(host, "-c", "import torch")
    assert _run(host, artifact / "run.pyz", *PROMPT) == expected
    refused = subprocess.run(
        [host, artifact / "run.pyz", "hi", "--top-p", "0"],
        capture_output=True,
        text=True,
        check=False,
        env=BARE,
    )
    assert refused.returncode == 2
    assert "top_p" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_wheel_installs_what_runs_the_artifact(
    artifact: Path, host: Path, expected: str, tmp_path: Path
) -> None:
    (wheel,) = artifact.glob("*.whl")
    python = _environment(tmp_path, f"{wheel}[openvino,onnxruntime]", beside=host)
    assert _fails(python, "-c", "import speccompile.compiler")
    assert _run(python, "-m", "pip", "check").strip() == "No broken requirements found."
    assert _run(python, "-c", IN_PYTHON, artifact) == expected
    assert _run(python.with_name("speccompile-run"), artifact, *PROMPT) == expected


@pytest.fixture(scope="module")
def server(
    artifact: Path, host: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Triton itself, with the exported artifact; that release takes no newer numpy."""
    folder = tmp_path_factory.mktemp("triton")
    python = _environment(folder / "python", "numpy<2", beside=host)
    with install_server(folder, python) as install:
        write_model(artifact, folder / "models")
        with install.serve(folder / "models") as running:
            yield running


def test_triton_answers_as_we_do(server: Server, expected: str) -> None:
    asked = {"text_input": "def f", "max_tokens": 12, "temperature": 1.0, "seed": 5}
    answer = server.generate("tiny", asked)
    assert f"{answer['text_output']}\n" == expected
    assert (answer["finish_reason"], answer["num_output_tokens"]) == ("length", 12)
    pieces = server.stream("tiny", {**asked, "stream": True})
    assert len(pieces) > 3
    assert "".join(piece["text_output"] for piece in pieces) == answer["text_output"]
    assert [piece["finish_reason"] for piece in pieces[-2:]] == ["", "length"]
    stop = pieces[2]["text_output"]
    stopped = server.generate("tiny", {**asked, "stop": ["\0", stop]})
    assert stopped["text_output"] == expected[: expected.index(stop)]
    assert stopped["finish_reason"] == "stop"


def test_triton_refuses_as_we_do(server: Server) -> None:
    with pytest.raises(ValueError, match=r"top_p is 0\.0; it must be above 0"):
        server.generate("tiny", {"text_input": "def f", "top_p": 0.0})
    with pytest.raises(ValueError, match=r"top_pp is unknown; did you mean top_p\?"):
        server.generate("tiny", {"text_input": "def f", "top_pp": 0.5})


def _environment(folder: Path, *packages: str, beside: Path | None = None) -> Path:
    """The Python of a new environment with `packages`, which sees those of `beside` too."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    if beside:
        (site,) = (beside.parents[1] / "lib").glob("python*/site-packages")
        own = folder / "lib" / site.parent.name / "site-packages"
        (own / "beside.pth").write_text(f"{site}\n", encoding="utf-8")
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", *packages]
    done = subprocess.run(install, capture_output=True, text=True, check=False, env=BARE)
    if done.returncode != 0:
        pytest.skip(f"the packages cannot be installed here: {done.stderr.strip()[-200:]}")
    return python


def _run(*command: object, env: Mapping[str, str] = BARE) -> str:
    line = [str(part) for part in command]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd="/", env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _fails(*command: object) -> bool:
    line = [str(part) for part in command]
    done = subprocess.run(line, capture_output=True, check=False, cwd="/", env=BARE)
    return done.returncode != 0
