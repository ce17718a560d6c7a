"""What a machine can do at most, in words and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from speccompile.runtime.bench.ceiling import Ceiling

__all__ = ["limit_document", "limit_in_words"]


def limit_document(ceiling: Ceiling | None) -> dict[str, Any]:
    """What the machine can do, and what a step of each engine reads; null where it is not known."""
    if ceiling is None:
        return {"limit": None, "step_bytes": None}
    limit = ceiling.limit
    return {
        "limit": {
            "threads": limit.threads,
            "bytes_per_second": limit.bandwidth,
            "measurements": limit.bandwidths,
            "uncertainty": limit.uncertainty,
            "flop_per_second": limit.gemm,
        },
        "step_bytes": {role: asdict(reads) for role, reads in ceiling.reads.items()},
    }


def limit_in_words(ceiling: Ceiling) -> str:
    """The measured limit, and what it is the limit of."""
    limit = ceiling.limit
    steps = ", ".join(
        f"the {role} {reads.weights / 1e6:.0f} MB and {reads.row / 1e3:.1f} kB a row of context"
        for role, reads in ceiling.reads.items()
    )
    words = (
        f"Ceiling: {limit.bandwidth / 1e9:.1f} GB/s from memory "
        f"(-{100 * limit.uncertainty:.0f} %), {limit.threads} threads; a step reads: {steps}."
    )
    if limit.gemm and limit.balanced_rows:
        words += (
            f" {limit.gemm / 1e9:.0f} GFLOP/s: from {limit.balanced_rows:.0f} rows on, fp32 "
            "weights take longer to multiply than to read."
        )
    return words
