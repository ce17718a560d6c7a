"""What a machine can do at most, in words and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from speccompile.cli.tables import megabytes
from speccompile.runtime.bench.ceiling import Ceiling

__all__ = ["limit_document", "limit_facts"]


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


def limit_facts(ceiling: Ceiling) -> dict[str, str]:
    """The same in words, by what each is about."""
    limit = ceiling.limit
    words = f"{limit.bandwidth / 1e9:.1f} GB/s, {limit.threads} threads"
    if limit.uncertainty:
        words += f"; {100 * limit.uncertainty:.0f} % less in the other measurement"
    facts = {"memory": words}
    if limit.gemm and limit.balanced_rows:
        facts["GEMM"] = (
            f"{limit.gemm / 1e9:.0f} GFLOP/s; from {limit.balanced_rows:.0f} rows on, fp32 "
            "weights take longer to multiply than to read"
        )
    for role, reads in sorted(ceiling.reads.items(), key=lambda each: each[0] != "target"):
        facts[f"{role}'s step"] = (
            f"reads {megabytes(reads.weights)}, and {reads.row / 1e3:.1f} kB for each cached row"
        )
    return facts
