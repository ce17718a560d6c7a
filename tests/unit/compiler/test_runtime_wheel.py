"""The wheel that artifacts carry: what is in it, and that an installer takes it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from base64 import urlsafe_b64decode
from email import message_from_bytes
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from speccompile.compiler.runtime_wheel import wheel_name, write_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("wheel"))


def test_it_has_the_same_bytes_every_time(wheel: Path, tmp_path: Path) -> None:
    again = write_wheel(tmp_path)
    assert again.name == wheel.name == wheel_name()
    assert again.read_bytes() == wheel.read_bytes()


def test_its_record_lists_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (record,) = [name for name in names if name.endswith("/RECORD")]
        rows = [line.rsplit(",", 2) for line in archive.read(record).decode().splitlines()]
        assert {name for name, _, _ in rows} == names
        for name, digest, size in rows:
            if name != record:
                content = archive.read(name)
                hashed = urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
                assert (hashed, int(size)) == (sha256(content).digest(), len(content))


def test_it_has_the_runtime_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if not name.endswith("/")]
    assert "speccompile/runtime/runner.py" in files
    # Whether plans fit the runtime is judged by the kernels' sources.
    assert "speccompile/plugins/kernels/kernels.cu" in files
    folders = {name.split("/")[1] for name in files if name.startswith("speccompile/")}
    assert folders == {"cli", "plugins", "runtime"}
    assert not [name for name in files if "__pycache__" in name or name.endswith(".pyc")]


def test_it_asks_for_what_the_runtime_imports(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    assert (metadata["Name"], metadata["Version"]) == (
        "speccompile-runtime",
        version("speccompile"),
    )
    wanted = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    always = {each.name for each in wanted if each.marker is None}
    assert always == {"click", "jinja2", "numpy", "tokenizers"}
    extras = {str(each.marker): str(each.specifier) for each in wanted if each.name == "openvino"}
    assert extras == {'extra == "openvino"': "<2026.5,>=2026.4"}
    provided = metadata.get_all("Provides-Extra", [])
    assert sorted(provided) == [
        "cuda",
        "grammar",
        "onnxruntime",
        "openvino",
        "signing",
        "tensorrt-rtx",
    ]
    assert not {"torch", "rich", "pydantic"} & {each.name for each in wanted}


def test_an_installer_takes_it(wheel: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path, wheel], check=True, capture_output=True)
    program = (tmp_path / "bin/speccompile-run").read_text(encoding="utf-8")
    assert "from speccompile.cli.run import main" in program
    where = "import speccompile.runtime.runner as runner; print(runner.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", where],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "speccompile/runtime/runner.py")
