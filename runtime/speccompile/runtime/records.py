"""Records: dataclasses kept as canonical JSON.

That is UTF-8, sorted keys, two spaces and a newline at the end. A record carries a `checksum` of
everything else in it, and is read back only when it is byte for byte what `record_bytes` writes. So
one record has one hash, and a flipped byte in it is found as in any other file.

A field of a record that is `LATER` is not written while it is empty: records from before there was
such a field are read as they were.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from hashlib import sha256
from math import isfinite
from types import UnionType
from typing import TYPE_CHECKING, TypeVar, get_args, get_origin, get_type_hints

from speccompile.runtime.errors import ArtifactError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["LATER", "MAX_RECORD_BYTES", "parse_record", "record_bytes", "require"]

MAX_RECORD_BYTES = 4 << 20

LATER: Mapping[str, object] = {"later": True}
"""The metadata of a record's own field, with an empty default, that older records lack."""

_MAX_DEPTH = 16
_WANTED: dict[object, str] = {
    str: "a printable text",
    bool: "true or false",
    int: "a whole number from 0",
    float: "a finite number from 0",
    tuple: "a list",
    Mapping: "an object",
}

_Record = TypeVar("_Record", bound="DataclassInstance")
_type_hints = cache(get_type_hints)


def record_bytes(record: DataclassInstance) -> bytes:
    """The file of `record`; raises ValueError for a number that is not finite."""
    later = _later(type(record))
    content = {name: value for name, value in asdict(record).items() if value or name not in later}
    return _canonical(content | {"checksum": sha256(_canonical(content)).hexdigest()})


def parse_record(
    kind: type[_Record], data: bytes, where: str, *, schema: int, check: Callable[[_Record], None]
) -> _Record:
    """Read what `record_bytes` wrote of a dataclass `kind`, whose field `schema` tells its version.

    `check` raises ValueError for what types cannot say. Raises ArtifactError, beginning with
    `where` and naming the field, for anything but such a record.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise ArtifactError(f"{where}: larger than the limit of {MAX_RECORD_BYTES >> 20} MiB")
    try:
        document = _load(data, schema)
        record = _read_record(kind, document, "")
        check(record)
        require(record_bytes(record) == data, "changed after it was written: its checksum is wrong")
        return record
    except RecursionError:
        raise ArtifactError(f"{where}: nested deeper than {_MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise ArtifactError(f"{where}: not JSON: {error}") from None
    except ValueError as error:  # Not UTF-8, too.
        raise ArtifactError(f"{where}: {error}") from None


def require(holds: bool, otherwise: str) -> None:
    """Raise ValueError with the message `otherwise` unless it `holds`."""
    if not holds:
        raise ValueError(otherwise)


def _later(kind: type[DataclassInstance]) -> frozenset[str]:
    return frozenset(each.name for each in fields(kind) if "later" in each.metadata)


def _canonical(document: Mapping[str, object]) -> bytes:
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    # A lone surrogate, which UTF-8 cannot hold, stays the JSON escape that it must have come from.
    return f"{text}\n".encode(errors="backslashreplace")


def _load(data: bytes, reads: int) -> dict[str, object]:
    document = json.loads(data.decode(), object_pairs_hook=_without_duplicates)
    if not isinstance(document, dict):
        raise ValueError("must be a JSON object")
    _read(int, document.get("schema"), "schema")
    schema, than = document["schema"], f"than this speccompile reads ({reads})"
    require(schema <= reads, f"schema {schema} is newer {than}: upgrade speccompile")
    require(schema >= reads, f"schema {schema} is older {than}: build it again")
    _read(str, document.pop("checksum", None), "checksum")
    return document


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    for key, count in Counter(key for key, _ in pairs).items():
        require(count == 1, f"the key {key!r} appears {count} times in one object")
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


def _read_record(kind: type[_Record], value: object, field: str) -> _Record:
    hints, prefix = _type_hints(kind), f"{field}." if field else ""
    if not isinstance(value, dict):
        raise ValueError(f"{field} must be an object, not {reprlib.repr(value)}")
    for name in sorted(value.keys() - hints.keys()):
        raise ValueError(f"{field or 'the record'} has the unknown key {reprlib.repr(name)}")
    for name in sorted(hints.keys() - value.keys() - _later(kind)):
        raise ValueError(f"{prefix}{name} is missing")
    present = (name for name in hints if name in value)
    return kind(**{name: _read(hints[name], value[name], prefix + name) for name in present})


def _read_json(value: object, field: str, depth: int) -> object:
    require(depth <= _MAX_DEPTH, f"{field[:60]}... is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, float):
        require(isfinite(value), f"{field} must be a finite number, not {value}")
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _read_json(item, f"{field}[{reprlib.repr(key)}]", depth + 1)
    return value
