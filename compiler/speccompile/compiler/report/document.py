"""``reports/build.json``: all that a build did, measured and concluded. `docs/artifact.md` has its
fields."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx_ir as ir

from speccompile.compiler.assemble import Candidate
from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.execute import StageResult
from speccompile.compiler.quantize import read_stored
from speccompile.compiler.recipe import Recipe
from speccompile.compiler.report.plans import describe_plans
from speccompile.compiler.report.verdict import judge
from speccompile.compiler.stage import LIBRARIES
from speccompile.compiler.stages.check import Checked, read_warnings
from speccompile.compiler.stages.export import CONTRACT_FILE
from speccompile.compiler.stages.lower import GRAPH_FILE, GRAPH_WEIGHTS_FILE, read_rewrites
from speccompile.compiler.stages.reference import read_overflows
from speccompile.compiler.usage import peak_memory_bytes
from speccompile.compiler.weights import WEIGHTS_FILE
from speccompile.runtime.host import describe
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.measurements import Measurements

__all__ = ["REPORT_SCHEMA", "document"]

REPORT_SCHEMA = 1

Results = Mapping[str, StageResult]


def document(
    recipe: Recipe,
    results: Results,
    manifest: Manifest,
    measurements: Measurements,
    *,
    measured: Mapping[str, list[Candidate]],
    chosen: Mapping[str, Candidate],
    validation: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """The report as JSON: of the `measured` candidates those `chosen` are in the artifact."""
    # A draft that is the target itself was not loaded.
    loaded = {name: table for name, table in recipe.written().items() if f"load {name}" in results}
    peaks = (result.usage.peak_memory_bytes for result in results.values())
    return {
        "schema": REPORT_SCHEMA,
        "name": manifest.name,
        "identity": manifest.identity,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
        "peak_memory_bytes": max(peak_memory_bytes(), *peaks),
        "host": asdict(describe()),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("speccompile", *LIBRARIES)},
        },
        "recipe": json.loads(recipe.canonical()),
        "stages": [_stage(result) for result in results.values()],
        "warnings": read_warnings(results["check"].folder),
        "models": {name: _model(name, results, table) for name, table in loaded.items()},
        "fp16_overflows": {
            name: read_overflows(results[f"reference {name}"].folder) for name in loaded
        },
        "weights": {role: _weights(results[f"quantize {role}"].folder) for role in measured},
        "graphs": [
            _graph(role, candidate, results)
            for role, among in measured.items()
            for candidate in among
        ],
        "candidates": [
            _candidate(role, candidate, chosen=candidate is chosen[role])
            for role, among in measured.items()
            for candidate in among
        ],
        "plans": describe_plans(recipe, results, manifest),
        "validation": dict(validation),
        "defaults": asdict(measurements.defaults),
        "verdict": asdict(judge(manifest, measurements)),
        "experts": {name: asdict(judge(manifest, measurements, name)) for name in manifest.experts},
    }


def _stage(result: StageResult) -> dict[str, object]:
    return {"name": result.name, "cached": result.cached, **asdict(result.usage)}


def _model(name: str, results: Results, table: Mapping[str, Any]) -> dict[str, object]:
    model = Checked(results[f"load {name}"].folder, results["check"].folder)
    loaded, found = model.loaded.config, model.loaded.provenance
    dimensions = ("layers", "hidden_size", "intermediate_size", "heads", "kv_heads", "head_dim")
    return {
        "source": table["source"],
        "revision": found["revision"],
        "sha256": found["sha256"],
        "license": table["license"] or found["license"],
        **{key: getattr(loaded, key) for key in (*dimensions, "context_length")},
        "tied_embeddings": loaded.tied_embeddings,
        "parameters": sum(math.prod(shape) for shape in tensor_shapes(loaded).values()),
        "vocabulary": {
            "rows": loaded.vocab_size,
            "used": model.config.vocab_size,
            "padding": loaded.vocab_size - model.config.vocab_size,
        },
    }


def _weights(folder: Path) -> dict[str, object]:
    by_precision: dict[str, int] = {}
    stored = read_stored(folder)
    for tensor in stored.values():
        by_precision[tensor.precision] = by_precision.get(tensor.precision, 0) + tensor.bytes
    return {
        "bytes": by_precision,
        "kept_fp32": {
            name: tensor.kept_peak
            for name, tensor in stored.items()
            if tensor.kept_peak is not None
        },
        "outlier_columns": sum(tensor.outliers for tensor in stored.values()),
    }


def _graph(role: str, candidate: Candidate, results: Results) -> dict[str, object]:
    contract = results[f"export {role}"].folder / CONTRACT_FILE
    weights = results[f"quantize {role}"].folder / WEIGHTS_FILE
    lowered = candidate.folder / GRAPH_FILE
    return {
        "role": role,
        "backend": candidate.engine.backend,
        "contract": _size(contract, weights),
        "lowered": _size(lowered, candidate.folder / GRAPH_WEIGHTS_FILE),
        "passes": [
            {"name": name, "rewrites": count}
            for name, count in read_rewrites(candidate.folder).items()
        ],
    }


def _size(graph: Path, weights: Path) -> dict[str, int]:
    size = graph.stat().st_size + weights.stat().st_size
    return {"nodes": len(ir.load(graph).graph), "bytes": size}


def _candidate(role: str, candidate: Candidate, *, chosen: bool) -> dict[str, object]:
    engine, quality = candidate.engine, candidate.quality
    return {
        "role": role,
        "backend": engine.backend,
        "chosen": chosen,
        "precision": engine.precision,
        "arithmetic": engine.arithmetic,
        "bytes": candidate.bytes,
        "min_rows": engine.min_rows,
        "cost_ms": {str(rows): ms for rows, ms in candidate.cost_ms.items()},
        "accuracy": dict(candidate.accuracy),
        "quality": {
            name: None if value == math.inf else value
            for name, value in (
                *asdict(quality).items(),
                ("perplexity_increase", quality.perplexity_increase),
            )
        },
    }
