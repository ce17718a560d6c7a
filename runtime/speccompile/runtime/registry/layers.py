"""An artifact as an OCI artifact: one raw layer a file, in the media types of the CNCF ModelPack.

The OCI manifest follows from the artifact and its signature alone, so that it has one digest
wherever it is pushed.
Nothing in it is believed on the way back: the artifact's own records say what the files must be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256

from speccompile.runtime.artifact import Artifact
from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.files import MANIFEST_NAME, MEASUREMENTS_NAME, SIGNATURE_NAME, check_paths
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.records import require
from speccompile.runtime.signatures import read_signature

__all__ = ["MANIFEST_TYPE", "RECORDS", "Layer", "layers_of", "parse_layers", "write_manifest"]

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
RECORDS = (MANIFEST_NAME, MEASUREMENTS_NAME)

_ARTIFACT_TYPE = "application/vnd.cncf.model.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
_LAYER_TYPE = "application/vnd.cncf.model.{}.v1.raw"
# By the first part of a path; whatever else there is decides what is computed, like the records.
_KINDS = {"engines": "weight", "model": "weight", "reports": "doc", SIGNATURE_NAME: "doc"}
_CODE = (".pyz", ".whl")
_OTHER_KIND = "weight.config"
_PATH, _TITLE = "org.cncf.model.filepath", "org.opencontainers.image.title"
_IDENTITY = "speccompile.identity"


@dataclass(frozen=True)
class Layer:
    """A file at `path` in the artifact, of `size` bytes; `sha256` in lower-case hexadecimal."""

    path: str
    sha256: str
    size: int

    @property
    def digest(self) -> str:
        return f"sha256:{self.sha256}"

    @property
    def media_type(self) -> str:
        kind = _KINDS.get(self.path.partition("/")[0], _OTHER_KIND)
        return _LAYER_TYPE.format("code" if self.path.endswith(_CODE) else kind)


def layers_of(artifact: Artifact) -> list[Layer]:
    """The records, the signature if there is one, then every file they list."""
    contents = {
        MANIFEST_NAME: artifact.manifest.to_bytes(),
        MEASUREMENTS_NAME: artifact.measurements.to_bytes(),
    }
    signature = read_signature(artifact.root)
    if signature is not None:
        contents[SIGNATURE_NAME] = signature
    records = [Layer(name, sha256(data).hexdigest(), len(data)) for name, data in contents.items()]
    files = sorted(artifact.files.items())
    return records + [Layer(path, entry.sha256, entry.size) for path, entry in files]


def write_manifest(manifest: Manifest, layers: Collection[Layer]) -> tuple[bytes, bytes]:
    """The OCI manifest, and the config blob that it refers to."""
    target = manifest.engines["target"]
    config = _canonical(
        {
            "descriptor": {"name": manifest.name},
            "config": {"format": "onnx", "precision": target.precision},
            "modelfs": {"type": "layers", "diffIds": [layer.digest for layer in layers]},
        }
    )
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": _ARTIFACT_TYPE,
        "config": {
            "mediaType": _CONFIG_TYPE,
            "digest": f"sha256:{sha256(config).hexdigest()}",
            "size": len(config),
        },
        "layers": [
            {
                "mediaType": layer.media_type,
                "digest": layer.digest,
                "size": layer.size,
                "annotations": {_PATH: layer.path, _TITLE: layer.path},
            }
            for layer in layers
        ],
        "annotations": {_TITLE: manifest.name, _IDENTITY: manifest.identity},
    }
    return _canonical(document), config


def parse_layers(data: bytes, where: str) -> dict[str, Layer]:
    """The layers of an OCI manifest that `write_manifest` could have written, by path.

    Raises ArtifactError, beginning with `where`, for anything else.
    """
    try:
        document = json.loads(data)
        require(isinstance(document, dict), "its manifest is no JSON object")
        require(document.get("artifactType") == _ARTIFACT_TYPE, "is no model artifact")
        found = document.get("layers")
        require(isinstance(found, list), "its manifest has no layers")
        layers = [_layer(entry) for entry in found]
        paths = [layer.path for layer in layers]
        missing = [name for name in RECORDS if name not in paths]
        require(not missing, f"is no speccompile artifact: it has no {', '.join(missing)}")
        require(len({*paths}) == len(paths), "two layers have the same path")
        check_paths(path for path in paths if path not in {*RECORDS, SIGNATURE_NAME})
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where}: {error or 'nested too deeply'}") from None
    return {layer.path: layer for layer in layers}


def _layer(entry: object) -> Layer:
    fields = entry if isinstance(entry, dict) else {}
    annotations, digest, size = (fields.get(key) for key in ("annotations", "digest", "size"))
    path = annotations.get(_PATH) if isinstance(annotations, dict) else None
    if not isinstance(path, str):
        raise ValueError(f"a layer has no {_PATH}")
    if not isinstance(digest, str) or not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"the layer of {path!r} has no sha256")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 63:
        raise ValueError(f"the layer of {path!r} has no size")
    return Layer(path, digest.removeprefix("sha256:"), size)


def _canonical(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
