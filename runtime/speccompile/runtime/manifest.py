"""`manifest.json`: what an artifact holds, what it needs, and how it was measured.

The file is canonical JSON (UTF-8, sorted keys, two spaces, a newline at the end) with a `checksum`
of everything else in it, and is read back only when it is byte for byte what `Manifest.to_bytes`
writes. So one manifest has one identity, and a flipped byte in it is found as in any other file.
"""

from __future__ import annotations

import json
import re
import reprlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from hashlib import sha256
from math import isfinite
from types import UnionType
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

from speccompile.runtime.errors import ArtifactError

__all__ = [
    "MANIFEST_NAME",
    "MAX_MANIFEST_BYTES",
    "SCHEMA_VERSION",
    "Defaults",
    "EngineInfo",
    "FileEntry",
    "Manifest",
    "ModelInfo",
    "Requirements",
    "check_paths",
    "parse_manifest",
]

MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 4 << 20
SCHEMA_VERSION = 1

_MAX_DEPTH = 16
_WANTED: dict[object, str] = {
    str: "a printable text",
    bool: "true or false",
    int: "a whole number from 0",
    float: "a finite number from 0",
    tuple: "a list",
    Mapping: "an object",
}

_Record = TypeVar("_Record")
_type_hints = cache(get_type_hints)


@dataclass(frozen=True)
class FileEntry:
    """One file of the artifact; `size` in bytes, `sha256` in lower-case hexadecimal."""

    sha256: str
    size: int
    role: str


@dataclass(frozen=True)
class ModelInfo:
    """The target's dimensions; `context_length` is the longest sequence, in tokens."""

    vocab_size: int
    context_length: int
    layers: int
    kv_heads: int
    head_dim: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class EngineInfo:
    """One compiled graph, at the path `graph` in the artifact.

    `precision` is that of the weights, `arithmetic` that of the sums. `cost_ms` maps query rows to
    the median milliseconds of a step with that many, measured on the build host. Steps of fewer
    than `min_rows` rows are padded to it: from there on, a row's bits do not depend on how many
    rows are computed with it (0: they always do). `capacity` counts cache slots, padding included.
    A draft that `shares_cache` works in the target's: it is the target itself, quantized.
    """

    role: Literal["target", "draft"]
    backend: Literal["openvino", "onnxruntime"]
    graph: str
    precision: Literal["fp32", "fp16", "int8"]
    arithmetic: Literal["fp32", "bf16"]
    layers: int
    kv_heads: int
    heads: int
    head_dim: int
    capacity: int
    vocab_size: int
    min_rows: int
    shares_cache: bool
    cost_ms: Mapping[int, float]


@dataclass(frozen=True)
class Defaults:
    """What drafts, and how many tokens a round, when the caller does not say."""

    draft: Literal["model", "ngram", "none"]
    draft_length: int


@dataclass(frozen=True)
class Requirements:
    """What a host must have; `packages` maps a distribution's name to a "major.minor" version."""

    architecture: str
    cpu_flags: tuple[str, ...]
    packages: Mapping[str, str]


