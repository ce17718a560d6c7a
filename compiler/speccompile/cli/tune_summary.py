"""What `speccompile tune` found, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from speccompile.cli.tables import plain_table
from speccompile.compiler.tune.fit import LEAST_AUC, MOST_ECE, Fit
from speccompile.compiler.tune.tune import Static, Surveyed, Tuning
from speccompile.runtime.trees.sequoia import Shape

__all__ = ["print_tuning"]


def print_tuning(console: Console, tuning: Tuning) -> None:
    """Costs, acceptance, static shapes, the predictor, and what follows."""
    measured = tuning.measurements
    shown = sorted({rows for costs in measured.cost_ms.values() for rows in costs})
    costs = plain_table("ms by rows", *(f">{rows}" for rows in shown))
    for role, by_rows in sorted(measured.cost_ms.items(), reverse=True):
        costs.add_row(role, *(f"{by_rows[rows]:.1f}" for rows in shown))
    console.print(costs)
    if found := tuning.surveyed:
        console.print(_acceptance(found))
        if found.rescues:
            rescues = ", ".join(f"{share:.2f}" for share in found.rescues)
            console.print(f"Where a guess fell, the ones after it stood: {rescues}")
        _print_static(console, found.static)
        if found.fit:
            _print_fit(console, found, found.fit)
        else:
            console.print(f"No predictor: only the draft `model` gets one, not {found.draft}")
    defaults = measured.defaults
    spent = (
        f"{defaults.draft} draft of {defaults.draft_length}" if defaults.draft_length else "none"
    )
    console.print(f"Default: {spent}. `speccompile tune --reset` restores what the build measured.")


def _acceptance(found: Surveyed) -> Table:
    tested = [(share, count) for share, count in zip(found.acceptance, found.tested, strict=True)]
    table = plain_table(
        f"{found.draft}, {found.prompts} prompts", *(f">{at + 1}" for at in range(len(tested)))
    )
    table.add_row("accepted", *(f"{share:.2f}" for share, _ in tested))
    table.add_row("tested", *(str(count) for _, count in tested))
    return table


def _print_static(console: Console, static: Static) -> None:
    for name, shape in (("chain", static.chain), ("tree", static.tree)):
        if not shape.parents:
            console.print(f"Best static {name}: none, plain decoding is faster here")
            continue
        console.print(
            f"Best static {name}: {_described(shape)}, {shape.tokens:.2f} tokens in "
            f"{shape.milliseconds:.1f} ms, {static.speedup(shape):.2f}x plain"
        )
    if any(parent != node for node, parent in enumerate(static.tree.parents)):
        console.print(f"  its parents: {_listed(static.tree.parents)}")


def _described(shape: Shape) -> str:
    depths = [0]
    for parent in shape.parents:
        depths.append(depths[parent] + 1)
    return f"{len(shape.parents)} nodes, {max(depths)} deep"


def _listed(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _print_fit(console: Console, found: Surveyed, fit: Fit) -> None:
    console.print(
        f"Predictor on held-out prompts: ECE {fit.ece:.1%} (at most {MOST_ECE:.0%}; a perfect one "
        f"shows {fit.chance_ece:.1%} on so few), AUC {fit.auc:.3f} (at least {LEAST_AUC:.2f}), "
        f"{fit.stood} tokens stood, {fit.fell} fell; {found.microseconds:.0f} microseconds a token"
    )
    if not fit.misses:
        console.print("Stored.", style="green")
    elif found.stored:
        console.print(f"Stored though {'; '.join(fit.misses)}: --force", style="yellow")
    else:
        console.print(
            f"Not stored: {'; '.join(fit.misses)}. Give more prompts, or --force", style="yellow"
        )
