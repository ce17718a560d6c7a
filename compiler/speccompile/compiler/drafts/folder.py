"""A draft on disk: its own tensors, and the name of the target whose tables it shares.

=======================  ==========================================================================
`draft.json`             the target by source and SHA-256, the decoder, what it borrows, how it was
                         trained
`weights.safetensors`    the tensors that are not the target's, in fp16, or in int8 with scales; and
                         `token_counts` [V]: how often the target was to say each token
`README.md`              a model card, where somebody wrote one; left alone
=======================  ==========================================================================

Embedding and head are the largest part of a small draft, and the target has them already. A shared
draft has norms of its own and nothing else: its matrices are those of some of the target's layers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from speccompile.compiler.decoder import DecoderConfig, is_norm, of_layers, tensor_shapes
from speccompile.compiler.int8 import quantize_int8
from speccompile.compiler.quantize import TensorReader
from speccompile.compiler.sources.checkpoint import (
    Checkpoint,
    Provenance,
    SourceError,
    TokenizerFiles,
    absent_tensor,
    check_shape,
)
from speccompile.compiler.sources.digest import file_sha256, verified_sha256
from speccompile.compiler.weights import SCALE_SUFFIX, WEIGHTS_FILE, Weights
from speccompile.compiler.weights_writer import WeightsWriter
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.publish import sync_tree

__all__ = [
    "DRAFT_FILE",
    "OWN",
    "TABLES",
    "DraftCheckpoint",
    "draft_digest",
    "in_int8",
    "shared_layers",
    "write_draft",
]

DRAFT_FILE = "draft.json"
TABLES = ("model.embed_tokens.weight", "model.embed_positions.weight", "lm_head.weight")
"""What a draft takes from its target."""

Kind = Literal["distilled", "shared"]

OWN: Mapping[Kind, Callable[[str], bool]] = {
    "distilled": lambda name: name not in TABLES,
    "shared": is_norm,
}
"""Which tensors a draft has of its own; the others are its target's."""

_COUNTS = "token_counts"
_NO_PATHS = ("pypi:", "hf:", "~")  # nor does what begins so depend on where the draft lies

OpenTarget = Callable[[str, str], Checkpoint]
"""Opens the target of a source and a SHA-256."""


@dataclass(frozen=True)
class _Draft:
    """`draft.json`; a target's path is relative to the folder, `sha256` that of the weights."""

    schema: Literal[1]
    target: Provenance
    config: DecoderConfig
    sha256: str
    training: dict[str, Any]
    kind: Kind
    borrowed: tuple[str, ...]
    layers: tuple[int, ...] = ()  # of the target, in whose caches it works

    def __post_init__(self) -> None:
        expected = (self.config.layers,) if self.kind == "shared" else (0, self.config.layers)
        if len(self.layers) not in expected:
            raise ValueError(f"{len(self.layers)} of the target's layers, but not as many here")


class DraftCheckpoint:
    """A draft as `write_draft` left it, and the tables of its target."""

    def __init__(
        self, folder: Path, *, source: str, sha256: str | None = None, open_target: OpenTarget
    ) -> None:
        """Open `folder`; `source` is what the user called it, `sha256` what its weights hash to.

        Raises SourceError where it is not whole, or where its target cannot be opened.
        """
        self._folder = folder
        draft = _read(folder / DRAFT_FILE)
        found = verified_sha256(source, [folder / WEIGHTS_FILE], expected=sha256)
        if found != draft.sha256:
            raise SourceError(
                f"{folder / WEIGHTS_FILE}: has SHA-256 {found}, but {DRAFT_FILE} says "
                f"{draft.sha256}; copy the folder again, or train the draft again"
            )
        self.config = draft.config
        self.training = draft.training
        self.layers = draft.layers
        self.provenance = Provenance(source, None, found, draft.target.license)
        self._weights = Weights(folder)
        self._borrowed = {name: of_layers(name, draft.layers) for name in draft.borrowed}
        self.target = self._open(draft.target, open_target)

    @property
    def tokenizer(self) -> TokenizerFiles:
        return self.target.tokenizer

    @property
    def token_counts(self) -> NDArray[np.int64]:
        """How often each token [V] came in what the draft was trained on."""
        return self._weights.array(_COUNTS).astype(np.int64)

    def tensor(self, name: str) -> NDArray[np.float32]:
        if name in self._borrowed:
            file, values = self._folder / DRAFT_FILE, self.target.tensor(self._borrowed[name])
        elif name in self._weights:
            file, values = self._folder / WEIGHTS_FILE, self._weights.dense(name)
        else:
            raise absent_tensor(name, self._folder / WEIGHTS_FILE)
        check_shape(name, file, values.shape, tensor_shapes(self.config).get(name))
        return values

    def _open(self, target: Provenance, open_target: OpenTarget) -> Checkpoint:
        source = target.source
        if not source.startswith(_NO_PATHS) and (self._folder / source).exists():
            source = str(self._folder / source)
        try:
            return open_target(source, target.sha256)
        except SourceError as error:
            raise SourceError(
                f"{self._folder / DRAFT_FILE}: the draft's target cannot be opened ({error}); "
                "it works with no other, so bring that back, or train the draft again"
            ) from error


