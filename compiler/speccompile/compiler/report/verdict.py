"""Is the pair worth speculating with? What was measured says so, in figures and in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speccompile.compiler.default_draft import LONGEST_DRAFT
from speccompile.runtime.costmodel import plain_step_ms, predicted_speedup, step_ms
from speccompile.runtime.draft_names import engine_name
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.measurements import Measurements

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """`cost_ratio` is a draft step's milliseconds over a plain target step's.

    `predicted_speedup` is over plain decoding, by draft length, and highest at `best_length`: where
    that is 0 the pair is not `worth` it. Without a draft model there is no pair to judge, so that
    `worth` and `cost_ratio` are None and nothing is predicted.
    """

    worth: bool | None
    sentence: str
    acceptance: tuple[float, ...]
    cost_ratio: float | None
    predicted_speedup: Mapping[int, float]
    best_length: int


def judge(manifest: Manifest, measurements: Measurements, draft: str = "draft") -> Verdict:
    """The verdict on one of the drafts of an artifact with these measurements, the target beside.

    `draft` is "draft", or the name of an expert.
    """
    acceptance, costs = measurements.of_engine(draft), measurements.cost_ms
    accepted = f"first proposal accepted {acceptance[0]:.2f}" if acceptance else "nothing proposed"
    if "draft" not in manifest.engines:
        sentence = f"no draft model, n-grams of the text propose: {accepted}"
        return Verdict(None, sentence, acceptance, None, {}, 0)
    speedups = {
        length: predicted_speedup(
            length,
            acceptance,
            costs[draft],
            costs["target"],
            shares_cache=manifest.engines[draft].shares_cache,
        )
        for length in range(LONGEST_DRAFT + 1)
    }
    best = max(speedups, key=speedups.__getitem__)
    ratio = step_ms(costs[draft], 1) / plain_step_ms(costs["target"])
    facts = f"{accepted}, a draft step costs {ratio:.2f} of a target step"
    if best:
        found = f"best draft length {best}, predicted {speedups[best]:.2f}x"
        sentence = f"worth speculating: {facts}, {found}"
        defaults = measurements.defaults
        used = defaults.draft_length
        if used != best and engine_name(defaults.draft) == draft:
            sentence += f"; the recipe's length {used}, {speedups[used]:.2f}x"
    else:
        least = max(range(1, LONGEST_DRAFT + 1), key=speedups.__getitem__)
        found = f"even draft length {least} is predicted {speedups[least]:.2f}x"
        sentence = f"not worth speculating: {facts}, {found}"
    predicted = {length: round(speedup, 3) for length, speedup in speedups.items()}
    return Verdict(best > 0, sentence, acceptance, round(ratio, 3), predicted, best)
