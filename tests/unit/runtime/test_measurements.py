import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.files import FileEntry
from speccompile.runtime.measurements import (
    Defaults,
    Measurements,
    parse_measurements,
    unmeasured,
)
from tests.unit.runtime.test_manifest import MANIFEST, TARGET, WITH_EXPERTS

MEASUREMENTS = Measurements(
    schema=6,
    manifest=MANIFEST.identity,
    cost_ms={"target": {1: 1.25, 2: 1, 16: 9.5}, "draft": {1: 0.5}},
    acceptance=(0.75, 0.5),
    lossless=True,
    defaults=Defaults("model", 4),
    files={"reports/build.json": FileEntry("0" * 64, 3, "report")},
)


def refusal(data: bytes) -> str:
    with pytest.raises(ArtifactError) as caught:
        parse_measurements(data, "a/measurements.json", MANIFEST)
    message = str(caught.value)
    assert message.startswith("a/measurements.json: ")
    assert "\n" not in message
    return message


def refusal_of(change: Callable[[dict[str, Any]], object]) -> str:
    changed = json.loads(MEASUREMENTS.to_bytes())
    change(changed)
    return refusal(json.dumps(changed).encode())


@pytest.mark.parametrize("measurements", [MEASUREMENTS, unmeasured(MANIFEST)])
def test_round_trip(measurements: Measurements) -> None:
    read = parse_measurements(measurements.to_bytes(), "measurements.json", MANIFEST)
    assert read == measurements


def test_what_is_not_measured_is_not_claimed() -> None:
    nothing = unmeasured(MANIFEST)
    assert not nothing.lossless
    assert nothing.defaults == Defaults("none", 0)


def test_those_of_another_artifact_are_refused_by_both_identities() -> None:
    other = replace(MANIFEST, name="other")
    message = refusal(replace(MEASUREMENTS, manifest=other.identity).to_bytes())
    assert MANIFEST.identity in message
    assert other.identity in message


def test_a_flipped_or_missing_byte_is_refused() -> None:
    data = MEASUREMENTS.to_bytes()
    for index in range(0, len(data), 3):
        refusal(bytes([*data[:index], data[index] ^ 1, *data[index + 1 :]]))
        refusal(data[:index] + data[index + 1 :])


def test_another_schema_is_refused() -> None:
    assert "schema 1 is older than this speccompile reads (6)" in refusal_of(
        lambda changed: changed.update(schema=1)
    )


def test_only_reports_are_measured_files() -> None:
    files = {TARGET.graph: FileEntry("0" * 64, 3, "engine")}
    message = refusal(replace(MEASUREMENTS, files=files).to_bytes())
    assert f"files['{TARGET.graph}'] is no report" in message


def test_a_model_drafts_by_default_only_where_its_cost_is_known() -> None:
    costs = {"target": {1: 1.0}}
    message = refusal(replace(MEASUREMENTS, cost_ms=costs).to_bytes())
    assert "cost_ms['draft'] is missing, though a model drafts by default" in message
    for draft in ("ngram", "none"):
        alone = replace(MEASUREMENTS, cost_ms=costs, defaults=Defaults(draft, 0))
        assert parse_measurements(alone.to_bytes(), "measurements.json", MANIFEST) == alone


WITH_CODE = replace(
    MEASUREMENTS,
    manifest=WITH_EXPERTS.identity,
    cost_ms={**MEASUREMENTS.cost_ms, "code": {1: 0.25}},
    experts={"code": (0.5, 0.25)},
    defaults=Defaults("code", 3),
)


def test_experts_have_figures_of_their_own() -> None:
    read = parse_measurements(WITH_CODE.to_bytes(), "measurements.json", WITH_EXPERTS)
    assert read == WITH_CODE
    assert read.of_engine("code") == (0.5, 0.25)
    assert read.of_engine("draft") == (0.75, 0.5)
    assert read.of_engine("chat") == ()


def test_without_experts_the_record_is_as_it_was_before_there_were_any() -> None:
    assert b"experts" not in MEASUREMENTS.to_bytes()
    assert "its checksum is wrong" in refusal_of(lambda changed: changed.update(experts={}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"experts": {"math": (0.5,)}}, "experts['math'] is of no expert of the manifest"),
        ({"experts": {"code": (1.5,)}}, "experts['code'][0] must be at most 1, not 1.5"),
        (
            {"defaults": Defaults("math", 3)},
            "defaults.draft must be one of model, hedge, ngram, none, chat, code, not 'math'",
        ),
        ({"defaults": Defaults("chat", 3)}, "cost_ms['chat'] is missing, though a model drafts"),
    ],
)
def test_faults_of_experts(fields: dict[str, Any], message: str) -> None:
    data = replace(WITH_CODE, **fields).to_bytes()
    with pytest.raises(ArtifactError) as caught:
        parse_measurements(data, "measurements.json", WITH_EXPERTS)
    assert message in str(caught.value)


# What is put in place of the record's own, and what the refusal says.
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"cost_ms": {"other": {1: 1.0}}, "defaults": Defaults("none", 0)}, "is of no engine of the"),
    ({"cost_ms": {"target": {}}}, "cost_ms['target'] is empty"),
    ({"cost_ms": {"target": {2: 0.0}}}, "cost_ms['target']['2'] must be above 0"),
    ({"acceptance": (0.5, 1.5)}, "acceptance[1] must be at most 1, not 1.5"),
    ({"files": {"reports/x": FileEntry("0" * 63, 0, "report")}}, "64 lower-case hexadecimal"),
    ({"files": {"reports/../x": FileEntry("0" * 64, 0, "report")}}, "is absolute or has '.', '..'"),
]


@pytest.mark.parametrize(("fields", "message"), FAULTS)
def test_fields(fields: dict[str, Any], message: str) -> None:
    assert message in refusal(replace(MEASUREMENTS, **fields).to_bytes())
