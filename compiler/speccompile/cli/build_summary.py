"""What `speccompile build` says at its end: every candidate, the verdict, and the artifact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from speccompile.compiler.assemble import REPORTS_FOLDER
from speccompile.compiler.build import Built
from speccompile.compiler.report.files import REPORT_PAGE

__all__ = ["print_summary"]

_ROWS = ("1", "2", "4", "8")
_INFINITE = "\u221e"  # of a draft that leaves tokens out; null in the report
_SPACIOUS = 84  # columns, from which on the table need not be tight


def print_summary(console: Console, built: Built) -> None:
    """Print the report of a finished build; its tables fit 80 columns."""
    manifest, report = built.manifest, built.report
    what = "ms a step by rows, change against full precision, * is chosen"
    console.print(f"\n[b]{escape(manifest.name)}[/]: {what}")
    console.print(_candidates(report, spacious=console.width >= _SPACIOUS))
    for warning in report["warnings"]:
        console.print(f"warning: {escape(warning)}")
    for role, stored in report["weights"].items():
        if kept := len(stored["kept_fp32"]):
            what = "values beyond the range of their precision"
            console.print(
                f"{role}: {kept} {'tensor' if kept == 1 else 'tensors'} kept in fp32: {what}"
            )
    for line in _plans(report["plans"]):
        console.print(escape(line))
    validation = report["validation"]
    console.print(f"lossless on {validation['compared_tokens']} tokens")
    console.print(escape(report["verdict"]["sentence"]))
    for name, verdict in report["experts"].items():
        console.print(f"{name}: {escape(verdict['sentence'])}")
    files = {**manifest.files, **built.measurements.files}
    size = sum(entry.size for entry in files.values())
    console.print(
        f"{escape(str(built.path))}: {size / 1e6:.0f} MB in {report['seconds']:.0f} s, "
        f"at most {report['peak_memory_bytes'] / 1e9:.1f} GB of memory"
    )
    page = f"{REPORTS_FOLDER}/{REPORT_PAGE}"
    if page in files:
        console.print(f"report {escape(str(built.path / page))}")
    else:
        install = escape("pip install 'speccompile[report]'")
        console.print(f"{page} was left out: matplotlib, which draws it, is missing; {install}")
    console.print(f"identity sha256:{manifest.identity}")


def _candidates(report: Mapping[str, Any], *, spacious: bool) -> Table:
    padding = (0, int(spacious), 0, 0)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding)
    for heading in ("role", "engine"):
        table.add_column(heading, no_wrap=True)
    for heading in (*_ROWS, "exact", "MB", "KL", "top-1", "ppl"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in report["candidates"]:
        quality = entry["quality"]
        table.add_row(
            entry["role"],
            entry["backend"] + (" *" if entry["chosen"] else ""),
            *(_short(entry["cost_ms"][rows]) for rows in _ROWS),
            _exact(entry),
            _short(entry["bytes"] / 1e6),
            _divergence(quality["kl_divergence"]),
            f"{quality['top1_agreement']:.1%}",
            _increase(quality["perplexity_increase"]),
            style="bold" if entry["chosen"] else "",
        )
    return table


def _divergence(nats: float | None) -> str:
    if nats is None:
        return _INFINITE
    return f"{max(nats, 0.0):.2g}"  # of equal models it is below by rounding


def _increase(share: float | None) -> str:
    return _INFINITE if share is None else f"{round(share, 4) + 0.0:+.2%}"


def _plans(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each folder of plans."""
    for _, entries in groupby(plans, key=lambda entry: str(entry["folder"])):
        folder = list(entries)
        first, rehearsed = folder[0], [entry for entry in folder if entry["accuracy"]]
        sizes = [
            f"{entry['role']} {_short(entry['bytes'] / 1e6)} MB"
            + ("" if entry["accuracy"] else f" ({entry['capacity']} slots)")
            for entry in folder
        ]
        errors = [
            f"{entry['accuracy']['relative_error']:.2g} ({entry['role']})" for entry in rehearsed
        ]
        yield (
            f"{first['architecture']}: {first['library']} {first['version']}, {', '.join(sizes)}; "
            f"rehearsed on the CPU: relative error {', '.join(errors)}; {first['state']}"
        )


def _short(value: float) -> str:
    """In five characters up to 99,999."""
    return f"{value:.2f}" if value < 10 else f"{value:.{int(value < 1000)}f}"


def _exact(entry: Mapping[str, Any]) -> str:
    """From how many rows on a target's rows are exact; a draft's need not be."""
    if entry["role"] != "target":
        return ""
    return f"from {entry['min_rows']}" if entry["min_rows"] else "never"
