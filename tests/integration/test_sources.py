"""Models that the Hugging Face Hub does not give: one line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "GatedRepo", "the model is gated; accept its terms at https://huggingface.co/a/b"),
        (404, "RepoNotFound", "no such file, folder or Hugging Face model; check the name"),
        (404, "RevisionNotFound", "a/b has no revision v1"),
        (None, "", "the Hugging Face Hub cannot be reached and the model is not in its cache"),
    ],
    ids=["gated", "absent", "no revision", "no network"],
)
def test_a_draft_that_cannot_be_had_is_one_line(
    recipe_file: Path, cache: Path, tmp_path: Path, status: int | None, code: str, message: str
) -> None:
    recipe, output = tmp_path / "hub.toml", tmp_path / "out"
    text = recipe_file.read_text(encoding="utf-8")
    recipe.write_text(text.replace("[draft]", '[draft]\nsource = "hf:a/b@v1"'), encoding="utf-8")
    command = [sys.executable, "-m", "speccompile.cli.main", "build", str(recipe), "-q"]
    command += ["-o", str(output), "--cache", str(cache)]
    with _hub(status, code) as endpoint:
        settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hub")}
        done = subprocess.run(
            command, env=os.environ | settings, capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: hf:a/b@v1: {message}")
    assert not output.exists()


@contextmanager
def _hub(status: int | None, code: str) -> Generator[str]:
    """A hub that answers everything with one error, or is not there."""

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status or 500)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        if status is None:
            server.server_close()
            yield endpoint
            return
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()
