"""``reports/provenance.json``: how the artifact came to be, as SLSA provenance of in-toto.

It is unsigned by itself: a signature of the artifact is of this file too. No path of the machine is
in it, apart from those that the recipe's author wrote down.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from speccompile.compiler.report.sbom import sources
from speccompile.compiler.stage import source_digest
from speccompile.runtime.files import MANIFEST_NAME
from speccompile.runtime.manifest import Manifest

__all__ = ["PROVENANCE_FILE", "provenance", "write_provenance"]

PROVENANCE_FILE = "provenance.json"

_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"
_OURS = "pkg:pypi/speccompile"


def provenance(
    manifest: Manifest,
    versions: Mapping[str, str],
    reports: Path,
    *,
    command: Sequence[str],
    started: datetime,
    finished: datetime,
) -> dict[str, Any]:
    """The statement, whose subject is the manifest, and with it every file that this lists.

    `command` is what was called, without paths; `versions` are those of the tools; `reports` has
    those written so far, which are byproducts.
    """
    ours = f"{_OURS}@{manifest.compiler_version}"
    return {
        "_type": _STATEMENT,
        "subject": [{"name": MANIFEST_NAME, "digest": {"sha256": manifest.identity}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": f"{_OURS}#build/v1",
                "externalParameters": {
                    "recipe": manifest.provenance["recipe"],
                    "command": list(command),
                },
                "internalParameters": {"versions": dict(versions)},
                "resolvedDependencies": [
                    *_models(manifest),
                    {
                        "name": "speccompile",
                        "uri": ours,
                        "annotations": {"sources_sha256": source_digest()},
                    },
                ],
            },
            "runDetails": {
                "builder": {"id": ours, "version": dict(versions)},
                "metadata": {
                    "invocationId": str(uuid.uuid4()),
                    "startedOn": _time(started),
                    "finishedOn": _time(finished),
                },
                "byproducts": list(_byproducts(reports)),
            },
        },
    }


def _models(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for role, found in sources(manifest).items():
        if "sha256" in found:
            told = {key: found[key] for key in ("revision", "license") if key in found}
            yield {
                "name": role,
                "uri": found["source"],
                "digest": {"sha256": found["sha256"]},
                "annotations": told,
            }


def _byproducts(reports: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(reports.iterdir()):
        digest = sha256(path.read_bytes()).hexdigest()
        yield {"name": f"{reports.name}/{path.name}", "digest": {"sha256": digest}}


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def write_provenance(folder: Path, statement: Mapping[str, Any]) -> None:
    """Write the statement into the folder of the reports."""
    text = json.dumps(statement, indent=1, allow_nan=False)
    (folder / PROVENANCE_FILE).write_text(f"{text}\n", encoding="utf-8")
