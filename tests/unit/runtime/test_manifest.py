import json
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.manifest import (
    MAX_MANIFEST_BYTES,
    Defaults,
    EngineInfo,
    FileEntry,
    Manifest,
    ModelInfo,
    Requirements,
    parse_manifest,
)

TARGET = EngineInfo(
    role="target",
    backend="openvino",
    graph="engines/cpu/target.xml",
    precision="fp16",
    arithmetic="fp32",
    layers=2,
    kv_heads=2,
    heads=4,
    head_dim=16,
    capacity=256,
    vocab_size=512,
    min_rows=1,
    shares_cache=False,
    cost_ms={1: 1.25, 2: 1, 16: 9.5},
)
DRAFT = replace(TARGET, role="draft", graph="engines/cpu/draft.onnx", backend="onnxruntime")
MANIFEST = Manifest(
    schema=1,
    name="tiny",
    compiler_version="0.1.0",
    model=ModelInfo(512, 256, 2, 2, 16, None, (0, 2)),
    engines={"target": TARGET, "draft": DRAFT},
    defaults=Defaults("model", 4),
    requires=Requirements("x86_64", ("avx2",), {"openvino": "2026.4"}),
    provenance={"recipe": {"prompts": ["é\n", None, 1.5, True, -3]}},
    acceptance=(0.75, 0.5),
    lossless=True,
    files={path: FileEntry("0" * 64, 3, "engine") for path in (TARGET.graph, DRAFT.graph)},
)

Document = dict[str, Any]


def document() -> Document:
    result: Document = json.loads(MANIFEST.to_bytes())
    return result


def refusal(data: bytes) -> str:
    with pytest.raises(ArtifactError) as caught:
        parse_manifest(data, "a/manifest.json")
    message = str(caught.value)
    assert message.startswith("a/manifest.json: ")
    assert "\n" not in message
    return message


def refusal_of(change: Callable[[Document], object]) -> str:
    changed = document()
    change(changed)
    return refusal(json.dumps(changed).encode())


def test_round_trip() -> None:
    data = MANIFEST.to_bytes()
    read = parse_manifest(data, "manifest.json")
    assert read == MANIFEST
    assert read.identity == sha256(data).hexdigest()
    assert isinstance(read.engines["target"], EngineInfo)
    assert list(read.engines["target"].cost_ms) == [1, 2, 16]


def test_canonical_form_does_not_depend_on_order() -> None:
    other = replace(MANIFEST, engines={"draft": DRAFT, "target": TARGET})
    assert other.to_bytes() == MANIFEST.to_bytes()
    assert MANIFEST.to_bytes().endswith(b"}\n")


def test_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(MANIFEST, acceptance=(float("nan"),)).to_bytes()


def test_draft_is_optional_unless_it_is_the_default() -> None:
    alone = replace(MANIFEST, engines={"target": TARGET})
    assert "engines['draft'] is missing" in refusal(alone.to_bytes())
    alone = replace(alone, defaults=Defaults("ngram", 4))
    assert parse_manifest(alone.to_bytes(), "manifest.json") == alone


def test_a_flipped_or_missing_byte_is_refused() -> None:
    data = MANIFEST.to_bytes()
    for index in range(0, len(data), 3):
        flipped = bytes([*data[:index], data[index] ^ 1, *data[index + 1 :]])
        refusal(flipped)
        refusal(data[:index] + data[index + 1 :])


def test_other_layout_of_the_same_content_is_refused() -> None:
    assert "changed after it was written" in refusal(json.dumps(document()).encode())


def test_future_schema_is_refused_before_its_fields_are_read() -> None:
    message = refusal(b'{"schema": 7, "new": []}')
    assert "schema 7 is newer than this speccompile reads (1): upgrade speccompile" in message
    assert "schema 0 is older" in refusal_of(lambda changed: changed.update(schema=0))
    assert "schema must be a whole number" in refusal_of(lambda changed: changed.update(schema="1"))
    assert "schema must be a whole number" in refusal_of(lambda changed: changed.pop("schema"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"\xff{}", "utf-8"),
        (b'\xef\xbb\xbf{"schema": 1}', "not JSON"),
        (b'{"schema": 1, "schema": 1}', "'schema' appears 2 times"),
        (b'{"schema": ' + b"[" * 1_000_000, "nested deeper than 16 levels"),
        (b'{"a":' * 700_000, "nested deeper than 16 levels"),
        (b" " * (MAX_MANIFEST_BYTES + 1), "larger than the limit of 4 MiB"),
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


def test_depth_of_provenance_has_a_limit() -> None:
    fits = replace(MANIFEST, provenance={"deep": nested(15)})
    assert parse_manifest(fits.to_bytes(), "manifest.json") == fits
    message = refusal_of(lambda changed: changed.update(provenance={"deep": nested(16)}))
    assert "provenance['deep'][0]" in message
    assert "nested deeper than 16 levels" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "acceptance[0] must be a finite number from 0, not nan"),
        ("Infinity", "acceptance[0] must be a finite number from 0, not inf"),
        ("1e999", "acceptance[0] must be a finite number from 0, not inf"),
        ("-0.5", "acceptance[0] must be a finite number from 0, not -0.5"),
        ("9" * 400, "acceptance[0] must be a finite number from 0"),
        ("1.5", "acceptance[0] must be at most 1"),
        ("true", "acceptance[0] must be a finite number from 0, not True"),
    ],
)
def test_probabilities(text: str, message: str) -> None:
    data = MANIFEST.to_bytes().replace(b"0.75", text.encode())
    assert message in refusal(data)


