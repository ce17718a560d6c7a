"""Who drafts in a benchmark, and how much."""

from __future__ import annotations

from dataclasses import dataclass

import click

from speccompile.runtime.draft_names import engine_name
from speccompile.runtime.runner import DRAFT_LENGTH, Runner

__all__ = ["Drafting", "drafters", "own_draft", "speculation"]


@dataclass(frozen=True)
class Drafting:
    """Who drafts, at most how much where there is a limit, and both in words."""

    kind: str
    length: int | None
    words: str


def speculation(runner: Runner, draft: str | None, length: int | None) -> Drafting:
    """What is compared with plain decoding, or an error where that would be nothing."""
    defaults = runner.measurements.defaults
    kind = draft or runner.usual_draft
    if kind == "none":
        if length:
            raise click.UsageError("--draft-length needs a draft: give --draft model or ngram")
        return Drafting(kind, 0, "no draft, so both are plain decoding")
    if kind == "model" and runner.placement:
        length = length or defaults.draft_length
        if not length:
            raise click.UsageError(
                "the artifact does not speculate by default: give --draft-length"
            )
        return Drafting(kind, length, f"{kind} draft, {length} proposed a round")
    limit = f", at most {length} a round" if length else ""
    return Drafting(kind, length, f"{kind} draft, adaptive controller{limit}")


def own_draft(runner: Runner, draft: str | None, length: int | None) -> Drafting:
    """The draft of all variants that name no other, and how much it proposes when that is fixed."""
    if runner.placement:
        raise click.UsageError("--variants compares what the sessions of a CPU do: add --on cpu")
    defaults = runner.measurements.defaults
    kind = draft or runner.usual_draft
    if kind == "none":
        if draft:
            raise click.UsageError("--variants needs a draft, not --draft none")
        kind = drafters(runner)[0]
    if length is None and engine_name(kind) == engine_name(defaults.draft):
        length = defaults.draft_length
    length = length or DRAFT_LENGTH
    return Drafting(kind, length, f"{kind} draft but where named otherwise; fixed is K={length}")


def drafters(runner: Runner) -> list[str]:
    """Those that the artifact can have."""
    return [kind for kind in runner.drafts if kind != "none"]
