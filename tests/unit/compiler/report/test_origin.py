"""What a build says of its origin: by the schemas of those who read it."""

# Protobuf makes its classes when it is imported.
# pyright: reportAttributeAccessIssue=false
import json
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from speccompile.compiler.report.provenance import provenance, write_provenance
from speccompile.compiler.report.sbom import sbom
from speccompile.runtime.artifact import read_manifest
from speccompile.runtime.manifest import Manifest
from tests.table_artifact import write_artifact

MODEL = {
    "source": "hf:some/model@main",
    "revision": "main",
    "sha256": "ab" * 32,
    "license": "Apache-2.0",
}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    root = write_artifact(tmp_path_factory.mktemp("origin") / "tiny", {})
    told = {
        "recipe": {"name": "tiny"},
        "target": MODEL,
        "draft": {"source": "target"},
        "experts": {"code": {**MODEL, "sha256": "cd" * 32, "license": None, "revision": None}},
    }
    return replace(read_manifest(root), provenance=told)


@pytest.fixture(scope="module")
def document(manifest: Manifest) -> dict[str, Any]:
    text = sbom(manifest)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    content: dict[str, Any] = json.loads(text)
    return content


def test_the_bill_of_materials_is_of_the_artifact(
    manifest: Manifest, document: dict[str, Any]
) -> None:
    described = document["metadata"]["component"]
    assert described["hashes"] == [{"alg": "SHA-256", "content": manifest.identity}]
    depends = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    assert {"model:target", "model:code"} < {*depends["artifact"]}


def test_it_lists_models_with_their_terms(document: dict[str, Any]) -> None:
    models = {c["bom-ref"]: c for c in document["components"] if c["bom-ref"].startswith("model")}
    assert {*models} == {"model:target", "model:code"}
    target = models["model:target"]
    assert target["hashes"] == [{"alg": "SHA-256", "content": MODEL["sha256"]}]
    assert target["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert "licenses" not in models["model:code"]


def test_it_tells_what_runs_the_artifact_from_what_made_it(document: dict[str, Any]) -> None:
    scopes = {c["name"]: c.get("scope") for c in document["components"]}
    assert {scopes[name] for name in ("numpy", "onnxruntime", "tokenizers")} == {"required"}
    assert {scopes[name] for name in ("torch", "onnx-ir", "pydantic")} == {"excluded"}
    assert not {"pytest", "ruff", "hypothesis"} & scopes.keys()


def test_the_provenance_is_slsa(tmp_path: Path, manifest: Manifest) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "build.json").write_bytes(b"{}")
    told = provenance(
        *(manifest, {"python": "3.11.7"}, reports),
        command=["speccompile", "build", "tiny"],
        started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        finished=datetime(2026, 1, 2, 3, 5, 0, tzinfo=UTC),
    )
    write_provenance(reports, told)
    read = json.loads((reports / "provenance.json").read_text())
    assert read == told
    parsed = json_format.ParseDict(read, statement_pb2.Statement())
    Statement.copy_from_pb(parsed).validate()
    build = json_format.ParseDict(read["predicate"], provenance_pb2.Provenance())
    assert read["subject"] == [{"name": "manifest.json", "digest": {"sha256": manifest.identity}}]
    dependencies = {each.name: each for each in build.build_definition.resolved_dependencies}
    assert set(dependencies) == {"target", "code", "speccompile"}
    assert dependencies["target"].uri == MODEL["source"]
    assert dependencies["target"].digest["sha256"] == MODEL["sha256"]
    assert build.run_details.metadata.started_on.ToJsonString() == "2026-01-02T03:04:05Z"
    assert [each.name for each in build.run_details.byproducts] == ["reports/build.json"]
    assert build.run_details.byproducts[0].digest["sha256"] == sha256(b"{}").hexdigest()
    assert str(tmp_path) not in json.dumps(read)
