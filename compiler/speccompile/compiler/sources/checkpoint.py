"""What the compiler reads from a model, whatever file format holds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig
from speccompile.runtime.errors import SpeccompileError

__all__ = [
    "Checkpoint",
    "Provenance",
    "SourceError",
    "TokenizerFiles",
    "absent_tensor",
    "check_shape",
]


class SourceError(SpeccompileError):
    """A model source cannot be found, is not to be trusted, or cannot be compiled."""


@dataclass(frozen=True)
class Provenance:
    """Where weights came from: enough to fetch the same bytes again and to know their terms.

    `sha256` is that of the weights file; of several, that of their sorted ``sha256  name`` lines,
    so that ``sha256sum *.safetensors | LC_ALL=C sort | sha256sum`` gives the same digest.
    """

    source: str
    revision: str | None
    sha256: str
    license: str | None


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer as a production host loads it, and the token ids that generation needs."""

    tokenizer_json: str
    chat_template: str | None
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    bos_token: str | None
    eos_token: str | None


class Checkpoint(Protocol):
    """An open model, whose tensors are read when asked for, so that it need not fit in memory."""

    @property
    def config(self) -> DecoderConfig: ...

    @property
    def provenance(self) -> Provenance: ...

    @property
    def tokenizer(self) -> TokenizerFiles: ...

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Read one tensor of `tensor_shapes(config)`, converted exactly to float32.

        The array is writable and contiguous; writing to it never changes the file.
        Raises SourceError, naming tensor and file, if it is absent or of another shape.
        """
        ...


def absent_tensor(name: str, file: Path) -> SourceError:
    """The error to raise if `file` lacks `name`, or if the model has no such tensor."""
    return SourceError(f"{file}: has no tensor {name}; the file is incomplete or not this model")


def check_shape(
    name: str, file: Path, found: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    """Raise SourceError unless `name` is of the shape that the model's configuration implies."""
    if expected is None:
        raise absent_tensor(name, file)
    if found != expected:
        raise SourceError(
            f"{file}: {name} has shape {list(found)}, but the model's configuration "
            f"implies {list(expected)}; fetch the model again"
        )