@dataclass(frozen=True)
class Manifest:
    """`engines` has a "target" and perhaps a "draft"; `files` every path but the manifest's own.

    `acceptance[i]` is the measured probability that position i of a proposal is accepted, given
    that the ones before it were. `provenance` is any JSON about the build.
    """

    schema: int
    name: str
    compiler_version: str
    model: ModelInfo
    engines: Mapping[str, EngineInfo]
    defaults: Defaults
    requires: Requirements
    provenance: Mapping[str, object]
    acceptance: tuple[float, ...]
    lossless: bool
    files: Mapping[str, FileEntry]

    def to_bytes(self) -> bytes:
        """The content of `manifest.json`; raises ValueError for a number that is not finite."""
        fields = asdict(self)
        return _canonical(fields | {"checksum": sha256(_canonical(fields)).hexdigest()})

    @property
    def identity(self) -> str:
        """The sha256 of `manifest.json`, which stands for the whole artifact."""
        return sha256(self.to_bytes()).hexdigest()


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Read what `Manifest.to_bytes` wrote.

    Raises ArtifactError, beginning with `where` and naming the field, for anything else.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise ArtifactError(f"{where}: larger than the limit of {MAX_MANIFEST_BYTES >> 20} MiB")
    try:
        return _parse(data)
    except RecursionError:
        raise ArtifactError(f"{where}: nested deeper than {_MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise ArtifactError(f"{where}: not JSON: {error}") from None
    except ValueError as error:  # Not UTF-8, too.
        raise ArtifactError(f"{where}: {error}") from None


def check_paths(paths: Iterable[str]) -> None:
    """Raise ValueError unless every path is portable, stays in the artifact, and has no twin.

    Twins are different names that a case-insensitive or normalising file system holds to be one.
    """
    seen: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        faults = {
            "has a backslash or is not printable": "\\" in path or not path.isprintable(),
            f"is nested deeper than {_MAX_DEPTH} levels": len(parts) > _MAX_DEPTH,
            "is absolute or has '.', '..' or '//'": bool({"", ".", ".."} & {*parts}),
            "is the manifest itself": path.casefold() == MANIFEST_NAME,
        }
        for fault, holds in faults.items():
            _require(not holds, f"files[{path!r}] {fault}")
        for end in range(len(parts), 0, -1):
            part = "/".join(parts[:end])
            twin = seen.setdefault(unicodedata.normalize("NFC", part).casefold(), part)
            _require(twin == part, f"files[{path!r}] differs from {twin!r} only by case")


def _canonical(document: Mapping[str, object]) -> bytes:
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    # A lone surrogate, which UTF-8 cannot hold, stays the JSON escape that it must have come from.
    return f"{text}\n".encode(errors="backslashreplace")


def _parse(data: bytes) -> Manifest:
    document = json.loads(data.decode(), object_pairs_hook=_without_duplicates)
    if not isinstance(document, dict):
        raise ValueError("must be a JSON object")
    _read(int, document.get("schema"), "schema")
    schema, reads = document["schema"], f"than this speccompile reads ({SCHEMA_VERSION})"
    _require(schema <= SCHEMA_VERSION, f"schema {schema} is newer {reads}: upgrade speccompile")
    _require(schema >= SCHEMA_VERSION, f"schema {schema} is older {reads}: build it again")
    _read(str, document.pop("checksum", None), "checksum")
    manifest = _read_record(Manifest, document, "")
    _check(manifest)
    _require(manifest.to_bytes() == data, "changed after it was written: its checksum is wrong")
    return manifest


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    for key, count in Counter(key for key, _ in pairs).items():
        _require(count == 1, f"the key {key!r} appears {count} times in one object")
    return dict(pairs)


def _read(kind: object, value: object, field: str) -> object:
    """`value`, as JSON gave it, as an instance of the annotation `kind`; else a ValueError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _read_record(kind, value, field)
    if origin is UnionType:
        return None if value is None else _read(arguments[0], value, field)
    if origin is tuple and isinstance(value, list):
        kind = arguments[0]
        return tuple(_read(kind, item, f"{field}[{index}]") for index, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return _read_mapping(kind, value, field)
    if kind is object:
        return _read_json(value, field, 1)
    if not _is_scalar(kind, value):
        wanted = _WANTED.get(origin or kind) or "one of " + ", ".join(arguments)
        raise ValueError(f"{field} must be {wanted}, not {reprlib.repr(value)}")
    return value


def _read_mapping(kind: object, value: dict[str, object], field: str) -> dict[object, object]:
    of_keys, of_values = get_args(kind)
    result: dict[object, object] = {}
    for name, item in value.items():
        is_number = of_keys is int and re.fullmatch("[1-9][0-9]{0,8}", name)
        key = _read(of_keys, int(name) if is_number else name, f"the key {name!r} of {field}")
        result[key] = _read(of_values, item, f"{field}[{name!r}]")
    return result


def _is_scalar(kind: object, value: object) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, str):
        return value in get_args(kind) or (kind is str and value.isprintable() and value != "")
    if isinstance(value, int) or (isinstance(value, float) and kind is float):
        return kind in (int, float) and 0 <= value < 1 << 63  # Nor NaN, infinity or beyond a word.
    return False


def _read_record(kind: Callable[..., _Record], value: object, field: str) -> _Record:
    fields, prefix = _type_hints(kind), f"{field}." if field else ""
    if not isinstance(value, dict):
        raise ValueError(f"{field} must be an object, not {reprlib.repr(value)}")
    for name in sorted(value.keys() - fields.keys()):
        raise ValueError(f"{field or 'the manifest'} has the unknown key {reprlib.repr(name)}")
    for name in sorted(fields.keys() - value.keys()):
        raise ValueError(f"{prefix}{name} is missing")
    return kind(**{name: _read(fields[name], value[name], prefix + name) for name in fields})


def _read_json(value: object, field: str, depth: int) -> object:
    _require(depth <= _MAX_DEPTH, f"{field[:60]}... is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, float):
        _require(isfinite(value), f"{field} must be a finite number, not {value}")
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _read_json(item, f"{field}[{reprlib.repr(key)}]", depth + 1)
    return value


def _check(manifest: Manifest) -> None:
    """What types cannot say."""
    check_paths(manifest.files)
    for path, entry in manifest.files.items():
        is_hash = re.fullmatch("[0-9a-f]{64}", entry.sha256) is not None
        _require(is_hash, f"files[{path!r}].sha256 must be 64 lower-case hexadecimal digits")
    needed = {"target", "draft"} if manifest.defaults.draft == "model" else {"target"}
    for role in sorted(needed):
        _require(role in manifest.engines, f"engines[{role!r}] is missing")
    context = manifest.model.context_length
    for role, engine in manifest.engines.items():
        field = f"engines[{role!r}]"
        _require(engine.role == role, f"{field}.role is {engine.role!r}")
        _require(engine.graph in manifest.files, f"{field}.graph is no file: {engine.graph!r}")
        _require(engine.capacity >= context, f"{field}.capacity is below the context of {context}")
    for index, probability in enumerate(manifest.acceptance):
        _require(probability <= 1, f"acceptance[{index}] must be at most 1, not {probability}")
    for name, version in manifest.requires.packages.items():
        is_minor = re.fullmatch("[0-9]{1,9}[.][0-9]{1,9}", version) is not None
        _require(is_minor, f"requires.packages[{name!r}] must be major.minor, not {version!r}")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
