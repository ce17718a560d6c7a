"""Requests to one repository of an OCI registry, by the OCI distribution specification.

Who we are is a matter of `oras`: it reads the Docker config, asks credential helpers, and trades
both for the token that a registry wants. Bodies are streamed in both directions.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

import requests
from oras.auth import get_auth_backend
from oras.container import Container
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.registry.reference import Reference

__all__ = ["MAX_MANIFEST_BYTES", "Connection", "ConnectionLost"]

MAX_MANIFEST_BYTES = 4 << 20
"""Of what registries have to take, by the specification."""

_TIMEOUT = (10.0, 60.0)  # seconds, to connect and between two bytes
_BLOCK = 1 << 20  # bytes
_MAX_ERROR_BYTES = 1 << 16


class ConnectionLost(SpeccompileError):
    """The registry cannot be reached, or stopped in the middle of an answer."""


class Connection:
    """To the repository of `reference`: over TLS, unless the registry is on this host."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._session = _session(reference)
        self._authorization: dict[str, str] = {}
        scheme = "http" if reference.is_loopback else "https"
        self._root = f"{scheme}://{reference.registry}/v2/{reference.repository}"

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has the blob `digest`, such as "sha256:..."."""
        with self._send("HEAD", f"{self._root}/blobs/{digest}", expected=(200, 404)) as response:
            return response.status_code == 200

    def upload(self, digest: str, content: Iterable[bytes] | bytes) -> None:
        """Send a blob; the registry checks its digest. `content` has a length, and can be iterated
        again should the registry want to know in the middle who we are."""
        start = f"{self._root}/blobs/uploads/"
        with self._send("POST", start, expected=(202,)) as response:
            location = urljoin(response.url, response.headers.get("Location", ""))
        headers = {"Content-Type": "application/octet-stream"}
        parameters = {"digest": digest}
        with self._send(
            *("PUT", location), expected=(201,), headers=headers, params=parameters, data=content
        ):
            pass

    def put_manifest(self, version: str, media_type: str, data: bytes) -> None:
        """Have the tag or digest `version` mean `data`: in one step, and all blobs are there."""
        url, headers = f"{self._root}/manifests/{version}", {"Content-Type": media_type}
        with self._send("PUT", url, expected=(201,), headers=headers, data=data):
            pass

    def get_manifest(self, version: str, media_type: str) -> bytes:
        """What the tag or digest means now; raises SpeccompileError where there is no such."""
        url, headers = f"{self._root}/manifests/{version}", {"Accept": media_type}
        with self._send("GET", url, headers=headers) as response, self._explained():
            data = _read(response, MAX_MANIFEST_BYTES + 1)
        if len(data) > MAX_MANIFEST_BYTES:
            limit = MAX_MANIFEST_BYTES >> 20
            raise SpeccompileError(f"{self._reference}: is larger than the limit of {limit} MiB")
        return data

    def download(self, digest: str, path: Path, size: int) -> Iterator[int]:
        """Append to the file `path` what it lacks of a blob of `size` bytes, or start it anew where
        the registry cannot go on there; yields how many bytes the file has then.

        Raises ConnectionLost, with the file as far as it got, where the connection ends before the
        registry has sent all that it has.
        """
        have = path.stat().st_size if path.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        url = f"{self._root}/blobs/{digest}"
        with self._send("GET", url, expected=(200, 206), headers=headers) as response:
            goes_on = response.status_code == 206
            if goes_on and not response.headers.get("Content-Range", "").startswith(
                f"bytes {have}-"
            ):
                raise SpeccompileError(f"{self._reference}: the registry sent another range")
            have = have if goes_on else 0
            with path.open("ab" if goes_on else "wb") as file:
                for block in self._blocks(response):
                    have += len(block)
                    if have > size:
                        raise SpeccompileError(
                            f"{self._reference}: the registry sent more than the {size} bytes of "
                            f"{digest}"
                        )
                    file.write(block)
                    yield have

    def _blocks(self, response: requests.Response) -> Iterator[bytes]:
        blocks = response.iter_content(_BLOCK)
        while True:
            with self._explained():
                block = next(blocks, None)
            if block is None:
                return
            yield block

    @contextmanager
    def _send(
        self,
        method: str,
        url: str,
        *,
        expected: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        data: Iterable[bytes] | bytes | None = None,
    ) -> Generator[requests.Response]:
        """The answer, its body not read yet; credentials go to the registry alone."""
        own = urlsplit(url).netloc == self._reference.registry

        def ask() -> requests.Response:
            known = {**(headers or {}), **(self._authorization if own else {})}
            return self._session.request(method, url, params=params, data=data, headers=known)

        with self._explained():
            response = ask()
            if response.status_code == 401 and own:
                with response:
                    self._authorization = self._authorize(response)
                response = ask()
        with response:
            if response.status_code not in expected:
                raise self._refusal(response)
            yield response

    def _authorize(self, challenge: requests.Response) -> dict[str, str]:
        """The header that answers a `challenge`, with the credentials that Docker has, or none."""
        is_basic = challenge.headers.get("WWW-Authenticate", "").lower().startswith("basic")
        kind = "basic" if is_basic else "token"
        # It has no types, and what is inferred for them is wrong.
        backend = cast("Any", get_auth_backend(kind, self._session, self._reference.is_loopback))
        configs = [str(Path(folder) / "config.json")] if (folder := _docker_config()) else []
        try:
            backend.load_configs(Container("any", registry=self._reference.registry), configs)
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise SpeccompileError(f"the Docker config cannot be used: {error}") from error
        known = hasattr(backend, "_basic_auth")
        if is_basic and not known:
            raise self._no_access("needs a login")
        try:
            headers, answered = backend.authenticate_request(challenge, {}, refresh=True)
        except AttributeError:  # of a challenge without a realm
            raise self._no_access("does not say how to log in") from None
        if not answered:
            raise self._no_access("refuses the login" if known else "needs a login")
        return dict(headers)

    def _refusal(self, response: requests.Response) -> SpeccompileError:
        status = response.status_code
        if status in (401, 403):
            return self._no_access("refuses access to it")
        if status == 404:
            return SpeccompileError(
                f"{self._reference}: the registry has no such thing; check name and tag"
            )
        said = _error_message(_read(response, _MAX_ERROR_BYTES)) or response.reason or "no reason"
        kind = ConnectionLost if status >= 500 else SpeccompileError  # which may pass
        return kind(f"{self._reference}: the registry answers {status}: {said}")

    def _no_access(self, fault: str) -> SpeccompileError:
        host = self._reference.registry
        return SpeccompileError(f"{self._reference}: {host} {fault}; run `docker login {host}`")

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except requests.RequestException as error:
            where = f"{self._reference}: {self._reference.registry}"
            raise ConnectionLost(f"{where} cannot be reached: {_reason(error)}") from error


class _Adapter(HTTPAdapter):
    """Waits for a while only, and asks again where a registry or its proxy is overloaded."""

    def __init__(self) -> None:
        super().__init__(
            max_retries=Retry(
                *(3, 0, 0),  # connect, read: nothing is sent twice behind our back
                status=3,
                other=0,
                backoff_factor=1.0,
                status_forcelist=(429, 502, 503, 504),
                allowed_methods=("GET", "HEAD"),
                raise_on_status=False,
                respect_retry_after_header=False,  # it may ask for hours
            )
        )

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: float | tuple[float | None, float | None] | None = None,
        verify: bool | str = True,
        cert: str | tuple[str, str] | None = None,
        proxies: dict[str, str] | None = None,
    ) -> requests.Response:
        return super().send(request, stream, timeout or _TIMEOUT, verify, cert, proxies)


def _session(reference: Reference) -> requests.Session:
    session = requests.Session()
    session.stream = True
    session.adapters.clear()  # Plain HTTP is refused then, in redirections too.
    session.mount("https://", _Adapter())
    if reference.is_loopback:
        session.mount("http://", _Adapter())
    logging.getLogger("oras.logger").setLevel(logging.CRITICAL)  # Our own errors say it.
    return session


def _docker_config() -> str | None:
    """Where Docker looks first; `oras` knows the other place."""
    folder = os.environ.get("DOCKER_CONFIG")
    return folder if folder and (Path(folder) / "config.json").is_file() else None


def _read(response: requests.Response, limit: int) -> bytes:
    data = bytearray()
    for block in response.iter_content(min(limit, _BLOCK)):
        data += block
        if len(data) >= limit:
            break
    return bytes(data[:limit])


def _error_message(body: bytes) -> str | None:
    """Of the first error in the specification's form; None for anything else."""
    try:
        message = json.loads(body)["errors"][0]["message"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    return message if isinstance(message, str) and message.isprintable() else None


def _reason(error: BaseException) -> str:
    """What went wrong at the bottom, in one line."""
    while deeper := error.__cause__ or error.__context__:
        error = deeper
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).partition("\n")[0]
