"""Whether a figure got worse since an earlier benchmark, by more than its spread explains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from speccompile.runtime.bench.run import spread

__all__ = ["Change", "Figure", "change"]


@dataclass(frozen=True)
class Figure:
    """A figure of each prompt, by its text: a ratio of which more is better, or a `percent` of time
    of which less is. All may be off together by the share `uncertainty`."""

    name: str
    by_prompt: Mapping[str, float]
    percent: bool = False
    uncertainty: float = 0.0


@dataclass(frozen=True)
class Change:
    """`before` and `now` are medians over the prompts that both have. `better` is the median of
    their changes, each of a prompt: a share of a ratio, a difference of a percentage, below 0 for
    the worse; as far as `tolerance` it may be chance."""

    name: str
    percent: bool
    before: float
    now: float
    better: float
    tolerance: float

    @property
    def regressed(self) -> bool:
        return self.better < -self.tolerance


def change(before: Figure, now: Figure, least: float) -> Change | None:
    """How a figure changed; None where no prompt has it in both.

    The tolerance is two standard errors of the median change, estimated by its spread over n
    prompts as (p90 - p10) / sqrt(n), but at `least` that (a share; of a percentage, as many points
    of 100). Common uncertainties are added.
    """
    prompts = [text for text in now.by_prompt if text in before.by_prompt]
    if not prompts:
        return None
    old = np.array([before.by_prompt[text] for text in prompts])
    new = np.array([now.by_prompt[text] for text in prompts])
    changes = (old - new) / 100 if now.percent else new / old - 1
    of_changes = spread(changes)
    noise = (of_changes.p90 - of_changes.p10) / math.sqrt(len(prompts))
    tolerance = max(least, noise) + before.uncertainty + now.uncertainty
    return Change(
        now.name,
        now.percent,
        float(np.median(old)),
        float(np.median(new)),
        of_changes.median,
        tolerance,
    )
