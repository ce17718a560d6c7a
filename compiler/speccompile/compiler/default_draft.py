"""Which draft of an artifact proposes by default, and how much: the one predicted to be fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speccompile.runtime.costmodel import Costs, best_draft_length, predicted_speedup
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.measurements import Defaults

__all__ = ["LONGEST_DRAFT", "default_draft", "takes_turns"]

LONGEST_DRAFT = 8
"""Tokens of a round, as far as a build tests and chooses."""


def takes_turns(manifest: Manifest) -> bool:
    """Whether the text shares the work of an artifact's model by default: of the only one, and of
    one whose prompt the answer continues."""
    return manifest.drafts == ("draft",) and manifest.model.start_token_id is None


def default_draft(
    manifest: Manifest,
    costs: Mapping[str, Costs],
    acceptance: Mapping[str, Sequence[float]],
    lengths: Mapping[str, int | None],
    *,
    tuned: bool = False,
) -> Defaults:
    """Of the drafts of `manifest`, by the names of their engines, of which there must be one.

    `lengths` are those that the recipe fixes; where it has None, the best by `costs` and
    `acceptance` is taken. Of equally fast ones the first drafts. Where a single model does, it
    takes turns with the text, whose guesses are free, unless a predictor is `tuned` to it alone.
    """
    found: dict[str, tuple[float, int]] = {}
    for name in manifest.drafts:
        measured = (acceptance[name], costs[name], costs["target"])
        shares = manifest.engines[name].shares_cache
        length = lengths[name]
        if length is None:
            length = best_draft_length(*measured, LONGEST_DRAFT, shares_cache=shares)
        found[name] = predicted_speedup(length, *measured, shares_cache=shares), length
    best = max(found, key=lambda name: found[name][0])
    length = found[best][1]
    # A draft that does not pay is kept in the artifact, but not used unless asked for.
    if not length:
        return Defaults("none", 0)
    if best != "draft":
        return Defaults(best, length)
    return Defaults("hedge" if takes_turns(manifest) and not tuned else "model", length)
