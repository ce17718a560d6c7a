"""A real OCI registry on this host, and a way to it that breaks."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = ["BreakingWay", "RunningRegistry", "breaking_way", "registry_in"]

_CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {data}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@dataclass(frozen=True)
class RunningRegistry:
    """Docker's registry; `address` is 127.0.0.1 and a port, `data` is its disk."""

    address: str
    data: Path

    def blob(self, sha256: str) -> Path:
        """Where its disk has the content of that hash."""
        blobs = self.data / "docker/registry/v2/blobs/sha256"
        return blobs / sha256[:2] / sha256 / "data"


@contextmanager
def registry_in(folder: Path, settings: str = "") -> Generator[RunningRegistry]:
    """Run it while inside, with its files in `folder`; skips where there is none."""
    binary = shutil.which("docker-registry")
    if binary is None:
        pytest.skip("needs docker-registry: apt-get install docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    config, port = folder / "config.yml", _free_port()
    registry = RunningRegistry(f"127.0.0.1:{port}", folder / "data")
    config.write_text(_CONFIG.format(data=registry.data, port=port) + settings, encoding="utf-8")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([binary, "serve", str(config)], stdout=log, stderr=log)
    try:
        _wait_for(process, port)
        yield registry
    finally:
        process.terminate()
        process.wait(10)


@dataclass
class BreakingWay:
    """Passes TCP on, and breaks a connection after each number of bytes that is in `breaks`."""

    address: str
    breaks: list[int]
    requests: list[bytes] = field(default_factory=list[bytes])


@contextmanager
def breaking_way(to: RunningRegistry, breaks: list[int]) -> Generator[BreakingWay]:
    """A way to the registry, `breaks` for one connection each; later ones hold."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        way = BreakingWay(f"127.0.0.1:{server.getsockname()[1]}", breaks)
        threading.Thread(target=_accept, args=(server, to, way), daemon=True).start()
        yield way
        server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, to: RunningRegistry, way: BreakingWay) -> None:
    host, port = to.address.split(":")
    with suppress(OSError):  # closed at the end of the test
        while True:
            client, _ = server.accept()
            upstream = socket.create_connection((host, int(port)))
            limit = way.breaks.pop(0) if way.breaks else None
            threading.Thread(target=_join, args=(client, upstream, limit, way), daemon=True).start()


def _join(
    client: socket.socket, upstream: socket.socket, limit: int | None, way: BreakingWay
) -> None:
    with client, upstream:
        asking = threading.Thread(target=_pass_on, args=(client, upstream, None, way.requests))
        asking.start()
        _pass_on(upstream, client, limit, None)
        asking.join()


def _pass_on(
    source: socket.socket, sink: socket.socket, most: int | None, seen: list[bytes] | None
) -> None:
    left = most
    with suppress(OSError):
        while block := source.recv(1 << 16):
            if seen is not None:
                seen.append(block)
            sink.sendall(block if left is None else block[:left])
            left = None if left is None else left - len(block)
            if left is not None and left <= 0:
                break
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        assert process.poll() is None, "the registry ended at once"
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port))):
            return
        time.sleep(0.05)
    pytest.fail("the registry does not listen")


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port
