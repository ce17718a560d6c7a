"""`speccompile cache`: what builds keep on disk, and getting rid of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from speccompile.compiler.cache import Entry, StageCache, cache_limit, default_cache

__all__ = ["command"]

_UNITS = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

_cache_option = click.option(
    "--cache",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the cache; default: $SPECCOMPILE_CACHE, else ~/.cache/speccompile.",
)


def _age(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Seconds."""
    form = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", value, re.ASCII)
    if form is None:
        raise click.BadParameter(f"{value!r} should be a time such as 90m, 12h, 7d or 2w")
    return float(form[1]) * _UNITS[form[2]]


@click.group("cache")
def command() -> None:
    """Show or clear what builds keep: downloads, and the results of finished stages.

    After a build, the results used longest ago go until the rest fits into
    $SPECCOMPILE_CACHE_LIMIT, by default 20GB.
    """


@command.command("show")
@_cache_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def show(root: Path | None, as_json: bool) -> None:
    """List what the cache holds, and how much of its limit that takes."""
    cache = StageCache(root or default_cache(), cache_limit())
    results, downloads = cache.results(), cache.downloads()
    if as_json:
        document = {
            "path": str(cache.root),
            "limit_bytes": cache.limit,
            "stages_bytes": _total(results),
            "downloads_bytes": _total(downloads),
            "stages": [_document(entry, "stage", entry.stage) for entry in results],
            "downloads": [_document(entry, "name", _title(entry)) for entry in downloads],
        }
        click.echo(json.dumps(document, indent=1))
        return
    console = Console(highlight=False, markup=False)
    for table in (
        _table("stage", "last used", [(entry.stage, entry) for entry in results]),
        _table("download", "fetched", [(_title(entry), entry) for entry in downloads]),
    ):
        if table.row_count:
            console.print(table)
            console.print()
    console.print(
        f"{_size(_total(results))} of {_size(cache.limit)} in stages, "
        f"{_size(_total(downloads))} in downloads, in {cache.root}",
        soft_wrap=True,
    )


@command.command("clear")
@_cache_option
@click.option("--stages", "stages_only", is_flag=True, help="Only the results of stages.")
@click.option("--downloads", "downloads_only", is_flag=True, help="Only what was fetched.")
@click.option(
    "--older-than",
    callback=_age,
    default="0m",
    help="Only results not used, and downloads fetched, longer ago: 90m, 12h, 7d, 2w.",
)
def clear(root: Path | None, stages_only: bool, downloads_only: bool, older_than: float) -> None:
    """Remove what the cache holds, but what a running build uses."""
    cache = StageCache(root or default_cache(), cache_limit())
    before = time.time() - older_than
    both = stages_only == downloads_only
    if both or stages_only:
        stages = cache.remove_results(before)
        kept = sum(entry.used < before for entry in cache.results())
        in_use = f"; {_count(kept, 'result')} kept, in use or not ours" if kept else ""
        click.echo(f"freed {_size(_total(stages))}: {_count(len(stages), 'result')}{in_use}")
    if both or downloads_only:
        downloads = cache.remove_downloads(before)
        click.echo(f"freed {_size(_total(downloads))}: {_count(len(downloads), 'download')}")


def _document(entry: Entry, kind: str, title: str) -> dict[str, object]:
    used = datetime.fromtimestamp(entry.used).astimezone().isoformat(timespec="seconds")
    return {kind: title, "path": str(entry.path), "bytes": entry.size, "last_used": used}


def _table(heading: str, when: str, rows: Sequence[tuple[str, Entry]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(heading, overflow="fold")
    table.add_column("size", justify="right")
    table.add_column(when)
    for title, entry in rows:
        table.add_row(
            title, _size(entry.size), f"{datetime.fromtimestamp(entry.used):%Y-%m-%d %H:%M}"
        )
    return table


def _title(download: Entry) -> str:
    """The name of the file, which lies in a folder named after its hash."""
    names = (path.name for path in download.path.iterdir() if path.is_file())
    return next(names, download.path.name)


def _total(entries: Sequence[Entry]) -> int:
    return sum(entry.size for entry in entries)


def _size(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
