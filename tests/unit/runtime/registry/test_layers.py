import json
from pathlib import Path
from typing import Any

import pytest

from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.registry.layers import Layer, layers_of, parse_layers, write_manifest
from tests.releases import write_release


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    artifact = open_artifact(write_release(tmp_path / "tiny", b"weights"))
    read: dict[str, Any] = json.loads(write_manifest(artifact.manifest, layers_of(artifact))[0])
    return read


def refuse(document: object, fault: str) -> None:
    with pytest.raises(ArtifactError, match=f"^there: {fault}"):
        parse_layers(json.dumps(document).encode(), "there")


def test_there_and_back(tmp_path: Path) -> None:
    artifact = open_artifact(write_release(tmp_path / "tiny", b"weights"))
    layers = layers_of(artifact)
    data, _ = write_manifest(artifact.manifest, layers)
    assert parse_layers(data, "there") == {layer.path: layer for layer in layers}
    assert write_manifest(artifact.manifest, layers)[0] == data
    kinds = {layer.path.partition("/")[0]: layer.media_type for layer in layers}
    form = "application/vnd.cncf.model.{}.v1.raw"
    assert kinds == {
        "manifest.json": form.format("weight.config"),
        "measurements.json": form.format("weight.config"),
        "engines": form.format("weight"),
        "tokenizer": form.format("weight.config"),
    }


def test_what_can_be_run_is_code() -> None:
    for path in ("run.pyz", "speccompile_runtime-0.1.0-py3-none-manylinux_2_17_x86_64.whl"):
        assert Layer(path, "0" * 64, 1).media_type == "application/vnd.cncf.model.code.v1.raw"


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../evil", "is absolute or has"),
        ("/etc/passwd", "is absolute or has"),
        ("a\0b", "is not printable"),
        ("engines/TARGET.onnx", "differs from .* only by case"),
        ("engines/target.onnx", "two layers have the same path"),
        ("Manifest.json", "is a record or signature itself"),
        ("/".join("a" * 20), "is nested deeper than 16 levels"),
    ],
)
def test_paths(document: dict[str, Any], path: str, fault: str) -> None:
    layer = dict(document["layers"][-1], annotations={"org.cncf.model.filepath": path})
    document["layers"].append(layer)
    refuse(document, f".*{fault}")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"annotations": None}, "a layer has no org.cncf.model.filepath"),
        ({"annotations": {"org.cncf.model.filepath": 1}}, "a layer has no org.cncf.model.filepath"),
        ({"digest": "sha512:00"}, "the layer of 'tokenizer/tokenizer.json' has no sha256"),
        ({"digest": None}, "the layer of 'tokenizer/tokenizer.json' has no sha256"),
        ({"size": -1}, "the layer of 'tokenizer/tokenizer.json' has no size"),
        ({"size": True}, "the layer of 'tokenizer/tokenizer.json' has no size"),
        ({"size": 1 << 70}, "the layer of 'tokenizer/tokenizer.json' has no size"),
    ],
)
def test_fields(document: dict[str, Any], change: dict[str, object], fault: str) -> None:
    document["layers"][-1] |= change
    refuse(document, fault)


def test_other_documents(document: dict[str, Any]) -> None:
    refuse([], "its manifest is no JSON object")
    refuse(document | {"artifactType": "application/vnd.oci.image"}, "is no model artifact")
    refuse(document | {"layers": None}, "its manifest has no layers")
    refuse(document | {"layers": [1]}, "a layer has no org.cncf.model.filepath")
    missing = "is no speccompile artifact: it has no manifest.json, measurements.json"
    refuse(document | {"layers": document["layers"][2:]}, missing)
    for data in (b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(ArtifactError, match=r"^there: "):
            parse_layers(data, "there")
