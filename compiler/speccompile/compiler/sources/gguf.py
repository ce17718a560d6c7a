"""GGUF files, the format of llama.cpp: weights, configuration and tokenizer in one file.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, dequantize, get_tensor_name_map
from numpy.typing import NDArray

from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.families.catalogue import gguf_family
from speccompile.compiler.families.family import Stored
from speccompile.compiler.sources.checkpoint import (
    Provenance,
    SourceError,
    TokenizerFiles,
    absent_tensor,
    check_shape,
)
from speccompile.compiler.sources.digest import verified_sha256
from speccompile.compiler.sources.gguf_file import read_gguf
from speccompile.compiler.sources.gguf_settings import ROPE_TENSORS, gguf_settings
from speccompile.compiler.sources.gguf_tokenizer import gguf_tokenizer
from speccompile.compiler.sources.layout import check_layout
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["GGUFCheckpoint"]


class GGUFCheckpoint:
    """A GGUF file of a supported family. Quantized tensors are dequantized when read."""

    def __init__(self, path: Path, *, source: str, sha256: str | None = None) -> None:
        """Open `path`; `source` is what the user called it, `sha256` what it must hash to.

        Raises SourceError if the file is not the expected one, not readable or not supported.
        """
        digest = verified_sha256(source, [path], expected=sha256)
        file = read_gguf(path)
        _refuse_other_contents(file.metadata)
        self._path = path
        self._metadata = file.metadata
        self._tensors = file.tensors
        self._family = gguf_family(file.metadata)
        form = self._family.gguf
        self.config = self._family.read(gguf_settings(file.metadata, form, file.tensors))
        self._names = get_tensor_name_map(_ARCHITECTURES[form.architecture], self.config.layers)
        self._expected = tensor_shapes(self.config)
        weights = {
            name: tensor.shape for name, tensor in file.tensors.items() if name not in ROPE_TENSORS
        }
        places = [self._stored(name) for name in self._expected]
        check_layout(path, weights, places, family=form.architecture)
        self.provenance = Provenance(
            source=source,
            revision=None,
            sha256=digest,
            license=file.metadata.optional("general.license", str),
        )

    @property
    def tokenizer(self) -> TokenizerFiles:
        # Not on opening: of the stages that open a model, one needs it, and it takes a second.
        return gguf_tokenizer(self._metadata)

    def tensor(self, name: str) -> NDArray[np.float32]:
        where = self._stored(name)
        if where.name not in self._tensors:
            raise absent_tensor(name, self._path)
        values = self._dequantized(name, where)
        check_shape(name, self._path, values.shape, self._expected.get(name))
        part = name.split(".")[-2]
        if self._family.gguf.interleaved and part in ("q_proj", "k_proj"):
            heads = self.config.heads if part == "q_proj" else self.config.kv_heads
            return _halved_rows(values, heads)
        return values

    def _stored(self, name: str) -> Stored:
        """Where the file holds a tensor. The converter stores matrices and norms as canonical."""
        where = self._family.stored(self.config, name)
        found: str | None = self._names.get_name(where.name, try_suffixes=(".weight", ".bias"))
        return replace(where, name=found or where.name, transposed=False, offset=0.0)

    def _dequantized(self, name: str, where: Stored) -> NDArray[np.float32]:
        stored = self._tensors[where.name]
        # Rows are quantized one by one, so that a part of a fused matrix is read alone.
        rows = stored.data[slice(*where.rows)] if where.rows else stored.data
        try:
            return np.asarray(dequantize(rows, stored.encoding), dtype=np.float32)
        except NotImplementedError:
            raise SourceError(
                f"{self._path}: {name} is stored as {stored.encoding.name}, which cannot be "
                "dequantized; use a file of another quantization"
            ) from None


def _refuse_other_contents(metadata: Metadata) -> None:
    kind = metadata.optional("general.type", str) or "model"
    if kind != "model":
        raise metadata.refusal("general.type", kind, "model")
    if (parts := metadata.optional("split.count", int) or 1) > 1:
        raise SourceError(
            f"{metadata.where}: is one of {parts} parts; join them with `llama-gguf-split --merge`"
        )


def _halved_rows(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo the row order that llama.cpp's converter gives q and k, [heads * dim, ...].

    Rotary pairs are neighbouring rows there (2i, 2i + 1), as in Meta's release; canonically they
    are half a head apart (i, i + dim / 2).
    """
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


_ARCHITECTURES: dict[str, MODEL_ARCH] = {name: number for number, name in MODEL_ARCH_NAMES.items()}
