"""What a search over the shapes of drafts found: tables for a terminal, and all figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from speccompile.cli.tables import plain_table
from speccompile.compiler.drafts.acceptance import DEPTH
from speccompile.compiler.drafts.shape_search import Rung, Searched, Trial
from speccompile.compiler.drafts.shapes import Shape

__all__ = ["print_rung", "print_searched", "search_document"]


def print_rung(console: Console, rung: Rung) -> None:
    """The trials of one budget, the fastest first; nothing where there is none."""
    if not rung.trials:
        return
    rest = f"; {rung.kept} go on" if rung.kept else ""
    shapes = f"{len(rung.trials)} shape" + "s" * (len(rung.trials) != 1)
    console.print(f"[b]Learned from {rung.tokens:,} tokens: {shapes}{rest}[/b]")
    console.print(_table(rung), "", sep="\n")


def print_searched(console: Console, searched: Searched) -> None:
    """The best shape, and the lines of a recipe that ask for it."""
    best = searched.best
    if best is None:
        console.print("Not all is tried yet: the same command goes on.", style="yellow")
        return
    predicted = best.prediction
    rate = f", {predicted.tokens_per_second:.1f} tokens/s" if searched.pace.measured else ""
    known = searched.pace.cheaper != 1.0
    how = "in proportion to a measured one" if known else "by the weights it reads"
    own = ", the recipe's own shape" if best.shape == searched.own else ""
    console.print(
        f"Fastest{own}: {predicted.speedup:.2f}x plain decoding at {predicted.length} tokens "
        f"drafted{rate}, as it is predicted after {searched.rungs[-1].tokens:,} tokens. A step "
        f"costs {predicted.cost:.2f} of the target's ({how}), so that no acceptance makes it "
        f"faster than {predicted.bound:.1f}x."
    )
    if predicted.speedup <= 1.0:
        console.print("That does not pay yet: let it learn from more --tokens.", style="yellow")
    console.print("For the recipe:", "", _distil(best.shape), sep="\n", markup=False)


def search_document(conditions: Mapping[str, Any], searched: Searched) -> dict[str, Any]:
    """All figures, as JSON; costs are in milliseconds where they were measured."""
    return {
        "conditions": dict(conditions),
        "target": asdict(searched.target),
        "pace": asdict(searched.pace),
        "own": asdict(searched.own),
        "rungs": [
            {
                "tokens": rung.tokens,
                "kept": rung.kept,
                "done": rung.done,
                "trials": [_trial(trial) for trial in rung.trials],
            }
            for rung in searched.rungs
        ],
        "best": _trial(searched.best) if searched.best else None,
    }


def _table(rung: Rung) -> Table:
    positions = (f">{at + 1}" for at in range(DEPTH))
    rates = any(trial.prediction.tokens_per_second for trial in rung.trials)
    headings = ("layers", ">head", ">cost", *positions, ">a round", ">K", ">speed-up")
    table = plain_table(*headings, *((">tokens/s",) if rates else ()))
    for trial in rung.trials:
        found, predicted = trial.acceptance, trial.prediction
        cells = [
            " ".join(map(str, trial.shape.layers)),
            f"{trial.shape.vocabulary:,}" if trial.shape.vocabulary else "all",
            f"{predicted.cost:.3f}",
            *(f"{share:.2f}" for share in found.positions),
            f"{found.tokens_a_round:.2f}",
            str(predicted.length),
            f"{predicted.speedup:.2f}x",
        ]
        table.add_row(*cells, *((f"{predicted.tokens_per_second:.1f}",) if rates else ()))
    return table


def _trial(trial: Trial) -> dict[str, Any]:
    return {**asdict(trial), "bound": trial.prediction.bound}


def _distil(shape: Shape) -> str:
    return f"[distil]\nlayers = {list(shape.layers)}\nvocabulary = {shape.vocabulary}"
