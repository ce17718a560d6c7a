"""Where decoding spends its time, by the wall clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from speccompile.runtime.bench.run import Run

__all__ = ["Split", "split_of"]


@dataclass(frozen=True)
class Split:
    """Percent of the time from the first token to the end of the output; together 100.

    In `draft` and `verify` the library of an engine computes, the draft's or the target's. No
    engine runs during `assembly` (masks and other inputs, proposals looked up or made of a draft's
    rows, verification, commit) and `scheduling` (all else: the controller, accounts, the loop).
    """

    draft: float
    verify: float
    assembly: float
    scheduling: float

    @property
    def overhead(self) -> float:
        """The time in which no engine runs."""
        return self.assembly + self.scheduling


def split_of(runs: Iterable[Run]) -> Split | None:
    """That of some runs together; None where engines are not told apart, as in rounds of a GPU."""
    runs = [run for run in runs if run.decoded]
    statistics = [run.statistics for run in runs]
    whole = sum(run.decode_seconds for run in runs)
    verify = sum(each.target_computing_seconds for each in statistics)
    if not verify:
        return None
    draft = sum(each.draft_computing_seconds for each in statistics)
    assembly = sum(each.assembly_seconds for each in statistics)
    shares = (100 * seconds / whole for seconds in (draft, verify, assembly))
    draft, verify, assembly = shares
    return Split(draft, verify, assembly, 100 - draft - verify - assembly)
