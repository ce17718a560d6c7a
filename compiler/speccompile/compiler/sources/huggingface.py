"""Model folders as `transformers` saves them: config.json, *.safetensors and tokenizer files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.families.catalogue import family_of
from speccompile.compiler.families.family import Stored
from speccompile.compiler.sources.checkpoint import (
    Provenance,
    SourceError,
    absent_tensor,
    check_shape,
)
from speccompile.compiler.sources.digest import verified_sha256
from speccompile.compiler.sources.folder_tokenizer import folder_tokenizer
from speccompile.compiler.sources.layout import check_layout
from speccompile.compiler.sources.metadata import read_json

__all__ = ["HuggingFaceCheckpoint"]

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
# Buffers that old files carry, and the copy of the embeddings that a tied head may be saved as.
_IGNORED = (
    *(".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", "lm_head.weight"),
    # Copies of T5's one table, and a bias that no cross-attention ever added.
    *("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    "EncDecAttention.relative_attention_bias.weight",
)
_EXACT_IN_FLOAT32 = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),  # numpy knows it, and safetensors reads it, by this
}


class HuggingFaceCheckpoint:
    """A folder with one safetensors file or several with an index. Code in it is never run."""

    def __init__(
        self, folder: Path, *, source: str, sha256: str | None = None, revision: str | None = None
    ) -> None:
        """Open `folder`; `source` is what the user called it, `sha256` what its weights hash to.

        Raises SourceError if a file is missing, pickled, not the expected one or not supported.
        """
        config = read_json(folder / "config.json")
        self._family = family_of(config)
        self.config = self._family.read(config)
        reads_sources = self.config.encoder is not None
        self.tokenizer = folder_tokenizer(folder, config, ends_texts=reads_sources)
        files = _weight_files(folder)
        self.provenance = Provenance(
            source=source,
            revision=revision,
            sha256=verified_sha256(source, files, expected=sha256),
            license=_license(folder),
        )
        self._folder = folder
        self._files = {
            name: (path, tensors)
            for path, tensors in ((path, _open(path)) for path in files)
            for name in tensors.keys()  # noqa: SIM118 - no mapping: it cannot be iterated
        }
        if self._family.head_by_file:
            self.config = replace(
                self.config, tied_embeddings=self._stored("lm_head.weight").name not in self._files
            )
        self._expected = tensor_shapes(self.config)
        shapes = {
            name: tuple(tensors.get_slice(name).get_shape())
            for name, (_, tensors) in self._files.items()
            if not name.endswith(_IGNORED)
        }
        places = [self._stored(name) for name in self._expected]
        check_layout(folder, shapes, places, family=self._family.model_type)

    def tensor(self, name: str) -> NDArray[np.float32]:
        where = self._stored(name)
        if where.name not in self._files:
            raise absent_tensor(name, self._folder)
        path, tensors = self._files[where.name]
        dtype = tensors.get_slice(where.name).get_dtype()
        if dtype not in _EXACT_IN_FLOAT32:
            raise SourceError(
                f"{path}: {where.name} is stored as {dtype}, which is not supported; "
                f"supported: {', '.join(_EXACT_IN_FLOAT32)}"
            )
        stored = tensors.get_tensor(where.name).astype(np.float32, copy=False)
        values = where.canonical(stored)
        check_shape(name, path, values.shape, self._expected.get(name))
        return values

    def _stored(self, name: str) -> Stored:
        """A base model saved without its head lacks the first part of every name."""
        where = self._family.stored(self.config, name)
        short = where.name.partition(".")[2]
        return replace(where, name=short) if short in self._files else where


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, by its index if it has one."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(
            {str(name) for name in read_json(index).required("weight_map", dict).values()}
        )
        for name in names:
            if Path(name).name != name or not (folder / name).is_file():
                raise SourceError(f"{index}: names {name}, which is not in the folder")
        return [folder / name for name in names]
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
    if pickled:
        raise SourceError(
            f"{folder}: {pickled[0]} is a pickle, which can run code when loaded, and is refused; "
            "save the model as safetensors"
        )
    raise SourceError(f"{folder}: has no model.safetensors, nor model.safetensors.index.json")


def _license(folder: Path) -> str | None:
    """The license that the model card, README.md, declares in its first lines."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    declared = re.match(r"---\n(?:(?!---).*\n)*?license:[ \t]*([\w.+-]+)", text)
    return declared[1] if declared else None


class _Slice(Protocol):
    def get_shape(self) -> list[int]: ...
    def get_dtype(self) -> str: ...


class _SafeTensors(Protocol):
    """What this module uses of safetensors' untyped reader."""

    def keys(self) -> list[str]: ...
    def get_slice(self, name: str) -> _Slice: ...
    def get_tensor(self, name: str) -> NDArray[np.generic]: ...


def _open(path: Path) -> _SafeTensors:
    try:
        # Tensors stay on disk until they are read.
        tensors: _SafeTensors = safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise SourceError(
            f"{path}: not readable as safetensors ({error}); fetch the file again"
        ) from error
    return tensors
