"""How facts look in a terminal: names beside values, and tables without lines."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table

__all__ = ["facts_table", "megabytes", "plain_table", "printable"]


def facts_table(*groups: Mapping[str, RenderableType]) -> Table:
    """Names beside values, with an empty line between groups."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for group in groups:
        if table.row_count:
            table.add_row()
        for name, value in group.items():
            table.add_row(name, value)
    return table


def plain_table(*headings: str) -> Table:
    """A plain table; ``>`` before a heading aligns its column to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(
            heading.removeprefix(">"),
            justify="right" if heading.startswith(">") else "left",
            overflow="fold",
        )
    return table


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size} B"


def printable(value: object) -> str:
    """Provenance and the names of added files may hold anything, even commands to a terminal."""
    text = str(value)
    return text if text.isprintable() else repr(text)
