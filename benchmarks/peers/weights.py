"""The weights of a GGUF file, dequantized, in the formats that peers read."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np

from speccompile.compiler.sources.opening import open_checkpoint
from tests.oracle import transformers_model

__all__ = ["write_gguf", "write_huggingface"]

_TYPES = {
    "f16": (gguf.LlamaFileType.MOSTLY_F16, gguf.GGMLQuantizationType.F16),
    "q8_0": (gguf.LlamaFileType.MOSTLY_Q8_0, gguf.GGMLQuantizationType.Q8_0),
}


def write_gguf(source: Path, destination: Path, kind: str) -> None:
    """Copy a GGUF file with its matrices stored as `kind`, "f16" or "q8_0"; vectors in FP32."""
    file_type, matrix_type = _TYPES[kind]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(destination, str(reader.fields["general.architecture"].contents()))
    for key, entry in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if entry.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, entry.contents())
        elif key == "general.file_type":
            writer.add_file_type(file_type)
        else:
            writer.add_key_value(key, entry.contents(), entry.types[0])
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values)
        else:  # by way of FP16, which the artifact's weights are
            stored = gguf.quantize(values.astype(np.float16).astype(np.float32), matrix_type)
            writer.add_tensor(tensor.name, stored, raw_dtype=matrix_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_huggingface(source: Path, folder: Path) -> None:
    """Write the model, in FP16, and its tokenizer as transformers has them."""
    checkpoint = open_checkpoint(str(source), sha256=None, cache=folder)
    model = transformers_model(checkpoint).half()
    files = checkpoint.tokenizer
    model.config.eos_token_id = model.generation_config.eos_token_id = list(files.eos_token_ids)
    model.config.bos_token_id = files.eos_token_ids[0]  # no prompt needs one, but a builder asks
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(files.tokenizer_json, "utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": files.bos_token,
        "eos_token": files.eos_token,
        "chat_template": files.chat_template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
