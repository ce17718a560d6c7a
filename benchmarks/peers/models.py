"""One model in the format of every peer, written when first needed and kept."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.peer import Peer, PeerError
from benchmarks.peers.weights import write_gguf, write_huggingface

__all__ = ["Model"]

_WORKERS = Path(__file__).parent / "workers"


@dataclass(frozen=True)
class Model:
    """The model of the GGUF file `source`, whose copies lie in `folder`."""

    source: Path
    folder: Path

    def gguf(self, kind: str) -> Path:
        return self._made(f"{kind}.gguf", lambda path: write_gguf(self.source, path, kind))

    def huggingface(self) -> Path:
        return self._made("huggingface", lambda path: write_huggingface(self.source, path))

    def onnx(self, peer: Peer, home: Path, precision: str) -> Path:
        """By ONNX Runtime GenAI's own builder: "fp32", or "int8" in blocks of 128."""
        words = ["-m", "onnxruntime_genai.models.builder", "-e", "cpu", "-p", precision]
        words += ["-i", str(self.huggingface()), "-c", str(self.folder / "builder")]
        options = ["--extra_options", "block_size=128"] if precision == "int8" else []

        def write(path: Path) -> None:
            _run(peer, home, [*words, "-o", str(path), *options])

        return self._made(f"onnx-{precision}", write)

    def openvino(self, peer: Peer, home: Path, precision: str) -> Path:
        """By OpenVINO GenAI's own reader of GGUF, "fp16", and by NNCF from there, "int8"."""
        origin = self.gguf("f16") if precision == "fp16" else self.openvino(peer, home, "fp16")

        def write(path: Path) -> None:
            script = str(_WORKERS / "ov_convert.py")
            _run(peer, home, [script, precision, str(origin), str(path)])

        return self._made(f"openvino-{precision}", write)

    def _made(self, name: str, write: Callable[[Path], None]) -> Path:
        made, part = self.folder / name, self.folder / f"part-{name}"
        if not made.exists():
            if part.is_dir():  # of a run that was stopped
                shutil.rmtree(part)
            (part.parent if part.suffix else part).mkdir(parents=True, exist_ok=True)
            write(part)
            part.rename(made)
        return made


def _run(peer: Peer, home: Path, words: Sequence[str]) -> None:
    result = subprocess.run(
        [str(peer.interpreter(home)), *words], capture_output=True, text=True, errors="replace"
    )
    if result.returncode:
        raise PeerError(f"{peer.name}: cannot convert the model: {result.stderr.strip()[-2000:]}")
