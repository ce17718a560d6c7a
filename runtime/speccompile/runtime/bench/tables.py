"""What a sweep measured, as one table for each kind of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from speccompile.runtime.bench.ceiling import Ceiling
from speccompile.runtime.bench.run import NOTHING_TO_COMPARE, Run, Spread, spread
from speccompile.runtime.bench.sweep import Sweep, Trial
from speccompile.runtime.bench.variants import PLAIN, Lineup
from speccompile.runtime.errors import RequestError

__all__ = ["ALL", "Row", "Table", "make_tables"]

ALL = "all"
"""The category of all prompts."""


@dataclass(frozen=True)
class Row:
    """A variant on the prompts of a category.

    `tokens_per_second` is of all their decoding together, and so are the ratios `to_static`, to the
    best of the chains of one length, and `to_fixed`, to that of the artifact's default length;
    `to_ceiling` is the share of what memory allows, where that is known.
    `to_plain` is over the prompts, for each of which both were measured one after the other.
    `accepted_length` is in tokens a round; `acceptance` is the share of the tested proposals that
    stood, None where nothing was proposed. `differing` counts outputs that were not those of plain
    decoding, those of prompts too short for a speed too. `policies` are the shares of the rounds
    that each shaped, `sources` the shares of accepted tokens by drafter, where there were several.
    """

    name: str
    tokens_per_second: float
    accepted_length: float
    acceptance: float | None
    to_plain: Spread
    to_static: float | None
    to_fixed: float
    to_ceiling: float | None
    differing: int
    policies: Mapping[str, float]
    sources: Mapping[str, float]


@dataclass(frozen=True)
class Table:
    """A category of `prompts` prompts; `static` is the chain of one length that was the fastest
    there, if any was measured."""

    category: str
    prompts: int
    static: str | None
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row:
        """That of a variant."""
        return next(row for row in self.rows if row.name == name)


def make_tables(sweep: Sweep, labels: Sequence[Sequence[str]]) -> list[Table]:
    """One for all prompts, and one for each other category, `labels` being those of each prompt.

    A category is left out where it has all prompts, and where none of its own was answered with
    more than one token, which leaves no speed to compare. Raises RequestError where no prompt at
    all was.
    """
    if not any(trial.comparable for trial in sweep.trials):
        raise RequestError(NOTHING_TO_COMPARE)
    names = dict.fromkeys(label for own in labels for label in own)
    parts = [name for name in names if not all(name in own for own in labels)]
    tables: list[Table] = []
    for name in (ALL, *parts):
        trials = [trial for trial in sweep.trials if name == ALL or name in labels[trial.prompt]]
        if any(trial.comparable for trial in trials):
            tables.append(_table(name, sweep.lineup, trials, sweep.ceiling))
    return tables


def _table(
    category: str, lineup: Lineup, trials: Sequence[Trial], ceiling: Ceiling | None
) -> Table:
    timed = [trial for trial in trials if trial.comparable]
    names = [variant.name for variant in lineup.variants]
    runs = {name: [trial.runs[name] for trial in timed] for name in names}
    totals = {name: _Totals.of(own) for name, own in runs.items()}
    speed = {name: total.tokens / total.seconds for name, total in totals.items()}
    static = max(lineup.static, key=lambda name: speed[name], default=None)
    rows = [
        Row(
            name,
            tokens_per_second=speed[name],
            accepted_length=total.tokens / total.rounds,
            acceptance=total.accepted / total.tested if total.tested else None,
            to_plain=_to_plain(timed, name),
            to_static=speed[name] / speed[static] if static else None,
            to_fixed=speed[name] / speed[lineup.fixed],
            to_ceiling=ceiling.share(runs[name]) if ceiling else None,
            differing=sum(trial.differs(name) for trial in trials),
            policies={each: count / total.rounds for each, count in total.policies.items()},
            sources={each: count / total.accepted for each, count in total.sources.items()},
        )
        for name, total in totals.items()
    ]
    return Table(category, len({trial.prompt for trial in timed}), static, tuple(rows))


def _to_plain(timed: Sequence[Trial], name: str) -> Spread:
    """Over the prompts; that of a prompt is the median of its trials."""
    ratios: dict[int, list[float]] = {}
    for trial in timed:
        ratio = trial.runs[name].speedup(trial.runs[PLAIN.name])
        ratios.setdefault(trial.prompt, []).append(ratio)
    return spread(float(np.median(each)) for each in ratios.values())


@dataclass
class _Totals:
    """Sums over runs."""

    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    tested: int = 0
    accepted: int = 0
    policies: Counter[str] = field(default_factory=Counter[str])
    sources: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    def of(cls, runs: Iterable[Run]) -> _Totals:
        totals = cls()
        for run in runs:
            statistics = run.statistics
            totals.seconds += run.decode_seconds
            totals.tokens += statistics.decode_tokens
            totals.rounds += statistics.rounds
            totals.tested += sum(statistics.proposed)
            totals.accepted += sum(statistics.accepted)
            totals.policies.update(statistics.policies)
            totals.sources.update(statistics.sources)
        return totals
