"""Settings of a model file, read by type so that a malformed file is named and not a traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from speccompile.compiler.sources.checkpoint import SourceError

__all__ = ["Metadata", "read_json"]

T = TypeVar("T")


@dataclass(frozen=True)
class Metadata:
    """Keys with values of unknown type; `where`, the file they came from, opens each message."""

    where: str
    values: Mapping[str, object]

    def required(self, key: str, kind: type[T]) -> T:
        value = self.optional(key, kind)
        if value is None:
            raise SourceError(f"{self.where}: {key} is missing; the file is incomplete")
        return value

    def optional(self, key: str, kind: type[T]) -> T | None:
        """The value of `key`, or None where it is absent or null."""
        value = self.values.get(key)
        return None if value is None else self._checked(key, value, kind)

    def size(self, key: str, default: int | None = None) -> int:
        """A dimension: an integer of at least 1; `default` stands for an absent or null one."""
        value = self.required(key, int) if default is None else self.optional(key, int)
        if value is None:
            value = default
        if value is None or value < 1:
            raise SourceError(f"{self.where}: {key} must be at least 1, not {value}")
        return value

    def sequence(self, key: str, kind: type[T]) -> list[T]:
        """The list at `key`, which must be there, with each element of `kind`."""
        return [self._checked(key, item, kind) for item in self.required(key, list)]

    def refusal(self, key: str, value: object, supported: str) -> SourceError:
        """The error to raise for a value that is well-formed, but not implemented."""
        return SourceError(f"{self.where}: {key} {value} is not supported; supported: {supported}")

    def _checked(self, key: str, value: object, kind: type[T]) -> T:
        wanted: type[object] = kind
        if wanted is float and type(value) is int:  # JSON writes 10000.0 as 10000
            return self._checked(key, float(value), kind)
        # A bool is an int to isinstance, but not to the reader of a configuration.
        is_stray_bool = type(value) is bool and wanted is not bool
        if isinstance(value, kind) and not is_stray_bool:
            return value
        raise SourceError(f"{self.where}: {key} must be of type {kind.__name__}, not {value!r:.60}")


def read_json(path: Path) -> Metadata:
    """Read a JSON object; raises SourceError if the file is absent or holds something else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SourceError(
            f"{path}: no such file; a Hugging Face model folder must hold it"
        ) from None
    except (ValueError, OSError) as error:
        raise SourceError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(values, dict):
        raise SourceError(f"{path}: must hold a JSON object")
    return Metadata(str(path), values)
