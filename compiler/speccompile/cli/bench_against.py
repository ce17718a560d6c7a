"""A benchmark compared with an earlier one: ratios with ratios, never seconds with seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape

from speccompile.cli.bench_conditions import Conditions
from speccompile.cli.options import read_text
from speccompile.cli.tables import plain_table
from speccompile.runtime.bench.pairs import MODES
from speccompile.runtime.bench.regression import Change, Figure, change
from speccompile.runtime.errors import SpeccompileError

__all__ = ["Earlier", "against_options", "compare", "read_earlier"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

# What has to be the same for ratios to mean the same.
_SAME = ("on", "draft", "draft_length", "max_new_tokens", "raw", "threads")
_SAME_HOST = ("cpu", "cores")


@dataclass(frozen=True)
class Earlier:
    """What `speccompile bench --json` wrote."""

    path: Path
    document: Mapping[str, Any]

    def check(self, conditions: Conditions, texts: Sequence[str]) -> None:
        """Raises SpeccompileError where ratios of then and of a benchmark to come would differ for
        other reasons than the artifact or the runtime."""
        then, now = self.document["conditions"], asdict(conditions)
        for names, old, new in (
            (_SAME, then, now),
            (_SAME_HOST, then["host"], now["host"]),
        ):
            for name in names:
                if old[name] != new[name]:
                    raise SpeccompileError(
                        f"{self.path}: was measured with {name} {old[name]}, this would be with "
                        f"{new[name]}; give the same options on the same machine, or measure anew"
                    )
        if not {prompt["prompt"] for prompt in self.document["prompts"]} & set(texts):
            raise SpeccompileError(f"{self.path}: has none of these prompts; give it the same")

    def changes(self, document: Mapping[str, Any], least: float) -> list[Change]:
        """Of every figure that both have, on the prompts that both have."""
        before = {figure.name: figure for figure in _figures(self.document)}
        pairs = [(before[now.name], now) for now in _figures(document) if now.name in before]
        return [found for pair in pairs if (found := change(*pair, least))]


def against_options(command: _Command) -> _Command:
    """--against, an earlier result, and --tolerance, in percent."""
    command = click.option(
        "--tolerance",
        type=click.FloatRange(min=0),
        default=2.0,
        show_default=True,
        metavar="PERCENT",
        help="With --against, let figures be so much worse; more where their spread is larger.",
    )(command)
    return click.option(
        "--against",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Fail where ratios are worse than in FILE, which --json wrote.",
    )(command)


def read_earlier(path: Path) -> Earlier:
    """Raises SpeccompileError for a file that is no such result."""
    try:
        document = json.loads(read_text(path))
        earlier = Earlier(path, document)
        list(_figures(document))
        _ = [document["conditions"][name] for name in (*_SAME, "date")]
        _ = [document["conditions"]["host"][name] for name in _SAME_HOST]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpeccompileError(
            f"{path}: is no result to compare with; write one with `speccompile bench ARTIFACT "
            "--json FILE`, without --variants"
        ) from error
    return earlier


def compare(
    earlier: Earlier, document: Mapping[str, Any], least: float, console: Console | None
) -> None:
    """Say how figures changed, on a `console` all of them, on standard error those that are worse
    by more than chance and the share `least`; raises SpeccompileError for these."""
    changes = earlier.changes(document, least)
    if console:
        _print_changes(console, earlier, changes)
    regressions = [found for found in changes if found.regressed]
    for found in regressions:
        click.echo(f"regression: {_in_words(found)}", err=True)
    if regressions:
        raise SpeccompileError(
            f"{earlier.path}: {len(regressions)} of {len(changes)} figures were better then; "
            "measure again on an idle machine, then look for the cause"
        )


def _in_words(found: Change) -> str:
    before, now = _value(found, found.before), _value(found, found.now)
    return (
        f"{found.name}: {before} before, {now} now, {_signed(found)} a prompt; "
        f"chance explains {100 * found.tolerance:.1f} {_unit(found)}"
    )


def _print_changes(console: Console, earlier: Earlier, changes: Sequence[Change]) -> None:
    then = earlier.document["conditions"]["date"]
    console.print(f"\n[b]Against {escape(str(earlier.path))}[/b], {escape(str(then))}")
    table = plain_table("", ">before", ">now", ">better by", ">chance")
    for found in changes:
        values = _value(found, found.before), _value(found, found.now), _signed(found)
        style = "bold red" if found.regressed else ""
        chance = f"{100 * found.tolerance:.1f} {_unit(found)}"
        table.add_row(found.name, *values, chance, style=style)
    console.print(table)


def _figures(document: Mapping[str, Any]) -> Iterator[Figure]:
    prompts, limit = document["prompts"], document["limit"]
    yield Figure("speed-up", _by_prompt(prompts, "speedup"))
    for mode in MODES:
        yield Figure(
            f"share of the ceiling, {mode}",
            _by_prompt(prompts, "share_of_ceiling", mode),
            uncertainty=float(limit["uncertainty"]) if limit else 0.0,
        )
    for mode in MODES:
        yield Figure(
            f"time without an engine, {mode}",
            _by_prompt(prompts, "overhead_percent", mode),
            percent=True,
        )


def _by_prompt(prompts: Sequence[Mapping[str, Any]], *path: str) -> dict[str, float]:
    """What is at a path in the object of each prompt, those left out that have nothing there."""
    values: dict[str, Any] = {prompt["prompt"]: reduce(getitem, path, prompt) for prompt in prompts}
    return {text: float(value) for text, value in values.items() if value is not None}


def _value(found: Change, value: float) -> str:
    if found.percent:
        return f"{value:.1f} %"
    return f"{value:.2f}x" if found.name == "speed-up" else f"{100 * value:.1f} %"


def _signed(found: Change) -> str:
    return f"{100 * found.better:+.1f} {_unit(found)}"


def _unit(found: Change) -> str:
    return "points" if found.percent else "%"
