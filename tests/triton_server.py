"""Triton Inference Server itself, out of the wheel of a package that brings it, on a CPU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Install", "Server", "install_server"]

_PACKAGE = "nvidia-pytriton==0.7.0"  # has Triton 2.51; nothing else of it is used
_PATIENCE = 120  # seconds


@dataclass(frozen=True)
class Server:
    """A server that runs, at an address of this host."""

    address: str

    def generate(self, model: str, asked: Mapping[str, object]) -> dict[str, Any]:
        """The one response; raises ValueError with the message of an error."""
        found: dict[str, Any] = json.loads(self._post(f"{model}/generate", asked))
        return found

    def stream(self, model: str, asked: Mapping[str, object]) -> list[dict[str, Any]]:
        """All responses, which are server-sent events."""
        events = self._post(f"{model}/generate_stream", asked).split("\n\n")
        return [json.loads(event.removeprefix("data: ")) for event in events if event.strip()]

    def _post(self, path: str, asked: Mapping[str, object]) -> str:
        url = f"{self.address}/v2/models/{path}"
        request = urllib.request.Request(url, json.dumps(asked).encode())
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
                text: str = response.read().decode()
                return text
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(json.loads(error.read())["error"]) from error


@dataclass(frozen=True)
class Install:
    """The program, its backends, and the environment it needs, among it a model's Python."""

    program: Path
    backends: Path
    environment: Mapping[str, str]

    @contextmanager
    def serve(self, repository: Path) -> Generator[Server]:
        """Serve the models of a repository, and stop in the end."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = repository.with_suffix(".log")
        options = {
            "model-repository": repository,
            "backend-directory": self.backends,
            "http-address": "127.0.0.1",
            "http-port": port,
            "allow-grpc": "false",
            "allow-metrics": "false",
        }
        command = [str(self.program), *(f"--{name}={value}" for name, value in options.items())]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=dict(self.environment), stdout=output, stderr=subprocess.STDOUT
            )
        try:
            server = Server(f"http://127.0.0.1:{port}")
            _wait(server, process, log)
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE)


@contextmanager
def install_server(folder: Path, python: Path) -> Generator[Install]:
    """Install it into `folder`; its models run in the environment of `python`, of our version."""
    packages = folder / "packages"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile"]
    install = [*pip, "--no-deps", "--target", str(packages), _PACKAGE]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"Triton cannot be installed here: {done.stderr.strip()[-200:]}")
    root = packages / "pytriton/tritonserver"
    stub = root / "python_backend_stubs/{}.{}/triton_python_backend_stub".format(*sys.version_info)
    shutil.copy(stub, root / "backends/python")
    libraries = [str(packages / "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR")]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "LD_LIBRARY_PATH": ":".join(libraries),
        # The stub is a Python of its own, which finds its environment by the first one in PATH.
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    linked = subprocess.run(["ldd", stub], env=environment, capture_output=True, text=True)
    if "not found" in linked.stdout:
        pytest.skip("Triton runs models by a shared libpython of this version, which is not here")
    program = root / "bin/tritonserver"
    for file in (program, root / "backends/python" / stub.name):
        file.chmod(0o755)
    yield Install(program, root / "backends", environment)
    shutil.rmtree(packages)


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.address}/v2/health/ready", timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"Triton does not serve the model:\n{log.read_text(errors='replace')[-4000:]}")
