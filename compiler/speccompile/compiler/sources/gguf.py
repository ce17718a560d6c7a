"""GGUF files, the format of llama.cpp: weights, configuration and tokenizer in one file.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.sources.checkpoint import Provenance, SourceError, check_tensor
from speccompile.compiler.sources.digest import verified_sha256
from speccompile.compiler.sources.metadata import Metadata
from speccompile.compiler.sources.tokenizer import gguf_tokenizer

__all__ = ["GGUFCheckpoint"]


class GGUFCheckpoint:
    """A GGUF file of the llama architecture. Quantized tensors are dequantized when read."""

    def __init__(self, path: Path, *, source: str, sha256: str | None = None) -> None:
        """Open `path`; `source` is what the user called it, `sha256` what it must hash to.

        Raises SourceError if the file is not the expected one, not readable or not supported.
        """
        digest = verified_sha256(source, [path], expected=sha256)
        reader = _read(path)
        metadata = Metadata(
            str(path), {name: field.contents() for name, field in reader.fields.items()}
        )
        self._path = path
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        # The file lists extents with the fastest-varying first.
        shapes = {
            tensor.name: tuple(int(extent) for extent in reversed(tensor.shape))
            for tensor in reader.tensors
        }
        self.config = _config(metadata, shapes)
        self._expected = tensor_shapes(self.config)
        self._stored = {name: shapes.get(_name_in_file(name)) for name in self._expected}
        _refuse_unread(path, set(shapes) - {_name_in_file(name) for name in self._expected})
        self.tokenizer = gguf_tokenizer(metadata)
        self.provenance = Provenance(
            source=source,
            revision=None,
            sha256=digest,
            license=metadata.optional("general.license", str),
        )

    def tensor(self, name: str) -> NDArray[np.float32]:
        check_tensor(
            name, self._path, found=self._stored.get(name), expected=self._expected.get(name)
        )
        stored = self._tensors[_name_in_file(name)]
        try:
            values = np.asarray(dequantize(stored.data, stored.tensor_type), dtype=np.float32)
        except NotImplementedError:
            raise SourceError(
                f"{self._path}: {name} is stored as {stored.tensor_type.name}, which cannot be "
                "dequantized; use a file of another quantization"
            ) from None
        if name.endswith("self_attn.q_proj.weight"):
            return _halved_rows(values, self.config.heads)
        if name.endswith("self_attn.k_proj.weight"):
            return _halved_rows(values, self.config.kv_heads)
        return values


def _read(path: Path) -> GGUFReader:
    try:
        # Copy-on-write, so that float32 tensors are writable arrays straight over the file.
        return GGUFReader(path, "c")
    except (ValueError, IndexError, KeyError) as error:  # all that its parser meets in bad bytes
        raise SourceError(
            f"{path}: not readable as GGUF ({error}); fetch the file again"
        ) from error


def _config(metadata: Metadata, shapes: dict[str, tuple[int, ...]]) -> DecoderConfig:
    architecture = metadata.required("general.architecture", str)
    if architecture != "llama":
        raise SourceError(
            f"{metadata.where}: general.architecture {architecture} is not supported; "
            "supported: llama"
        )
    _refuse_variants(metadata, shapes)
    hidden_size = metadata.size("llama.embedding_length")
    heads = metadata.size("llama.attention.head_count")
    rotated = metadata.size("llama.rope.dimension_count", hidden_size // heads)
    head_dim = metadata.size("llama.attention.key_length", rotated)
    value_dim = metadata.size("llama.attention.value_length", head_dim)
    if not rotated == head_dim == value_dim:
        raise SourceError(
            f"{metadata.where}: heads of {head_dim} with {value_dim} values and {rotated} rotated "
            "are not supported; the three must be equal"
        )
    embedding = shapes.get("token_embd.weight")
    if embedding is None:
        raise SourceError(f"{metadata.where}: has no tensor token_embd.weight")
    return DecoderConfig(
        vocab_size=embedding[0],
        hidden_size=hidden_size,
        intermediate_size=metadata.size("llama.feed_forward_length"),
        layers=metadata.size("llama.block_count"),
        heads=heads,
        kv_heads=metadata.size("llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        context_length=metadata.size("llama.context_length"),
        rope_theta=_decimal(metadata.optional("llama.rope.freq_base", float) or 10_000.0),
        rms_norm_eps=_decimal(metadata.required("llama.attention.layer_norm_rms_epsilon", float)),
        tied_embeddings="output.weight" not in shapes,
    )


def _refuse_variants(metadata: Metadata, shapes: dict[str, tuple[int, ...]]) -> None:
    scaling = metadata.optional("llama.rope.scaling.type", str) or "none"
    if scaling != "none":
        raise SourceError(
            f"{metadata.where}: llama.rope.scaling.type {scaling} is not supported; supported: none"
        )
    if "rope_freqs.weight" in shapes:
        raise SourceError(
            f"{metadata.where}: scaled RoPE (tensor rope_freqs.weight) is not supported; "
            "use a model with unscaled RoPE"
        )
    if experts := metadata.optional("llama.expert_count", int):
        raise SourceError(
            f"{metadata.where}: a mixture of {experts} experts is not supported; use a dense model"
        )


def _decimal(value: float) -> float:
    """The shortest decimal that is `value` in the file's float32: what the model's author wrote."""
    return float(str(np.float32(value)))


def _refuse_unread(path: Path, names: set[str]) -> None:
    """Weights that would silently take no part, such as biases, make another model of it."""
    if names:
        raise SourceError(f"{path}: tensor {min(names)} is not supported in the llama architecture")


def _halved_rows(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo the row order that llama.cpp's converter gives Q and K projections [heads * dim, in].

    Rotary pairs are neighbouring rows there (2i, 2i + 1), as in Meta's release; canonically they
    are half a head apart (i, i + dim / 2).
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)


def _name_in_file(name: str) -> str:
    if name in _OUTSIDE_LAYERS:
        return _OUTSIDE_LAYERS[name]
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{_IN_LAYER[part]}"


_OUTSIDE_LAYERS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
