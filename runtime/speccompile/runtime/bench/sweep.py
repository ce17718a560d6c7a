"""Have every prompt answered in all ways of drafting, one right after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from speccompile.runtime.bench.ceiling import Ceiling, StepBytes
from speccompile.runtime.bench.limit import Limit, measure_limit
from speccompile.runtime.bench.run import Budget, Progress, Run, generate, silent
from speccompile.runtime.bench.variants import PLAIN, Lineup, Variant
from speccompile.runtime.errors import RequestError
from speccompile.runtime.session import AnySession, Request, Session

__all__ = ["Opener", "Sweep", "Trial", "run_sweep"]


class Opener(Protocol):
    """What a sweep needs of a `Runner`."""

    def session(self, draft: str | None = None) -> AnySession:
        """A new sequence with nothing in its caches."""
        ...


@dataclass(frozen=True)
class Trial:
    """The runs of a prompt, given by its index: one of every variant, by its name."""

    prompt: int
    runs: Mapping[str, Run]

    @property
    def comparable(self) -> bool:
        """Whether all decoded."""
        return all(run.decoded for run in self.runs.values())

    def differs(self, name: str) -> bool:
        """Whether a variant's output is another than plain decoding's."""
        return not self.runs[name].same(self.runs[PLAIN.name])


@dataclass(frozen=True)
class Sweep:
    """What was measured, of `asked` trials as many as there was time for; `ceiling` is what memory
    allows at most, on a CPU."""

    lineup: Lineup
    trials: tuple[Trial, ...]
    asked: int
    ceiling: Ceiling | None = None

    @property
    def measured(self) -> int:
        """How many prompts there was time for."""
        return len({trial.prompt for trial in self.trials})

    @property
    def differing(self) -> dict[str, tuple[int, ...]]:
        """The prompts that a variant answered otherwise than plain decoding, by its name."""
        found = {
            variant.name: tuple(
                sorted({trial.prompt for trial in self.trials if trial.differs(variant.name)})
            )
            for variant in self.lineup.variants
        }
        return {name: prompts for name, prompts in found.items() if prompts}


def run_sweep(
    opener: Opener,
    prompts: Sequence[Sequence[int]],
    request: Request,
    lineup: Lineup,
    *,
    rounds: int = 1,
    budget: float | None = None,
    progress: Progress = silent,
    reads: Mapping[str, StepBytes] | None = None,
    measure: Callable[[], Limit] = measure_limit,
) -> Sweep:
    """Decode every prompt in all ways, `rounds` times, from empty caches.

    The order changes from prompt to prompt, so that a machine which slows down or heats up favours
    none, and no variant always has the same one before it. The first prompt is answered once more,
    before all, to warm up. With a `budget` of seconds, no trial begins that is not expected to
    be over by then, but for the first that counts. With what the engines' steps read, `measure`
    says before and after all what this machine can do. Raises RequestError without prompts, and
    where sessions have no controller, as those on a GPU.
    """
    if not prompts:
        raise RequestError("there are no prompts to measure; give at least one")
    turns = list(product(range(rounds), range(len(prompts))))
    total = (len(turns) + 1) * len(lineup.variants)
    limit = Budget(budget)

    def attempt(number: int, prompt: int, doing: str) -> Trial:
        runs: dict[str, Run] = {}
        for variant in _order(lineup.variants, number):
            progress(number * len(lineup.variants) + len(runs), total, doing)
            session = _session(opener, variant)
            runs[variant.name] = generate(session, prompts[prompt], request)
        return Trial(prompt, runs)

    attempt(0, 0, "warming up")
    before = measure() if reads else None
    trials: list[Trial] = []
    for number, (_, prompt) in enumerate(turns, start=1):
        if trials and not limit.allows(number):
            break
        trials.append(attempt(number, prompt, f"prompt {prompt + 1} of {len(prompts)}"))
    progress(total, total, "done")
    ceiling = Ceiling(before.joined(measure()), reads) if before and reads else None
    return Sweep(lineup, tuple(trials), len(turns), ceiling)


def _order(variants: Sequence[Variant], number: int) -> Sequence[Variant]:
    """Another one begins each time; every second time they go round backwards."""
    first = number % len(variants)
    order = [*variants[first:], *variants[:first]]
    return order[::-1] if number % 2 else order


def _session(opener: Opener, variant: Variant) -> AnySession:
    session = opener.session(variant.draft)
    if variant.controller is not None:
        if not isinstance(session, Session):
            raise RequestError("on a GPU no controller decides what is drafted; use --on cpu")
        session.controller = variant.controller
    return session
