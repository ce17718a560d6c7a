"""Write a model as OpenVINO GenAI reads it: ov_convert.py fp16 MODEL.gguf TO | int8 FOLDER TO."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nncf  # pyright: ignore[reportMissingImports]
import openvino as ov
import openvino_genai as genai  # pyright: ignore[reportMissingImports]

_MODEL = "openvino_model.xml"


def write_fp16(source: Path, folder: Path) -> None:
    """GenAI saves what it makes of a GGUF file beside that file."""
    with_name = folder / "model.gguf"
    with_name.symlink_to(source)
    genai.LLMPipeline(str(with_name), "CPU", enable_save_ov_model=True)
    with_name.unlink()


def write_int8(source: Path, folder: Path) -> None:
    """Weights by channel, as `optimum-cli export openvino --weight-format int8` has them."""
    model = ov.Core().read_model(source / _MODEL)
    ov.save_model(nncf.compress_weights(model), folder / _MODEL)
    for path in source.iterdir():
        if path.stem != Path(_MODEL).stem:
            shutil.copy(path, folder)


if __name__ == "__main__":
    write = {"fp16": write_fp16, "int8": write_int8}[sys.argv[1]]
    write(Path(sys.argv[2]), Path(sys.argv[3]))
