"""A T5 that was trained here, as a folder that any reader of T5 takes, `transformers` too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.drafts.pieces import END, END_ID, PAD, PAD_ID, UNKNOWN
from speccompile.compiler.families.t5 import T5
from speccompile.compiler.quantize import TensorReader
from speccompile.compiler.sources.digest import file_sha256
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.publish import sync_tree

__all__ = ["trained_digest", "write_t5"]

_TRAINING = "training.json"
_WEIGHTS = "model.safetensors"


def trained_digest(folder: Path) -> str | None:
    """Of the weights of a folder that `write_t5` wrote; None for others."""
    return file_sha256(folder / _WEIGHTS) if (folder / _TRAINING).is_file() else None


def write_t5(
    folder: Path,
    config: DecoderConfig,
    read: TensorReader,
    tokenizer: Tokenizer,
    training: Mapping[str, Any],
) -> None:
    """Write a gated T5 with a tied head, which is `read` by canonical names, and how it was
    trained, as JSON.

    Files that are there stay until all new ones are complete. Raises SpeccompileError where the
    folder cannot be written, or a value is not finite.
    """
    tensors = {T5.stored(config, name).name: read(name) for name in tensor_shapes(config)}
    for name, values in tensors.items():
        if not np.isfinite(values).all():
            raise SpeccompileError(f"{name}: holds values that are not finite; lower the rate")
    settings = {"pad_token": PAD, "eos_token": END, "unk_token": UNKNOWN, "extra_ids": 0}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
            new = Path(scratch)
            save_file(tensors, new / _WEIGHTS, {"format": "pt"})
            tokenizer.save(str(new / "tokenizer.json"))
            _write(new / "config.json", _settings(config))
            _write(new / "tokenizer_config.json", settings)
            _write(new / _TRAINING, training)
            sync_tree(new)
            for file in sorted(new.iterdir()):
                file.replace(folder / file.name)
    except OSError as error:
        raise SpeccompileError(
            f"{folder}: the model cannot be written ({error.strerror}); "
            "make room, or choose another folder"
        ) from error


def _settings(config: DecoderConfig) -> Mapping[str, Any]:
    """A config.json of T5."""
    encoder, bias = config.encoder, config.position_bias
    if encoder is None or bias is None:
        raise ValueError("the model is no T5")
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.hidden_size,
        "d_kv": config.head_dim,
        "d_ff": config.intermediate_size,
        "num_heads": config.heads,
        "num_layers": encoder.layers,
        "num_decoder_layers": config.layers,
        "relative_attention_num_buckets": bias.buckets,
        "relative_attention_max_distance": bias.max_distance,
        "n_positions": config.context_length,
        "layer_norm_epsilon": config.norm_epsilon,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": True,
        "scale_decoder_outputs": True,
        "decoder_start_token_id": encoder.start_token,
        "pad_token_id": PAD_ID,
        "eos_token_id": END_ID,
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
