"""What was measured, where and how: the head of every output of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from speccompile.runtime.host import Host
from speccompile.runtime.placement import CPU

__all__ = ["Conditions", "print_conditions"]


@dataclass(frozen=True)
class Conditions:
    """What was measured, where and how.

    `engines` describes the engine of each role, `on` is "cpu" or the folder of plans that ran. How
    much was drafted is said in words by `speculation`; `draft_length` is the limit of a proposal,
    if there was one. So many `prompts` were to be measured, each in so many `rounds`.
    """

    name: str
    identity: str
    on: str
    engines: Mapping[str, str]
    draft: str
    draft_length: int | None
    speculation: str
    prompts: int
    max_new_tokens: int
    rounds: int
    threads: int
    host: Host
    date: str
    command: str
    raw: bool = False

    def count(self, measured: int) -> str:
        """How many prompts were measured, in words."""
        if measured == self.prompts:
            return f"{measured} prompts"
        return f"{measured} of {self.prompts} prompts in the time given"


def print_conditions(console: Console, conditions: Conditions, measured: int) -> None:
    """What was measured, where, and on how many prompts."""
    console.print(f"[b]{escape(conditions.name)}[/b]  sha256:{conditions.identity[:12]}")
    cpu = escape(conditions.host.cpu)
    console.print(f"{cpu}, {conditions.host.cores} cores; {conditions.count(measured)}, greedy")
    if conditions.on != CPU:
        console.print(f"on {escape(conditions.on)}: {escape(conditions.engines['target'])}")
    console.print(f"speculative: {conditions.speculation}\n")
