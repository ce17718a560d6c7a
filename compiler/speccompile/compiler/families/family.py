"""What a family is: how its configuration reads, and where its tensors lie in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["Converted", "Family", "Settings", "Stored"]

Settings = Mapping[str, object]


@dataclass(frozen=True)
class Stored:
    """Where a checkpoint holds a canonical tensor: in `name`, of which it is the `rows` [from, to).

    A `transposed` matrix is stored ``[in, out]``; `offset` is added to the stored values.
    """

    name: str
    rows: tuple[int, int] | None = None
    transposed: bool = False
    offset: float = 0.0

    def canonical(self, stored: NDArray[np.float32]) -> NDArray[np.float32]:
        """The canonical tensor of the `stored` one, contiguous."""
        values = stored.T if self.transposed else stored
        if self.rows:
            values = values[slice(*self.rows)]
        if self.offset:
            values = values + np.float32(self.offset)
        return np.ascontiguousarray(values)


def _nothing(settings: Settings) -> Settings:
    return {}


@dataclass(frozen=True)
class Converted:
    """What llama.cpp's converter makes of a family, beyond what it does to all.

    `architecture` is the name it gives. `keys` are GGUF keys, without that name before them, and
    the settings of config.json that they stand for. Where `interleaved`, it writes rotary pairs of
    q and k as neighbouring rows. `inferred` makes the settings that the file does not hold, from
    those that it does, as llama.cpp does.
    """

    architecture: str
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    interleaved: bool = False
    inferred: Callable[[Settings], Settings] = _nothing


def _as_canonical(config: DecoderConfig, name: str) -> Stored:
    return Stored(name)


@dataclass(frozen=True)
class Family:
    """One family: all that the compiler knows of it.

    `model_type` and `architecture` are its names in config.json. `decoder` reads a configuration,
    in which `defaults` stand for keys that are absent; `stored` says where a canonical tensor lies.
    `published_code` names Python that published configurations refer to (`auto_map`) and that
    transformers has long had built in: like all such code it is not run. Where `head_by_file`, a
    checkpoint that holds a head has one of its own, whatever its configuration says.
    """

    model_type: str
    architecture: str
    decoder: Callable[[Metadata], DecoderConfig]
    gguf: Converted
    defaults: Settings = field(default_factory=dict[str, object])
    stored: Callable[[DecoderConfig, str], Stored] = _as_canonical
    published_code: frozenset[str] = frozenset()
    head_by_file: bool = False

    def read(self, settings: Metadata) -> DecoderConfig:
        """The decoder of a configuration.

        Raises SourceError for a malformed setting and for one that is not implemented.
        """
        return self.decoder(Metadata(settings.where, {**self.defaults, **settings.values}))
