"""One record has one form; anything else is refused by a line that names the field."""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

import pytest

from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.records import LATER, MAX_RECORD_BYTES, parse_record, record_bytes, require


@dataclass(frozen=True)
class Part:
    kind: Literal["wheel", "door"]
    count: int
    note: str | None


@dataclass(frozen=True)
class Record:
    schema: int
    name: str
    whole: bool
    parts: Mapping[str, Part]
    costs: Mapping[int, float]
    shares: tuple[float, ...]
    extra: Mapping[str, object]


RECORD = Record(
    schema=2,
    name="car",
    whole=True,
    parts={"front": Part("wheel", 2, None), "back": Part("wheel", 2, "worn")},
    costs={1: 1.25, 2: 1, 16: 9.5},
    shares=(0.75, 0.5),
    extra={"recipe": ["é\n", None, 1.5, True, -3]},
)

Document = dict[str, Any]


def parse(data: bytes) -> Record:
    return parse_record(Record, data, "a/record.json", schema=2, check=check)


def check(record: Record) -> None:
    require(record.name != "forbidden", "name is forbidden")


def document() -> Document:
    result: Document = json.loads(record_bytes(RECORD))
    return result


def refusal(data: bytes) -> str:
    with pytest.raises(ArtifactError) as caught:
        parse(data)
    message = str(caught.value)
    assert message.startswith("a/record.json: ")
    assert "\n" not in message
    return message


def refusal_of(change: Callable[[Document], object]) -> str:
    changed = document()
    change(changed)
    return refusal(json.dumps(changed).encode())


def test_round_trip() -> None:
    read = parse(record_bytes(RECORD))
    assert read == RECORD
    assert isinstance(read.parts["front"], Part)
    assert list(read.costs) == [1, 2, 16]


@dataclass(frozen=True)
class Grown(Record):
    """What the next version makes of the record."""

    more: Mapping[str, int] = field(default_factory=dict[str, int], metadata=LATER)


def test_a_later_field_changes_no_record_that_lacks_it() -> None:
    fields = {each.name: getattr(RECORD, each.name) for each in dataclasses.fields(RECORD)}
    data = record_bytes(RECORD)
    grown = Grown(**fields)
    assert record_bytes(grown) == data
    assert parse_record(Grown, data, "a/record.json", schema=2, check=check) == grown
    more = Grown(**fields, more={"doors": 4})
    data = record_bytes(more)
    assert parse_record(Grown, data, "a/record.json", schema=2, check=check) == more
    assert "the record has the unknown key 'more'" in refusal(data)


def test_canonical_form_does_not_depend_on_order() -> None:
    other = replace(RECORD, parts=dict(sorted(RECORD.parts.items())))
    assert list(other.parts) != list(RECORD.parts)
    assert record_bytes(other) == record_bytes(RECORD)
    assert record_bytes(RECORD).endswith(b"}\n")


def test_the_checksum_is_that_of_everything_else() -> None:
    checksum = document()["checksum"]
    rest = record_bytes(RECORD).replace(f'  "checksum": "{checksum}",\n'.encode(), b"")
    assert checksum == sha256(rest).hexdigest()


def test_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        record_bytes(replace(RECORD, shares=(float("nan"),)))


def test_a_flipped_or_missing_byte_is_refused() -> None:
    data = record_bytes(RECORD)
    for index in range(len(data)):
        refusal(bytes([*data[:index], data[index] ^ 1, *data[index + 1 :]]))
        refusal(data[:index] + data[index + 1 :])


def test_other_layout_of_the_same_content_is_refused() -> None:
    assert "changed after it was written" in refusal(json.dumps(document()).encode())


def test_what_types_cannot_say() -> None:
    assert "name is forbidden" in refusal(record_bytes(replace(RECORD, name="forbidden")))