def in_int8(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a draft's own tensor is once it was stored in int8: vectors stay as they are."""
    if values.ndim == 1:
        return values
    codes, scales = quantize_int8(values)
    return codes * scales[:, None]


def draft_digest(folder: Path) -> str:
    """The SHA-256 of a draft's weights, as its description has it."""
    return _read(folder / DRAFT_FILE).sha256


def shared_layers(source: str) -> tuple[tuple[int, ...], str] | None:
    """Of a draft that works in its target's cache, in those of which layers, and the target's
    SHA-256; None for any other source."""
    file = Path(source).expanduser() / DRAFT_FILE
    draft = _read(file) if file.is_file() else None
    return (draft.layers, draft.target.sha256) if draft and draft.layers else None


def _read(path: Path) -> _Draft:
    try:
        return TypeAdapter(_Draft).validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        reason = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    except OSError as error:
        reason = error.strerror or str(error)
    raise SourceError(f"{path}: no draft that this version reads ({reason}); train it again")


def write_draft(
    folder: Path,
    *,
    config: DecoderConfig,
    read: TensorReader,
    int8: bool,
    target: Provenance,
    token_counts: NDArray[np.int64],
    training: Mapping[str, Any],
    kind: Kind,
    layers: Sequence[int] = (),
) -> None:
    """Write a draft; one that is there stays until the new one is complete.

    Matrices are stored in fp16, or in `int8` with a scale for every row; `training` is JSON. With
    `layers` it works in the caches of those layers of the target. The two files are then replaced
    one after the other: where a kill came between, opening refuses the folder. Raises
    SpeccompileError where it cannot be written, or a value is not finite.
    """
    own = list(filter(OWN[kind], tensor_shapes(config)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
            new = Path(scratch)
            names = [*own, *(name + SCALE_SUFFIX for name in own), _COUNTS]
            with WeightsWriter(new, names) as writer:
                for name in own:
                    _store(writer, name, read(name), int8)
                writer.add(_COUNTS, token_counts.astype(np.int64))
            draft = _Draft(
                1,
                replace(target, source=_seen_from(folder, target.source)),
                config,
                file_sha256(new / WEIGHTS_FILE),
                dict(training),
                kind=kind,
                borrowed=tuple(name for name in tensor_shapes(config) if name not in own),
                layers=tuple(layers),
            )
            content = json.dumps(asdict(draft), indent=1)
            (new / DRAFT_FILE).write_text(content, encoding="utf-8")
            sync_tree(new)
            for file in (WEIGHTS_FILE, DRAFT_FILE):
                (new / file).replace(folder / file)
    except OSError as error:
        raise SpeccompileError(
            f"{folder}: the draft cannot be written ({error.strerror}); "
            "make room, or choose another folder"
        ) from error


def _seen_from(folder: Path, source: str) -> str:
    """A path as it is from `folder`, so that both can be moved together; others as they are."""
    if source.startswith(_NO_PATHS) or not Path(source).exists():
        return source
    return os.path.relpath(Path(source).resolve(), folder.resolve())


def _store(writer: WeightsWriter, name: str, values: NDArray[np.float32], int8: bool) -> None:
    if not np.isfinite(values).all():
        raise SpeccompileError(
            f"{name}: holds values that are not finite; train the draft again, at a lower rate"
        )
    if values.ndim == 1:
        writer.add(name, values)
    elif int8:
        codes, scales = quantize_int8(values)
        writer.add(name, codes)
        writer.add(name + SCALE_SUFFIX, scales)
    else:
        fits = np.abs(values).max(initial=0.0) <= np.finfo(np.float16).max
        writer.add(name, values.astype(np.float16) if fits else values)
