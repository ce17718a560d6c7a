"""A build report as `build.json` has it, of figures that are easy to find again."""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["build_report"]


def build_report() -> dict[str, Any]:
    """One of a pair on two engines, with everything that a report may hold; the caller's own."""
    return copy.deepcopy(_REPORT)


def _candidate(role: str, backend: str, *, chosen: bool, base: float) -> dict[str, Any]:
    of_draft = 0.75 if role == "draft" else None
    return {
        "role": role,
        "backend": backend,
        "chosen": chosen,
        "precision": "fp16" if role == "target" else "int8",
        "arithmetic": "fp32",
        "bytes": 269_000_000,
        "min_rows": 2,
        "cost_ms": {str(rows): base + rows for rows in (*range(1, 10), 16)},
        "accuracy": {"relative_error": 1e-6, "kl_divergence": 0.0, "top1_agreement": 1.0},
        "quality": {
            "positions": 2048,
            "perplexity": 12.36,
            "reference_perplexity": 12.0,
            "perplexity_increase": 0.03,
            "kl_divergence": 0.0021,
            "top1_agreement": 0.985,
            "acceptance": of_draft,
            "reference_acceptance": of_draft,
            "sampled_acceptance": of_draft,
            "reference_sampled_acceptance": of_draft,
        },
    }


def _graph(role: str) -> dict[str, Any]:
    return {
        "role": role,
        "backend": "openvino",
        "contract": {"nodes": 87, "bytes": 270_000_000},
        "lowered": {"nodes": 48, "bytes": 269_000_000},
        "passes": [{"name": "fuse_projections", "rewrites": 4}],
    }


def _plan(role: str, capacity: int, accuracy: dict[str, float] | None) -> dict[str, Any]:
    batch = [1, 1, 2]
    return {
        "role": role,
        "folder": "tensorrt-rtx-sm89",
        "architecture": "sm89",
        "capacity": capacity,
        "library": "tensorrt_rtx",
        "version": "1.7.<1>",
        "bytes": 298_000_000,
        "seconds": 26.04,
        "layers": {"PLUGIN_V3": 2, "KV_CACHE_UPDATE": 60},
        "int8_weight_bytes": 134_000_000 if role == "draft" else 0,
        "profiles": [
            {"batch": batch, "rows": [1, 6, 16]},
            {"batch": batch, "rows": [16, 128, 128]},
        ],
        "plugin_calls": {"SpecVerify.create_plugin": 4},
        "accuracy": accuracy,
        "state": "not run: no GPU here",
    }


_REPORT: dict[str, Any] = {
    "schema": 1,
    "name": "tiny [b]<b>bold</b>",
    "identity": "ab" * 32,
    "finished": "2026-01-02T03:04:05+00:00",
    "seconds": 131.4,
    "peak_memory_bytes": 2_700_000_000,
    "host": {
        "cpu": "A <fast> CPU",
        "cores": 2,
        "architecture": "x86_64",
        "memory_bytes": 25 * 10**9,
        "packages": {"numpy": "2.0"},
    },
    "versions": {"python": "3.11.7", "onnx-ir": "1.1.0"},
    "recipe": {
        "name": "tiny",
        "description": "<script>alert(1)</script>",
        "target": {"source": "./model", "sha256": None, "layers": [["*", "int8"]]},
        "draft": None,
    },
    "stages": [
        {"name": "load target", "seconds": 1.5, "peak_memory_bytes": 247_000_000, "cached": True},
        {"name": "validate", "seconds": 21.25, "peak_memory_bytes": 812_000_000, "cached": False},
    ],
    "warnings": ["line 2 of the [chat] template is '<a>' to the target; the target's is used"],
    "models": {
        "target": {
            "source": "./<model>",
            "revision": "0123abcd",
            "sha256": "cd" * 32,
            "license": None,
            "layers": 30,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "heads": 9,
            "kv_heads": 3,
            "head_dim": 64,
            "context_length": 8192,
            "tied_embeddings": True,
            "parameters": 134_515_008,
            "vocabulary": {"rows": 49_152, "used": 49_144, "padding": 8},
        }
    },
    "fp16_overflows": {"target": {f"/model/<{index}>/MatMul": 7e4 + index for index in range(14)}},
    "weights": {
        "target": {
            "bytes": {"fp16": 269_000_000, "fp32": 1_000_000},
            "kept_fp32": {"model.norm.<weight>": 71_234.0},
            "outlier_columns": 0,
        },
        "draft": {"bytes": {"int8": 135_000_000}, "kept_fp32": {}, "outlier_columns": 17},
    },
    "graphs": [_graph("target"), _graph("draft")],
    "candidates": [
        _candidate("target", "openvino", chosen=True, base=30.0),
        _candidate("target", "onnxruntime", chosen=False, base=31.0),
        _candidate("draft", "openvino", chosen=False, base=6.0),
        _candidate("draft", "onnxruntime", chosen=True, base=6.0),
    ],
    "plans": [
        _plan(
            "target",
            2080,
            {"relative_error": 0.00123, "kl_divergence": 2e-7, "top1_agreement": 1.0},
        ),
        _plan("target", 1056, None),
    ],
    "validation": {
        "cost_ms": {"target": {"1": 31.0, "2": 32.0}, "draft": {"1": 7.0, "2": 8.0}},
        "lossless": True,
        "differing_prompts": {},
        "compared_tokens": 512,
        "acceptance": [0.97, 0.9],
        "tested_proposals": [210, 205],
    },
    "defaults": {"draft": "model", "draft_length": 2},
    "experts": {},
    "verdict": {
        "worth": True,
        "sentence": "worth speculating: <because>",
        "acceptance": [0.97, 0.9],
        "cost_ratio": 0.42,
        "predicted_speedup": {"0": 1.0, "1": 1.52, "2": 1.82},
        "best_length": 2,
    },
}
