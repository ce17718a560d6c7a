"""Registries that want to know who asks: with a password, by a helper, with a token."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.registry.connection import Connection, ConnectionLost
from speccompile.runtime.registry.push import push
from speccompile.runtime.registry.reference import parse_reference
from tests.oci_registry import RunningRegistry, registry_in
from tests.releases import write_release

# The bcrypt hash of "secret".
_USERS = "builder:$2b$04$ubu2EGJayvuVSpOCWE2.bO40VW4DFw/QGGskU5lUeBiCNarNP6klu\n"
_LOGIN = base64.b64encode(b"builder:secret").decode()
_TYPE = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningRegistry]:
    folder = tmp_path_factory.mktemp("registry")
    (folder / "users").write_text(_USERS, encoding="utf-8")
    settings = f"auth: {{htpasswd: {{realm: tests, path: {folder / 'users'}}}}}\n"
    with registry_in(folder, settings) as running:
        yield running


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Docker configuration."""
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder / "config.json"


def send(registry: RunningRegistry, folder: Path) -> int:
    source = write_release(folder / "tiny", str(folder).encode())
    to = parse_reference(f"oci://{registry.address}/tests/login:1")
    return push(source, to, ignore).sent


def ignore(path: str, done: int, total: int) -> None:
    pass


def write(config: Path, document: object) -> None:
    config.write_text(json.dumps(document), encoding="utf-8")


def test_password(registry: RunningRegistry, docker: Path, tmp_path: Path) -> None:
    write(docker, {"auths": {registry.address: {"auth": _LOGIN}}})
    assert send(registry, tmp_path) >= 3


def test_helper(
    registry: RunningRegistry, docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "bin" / "docker-credential-tests"
    helper.parent.mkdir()
    answer = json.dumps({"Username": "builder", "Secret": "secret"})
    helper.write_text(f"#!/bin/sh\nread host\ntest $host = {registry.address} && echo '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(helper.parent), prepend=":")
    write(docker, {"credsStore": "tests"})
    assert send(registry, tmp_path) >= 3


@pytest.mark.parametrize("config", [None, {"auths": {"registry.example": {"auth": _LOGIN}}}])
def test_no_login(registry: RunningRegistry, docker: Path, tmp_path: Path, config: object) -> None:
    if config:
        write(docker, config)
    with pytest.raises(
        SpeccompileError, match=f"needs a login; run `docker login {registry.address}`"
    ):
        send(registry, tmp_path)


def test_wrong_password(registry: RunningRegistry, docker: Path, tmp_path: Path) -> None:
    login = base64.b64encode(b"builder:wrong").decode()
    write(docker, {"auths": {registry.address: {"auth": login}}})
    with pytest.raises(SpeccompileError, match=f"{registry.address} refuses access to it; run"):
        send(registry, tmp_path)


def test_broken_config(registry: RunningRegistry, docker: Path, tmp_path: Path) -> None:
    docker.write_text("{", encoding="utf-8")
    with pytest.raises(SpeccompileError, match="the Docker config cannot be used: "):
        send(registry, tmp_path)


class _TokenRegistry(BaseHTTPRequestHandler):
    """Has one manifest, for who has a token, and gives a token to who has the password."""

    seen: list[tuple[str, str]]

    def do_GET(self) -> None:
        authorization = self.headers.get("Authorization", "")
        self.seen.append((self.path.partition("?")[0], authorization))
        address = self.headers["Host"]
        if self.path.startswith("/token"):
            token = {"token": "granted"} if authorization == f"Basic {_LOGIN}" else {}
            self.answer(200 if token else 401, json.dumps(token).encode())
        elif authorization == "Bearer granted":
            self.answer(200, b"manifest")
        else:
            realm = f'Bearer realm="http://{address}/token",service="tests",scope="a"'
            self.answer(401, b"", {"WWW-Authenticate": realm})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def tokens() -> Generator[ThreadingHTTPServer]:
    _TokenRegistry.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _TokenRegistry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_token(tokens: ThreadingHTTPServer, docker: Path) -> None:
    address = f"127.0.0.1:{tokens.server_address[1]}"
    write(docker, {"auths": {address: {"auth": _LOGIN}}})
    connection = Connection(parse_reference(f"oci://{address}/a:1"))
    for _ in range(2):
        assert connection.get_manifest("1", _TYPE) == b"manifest"
    manifest = "/v2/a/manifests/1"
    assert _TokenRegistry.seen == [
        *((manifest, ""), ("/token", f"Basic {_LOGIN}"), (manifest, "Bearer granted")),
        (manifest, "Bearer granted"),
    ]


def test_no_token(tokens: ThreadingHTTPServer, docker: Path) -> None:
    address = f"127.0.0.1:{tokens.server_address[1]}"
    with pytest.raises(SpeccompileError, match="needs a login"):
        Connection(parse_reference(f"oci://{address}/a:1")).get_manifest("1", _TYPE)


def test_plain_http_is_for_this_host_alone(
    tokens: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads to a server without TLS: nothing is sent to it in the clear."""
    find = socket.getaddrinfo

    def find_here(host: str, *rest: Any, **more: Any) -> object:  # noqa: ANN401
        return find("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", find_here)
    where = parse_reference(f"oci://registry.example:{tokens.server_address[1]}/a:1")
    with pytest.raises(ConnectionLost, match=r"registry\.example:\d+ cannot be reached: "):
        Connection(where).get_manifest("1", _TYPE)
    assert _TokenRegistry.seen == []
