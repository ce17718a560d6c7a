"""`speccompile build`: compile a recipe, showing what is being done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from speccompile.compiler.build import Built, build, default_cache
from speccompile.compiler.execute import Observer, StageResult
from speccompile.compiler.recipe import load_recipe

__all__ = ["command"]


@click.command("build")
@click.argument("recipe")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the artifact; default: artifacts/NAME.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Downloads and finished stages; default: $SPECCOMPILE_CACHE, else ~/.cache/speccompile.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, help="Print the build report as JSON.")
def command(
    recipe: str, output: Path | None, cache: Path | None, quiet: bool, as_json: bool
) -> None:
    """Compile RECIPE, a file or a name of the catalogue, into an artifact.

    A build that was interrupted goes on where it stopped; an existing artifact is replaced only
    when the new one is whole and has been shown lossless.
    """
    loaded = load_recipe(recipe)
    destination = output or Path("artifacts") / loaded.name
    console = Console(stderr=True, quiet=quiet or as_json, highlight=False)
    with console.status("") as status:
        observer = _Progress(console, status.update)
        built = build(loaded, destination, cache=cache or default_cache(), observer=observer)
    if as_json:
        click.echo(json.dumps({"path": str(built.path), **built.report}, indent=1, sort_keys=True))
    elif not quiet:
        _summarize(console, built)


class _Progress(Observer):
    """A spinner with the running stage, and a line for each finished one."""

    def __init__(self, console: Console, update: Callable[[str], None]) -> None:
        self._console = console
        self._update = update
        self._stage = ""

    def started(self, stage: str, position: int, total: int) -> None:
        self._stage = stage if total == 1 else f"[{position}/{total}] {stage}"
        self._update(self._stage)

    def reported(self, text: str) -> None:
        self._update(f"{self._stage}: {text}")

    def finished(self, result: StageResult) -> None:
        took = "cached" if result.cached else f"{result.seconds:.1f} s"
        self._console.print(f"  {result.name:32} {took:>8}")


def _summarize(console: Console, built: Built) -> None:
    manifest, report = built.manifest, built.report
    table = Table(title=f"{manifest.name}: milliseconds a step, by rows", title_justify="left")
    for heading in ("role", "engine", "1", "2", "4", "8", "exact from", "chosen"):
        table.add_column(heading, justify="right" if heading.isdigit() else "left")
    for entry in report["candidates"]:
        costs = [f"{entry['cost_ms'][rows]:.1f}" for rows in ("1", "2", "4", "8")]
        exact = f"{entry['min_rows']} rows" if entry["min_rows"] else "never"
        exact = exact if entry["role"] == "target" else ""
        chosen = "yes" if entry["chosen"] else ""
        table.add_row(entry["role"], entry["backend"], *costs, exact, chosen)
    console.print(table)
    validation = report["validation"]
    console.print(
        f"lossless on {validation['compared_tokens']} tokens; "
        f"acceptance {', '.join(f'{rate:.2f}' for rate in manifest.acceptance[:5])}; "
        f"draft length {manifest.defaults.draft_length}, "
        f"predicted {report['predicted_speedup'].get(str(manifest.defaults.draft_length), 1):.2f}x"
    )
    size = sum(entry.size for entry in manifest.files.values())
    console.print(
        f"{built.path}: {size / 1e6:.0f} MB in {report['seconds']:.0f} s, "
        f"at most {report['peak_memory_bytes'] / 1e9:.1f} GB of memory"
    )
    console.print(f"identity sha256:{manifest.identity}")