def test_provenance_has_only_finite_numbers() -> None:
    data = MANIFEST.to_bytes().replace(b"-3", b"-Infinity")
    message = "provenance['recipe']['prompts'][4] must be a finite number, not -inf"
    assert message in refusal(data)


# The place in the document, what is put there (`...`: it is removed), and what the refusal says.
FAULTS: list[tuple[str, object, str]] = [
    ("name", ..., "name is missing"),
    ("name", "a\nb", "name must be a printable text"),
    ("name", "", "name must be a printable text"),
    ("name", "\ud800", "name must be a printable text"),
    ("checksum", ..., "checksum must be a printable text, not None"),
    ("extra", 1, "the manifest has the unknown key 'extra'"),
    ("model kv_head", 1, "model has the unknown key 'kv_head'"),
    ("model layers", ..., "model.layers is missing"),
    ("model layers", "2", "model.layers must be a whole number"),
    ("model layers", 2.0, "model.layers must be a whole number"),
    ("model layers", True, "model.layers must be a whole number"),
    ("model layers", 1 << 63, "model.layers must be a whole number"),
    ("model eos_token_ids", 2, "model.eos_token_ids must be a list"),
    ("model eos_token_ids", [1, -2], "model.eos_token_ids[1] must be a whole number from 0"),
    ("model bos_token_id", "x", "model.bos_token_id must be a whole number"),
    ("model", None, "model must be an object"),
    ("engines", [], "engines must be an object"),
    ("engines draft role", "target", "engines['draft'].role is 'target'"),
    (
        "engines draft precision",
        "int4",
        "engines['draft'].precision must be one of fp32, fp16, ",
    ),
    ("engines draft graph", "x", "engines['draft'].graph is no file: 'x'"),
    ("engines draft capacity", 8, "engines['draft'].capacity is below the context of 256"),
    ("engines draft cost_ms 01", 1.0, "the key '01' of engines['draft'].cost_ms must be a whole"),
    ("lossless", 1, "lossless must be true or false"),
    ("requires packages numpy", "2", "requires.packages['numpy'] must be major.minor, not '2'"),
    (f"files {TARGET.graph} sha256", "A" * 64, f"files['{TARGET.graph}'].sha256 must be 64 lower"),
    (f"files {TARGET.graph} sha256", "0" * 63, f"files['{TARGET.graph}'].sha256 must be 64 lower"),
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


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/passwd", "is absolute"),
        ("../up", "'..'"),
        ("engines/../../up", "'..'"),
        ("./here", "'.'"),
        ("a//b", "'//'"),
        ("a/", "'//'"),
        ("a\\b", "backslash"),
        ("nul\0", "printable"),
        ("\u202eright-to-left", "printable"),
        ("\udc80", "printable"),
        ("Manifest.json", "is the manifest itself"),
        ("engines/cpu/TARGET.xml", "differs from 'engines/cpu/target.xml' only by case"),
        ("Engines/cpu/more", "only by case"),
        ("/".join("a" * 17), "nested deeper than 16 levels"),
        ("/".join("a" * 1_000_000), "nested deeper than 16 levels"),
    ],
)
def test_paths(path: str, message: str) -> None:
    entry = {"sha256": "0" * 64, "size": 0, "role": "engine"}
    assert message in refusal_of(lambda changed: changed["files"].update({path: entry}))


def test_composed_and_decomposed_letters_are_twins() -> None:
    entries = dict.fromkeys(("caf\u00e9", "cafe\u0301"), FileEntry("0" * 64, 0, "x"))
    message = refusal(replace(MANIFEST, files={**MANIFEST.files, **entries}).to_bytes())
    assert "only by case" in message