def test_another_schema_is_refused_before_its_fields_are_read() -> None:
    message = refusal(b'{"schema": 7, "new": []}')
    assert "schema 7 is newer than this speccompile reads (2): upgrade speccompile" in message
    message = refusal(b'{"schema": 1, "old": []}')
    assert "schema 1 is older than this speccompile reads (2): build it again" in message
    assert "schema must be a whole number" in refusal_of(lambda changed: changed.update(schema="1"))
    assert "schema must be a whole number" in refusal_of(lambda changed: changed.pop("schema"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"\xff{}", "utf-8"),
        (b'\xef\xbb\xbf{"schema": 2}', "not JSON"),
        (b'{"schema": 2, "schema": 2}', "'schema' appears 2 times"),
        (b'{"schema": ' + b"[" * 1_000_000, "nested deeper than 16 levels"),
        (b'{"a":' * 700_000, "nested deeper than 16 levels"),
        (b" " * (MAX_RECORD_BYTES + 1), "larger than the limit of 4 MiB"),
        (b'{"schema": ' + b"9" * 5000 + b"}", "4300 digits"),
    ],
)
def test_what_is_not_a_json_object(data: bytes, message: str) -> None:
    start = time.perf_counter()
    assert message in refusal(data)
    assert time.perf_counter() - start < 1


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


def test_depth_of_free_json_has_a_limit() -> None:
    fits = replace(RECORD, extra={"deep": nested(15)})
    assert parse(record_bytes(fits)) == fits
    message = refusal_of(lambda changed: changed.update(extra={"deep": nested(16)}))
    assert "extra['deep'][0]" in message
    assert "nested deeper than 16 levels" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "shares[0] must be a finite number from 0, not nan"),
        ("Infinity", "shares[0] must be a finite number from 0, not inf"),
        ("1e999", "shares[0] must be a finite number from 0, not inf"),
        ("-0.5", "shares[0] must be a finite number from 0, not -0.5"),
        ("9" * 400, "shares[0] must be a finite number from 0"),
        ("true", "shares[0] must be a finite number from 0, not True"),
    ],
)
def test_numbers(text: str, message: str) -> None:
    assert message in refusal(record_bytes(RECORD).replace(b"0.75", text.encode()))


def test_free_json_has_only_finite_numbers() -> None:
    data = record_bytes(RECORD).replace(b"-3", b"-Infinity")
    assert "extra['recipe'][4] must be a finite number, not -inf" in refusal(data)


# The place in the document, what is put there (`...`: it is removed), and what the refusal says.
FAULTS: list[tuple[str, object, str]] = [
    ("name", ..., "name is missing"),
    ("name", "a\nb", "name must be a printable text"),
    ("name", "", "name must be a printable text"),
    ("name", "\ud800", "name must be a printable text"),
    ("checksum", ..., "checksum must be a printable text, not None"),
    ("unknown", 1, "the record has the unknown key 'unknown'"),
    ("whole", 1, "whole must be true or false"),
    ("parts", [], "parts must be an object"),
    ("parts front", None, "parts['front'] must be an object"),
    ("parts front counts", 1, "parts['front'] has the unknown key 'counts'"),
    ("parts front count", ..., "parts['front'].count is missing"),
    ("parts front count", "2", "parts['front'].count must be a whole number"),
    ("parts front count", 2.0, "parts['front'].count must be a whole number"),
    ("parts front count", True, "parts['front'].count must be a whole number"),
    ("parts front count", 1 << 63, "parts['front'].count must be a whole number"),
    ("parts front kind", "roof", "parts['front'].kind must be one of wheel, door, not 'roof'"),
    ("parts front note", 1, "parts['front'].note must be a printable text"),
    ("shares", 2, "shares must be a list"),
    ("costs 01", 1.0, "the key '01' of costs must be a whole"),
    ("costs x", 1.0, "the key 'x' of costs must be a whole"),
]


@pytest.mark.parametrize(("place", "value", "message"), FAULTS)
def test_fields(place: str, value: object, message: str) -> None:
    *outer, key = place.split()
    changed = document()
    holder = changed
    for name in outer:
        holder = holder[name]
    holder[key] = value
    if value is ...:
        del holder[key]
    assert message in refusal(json.dumps(changed).encode())
