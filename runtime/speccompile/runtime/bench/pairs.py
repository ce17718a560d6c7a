"""Compare speculative with plain decoding: same engine, same prompts, in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from typing import Literal, Protocol

import numpy as np

from speccompile.runtime.bench.ceiling import Ceiling, StepBytes
from speccompile.runtime.bench.decomposition import Split, split_of
from speccompile.runtime.bench.limit import Limit, measure_limit
from speccompile.runtime.bench.run import (
    NOTHING_TO_COMPARE,
    Budget,
    Progress,
    Run,
    Spread,
    generate,
    silent,
    spread,
)
from speccompile.runtime.engine import Engine
from speccompile.runtime.errors import RequestError
from speccompile.runtime.session import AnySession, Request
from speccompile.runtime.statistics import Statistics
from speccompile.runtime.timing import time_rows

__all__ = [
    "COST_ROWS",
    "MODES",
    "BenchResult",
    "Mode",
    "Opener",
    "Pair",
    "run_bench",
]

COST_ROWS = range(1, 10)
"""Row counts whose cost is measured: a plain step up to a root with eight proposals."""

Mode = Literal["plain", "speculative"]
MODES: tuple[Mode, Mode] = ("plain", "speculative")
"""Of a pair: how it was decoded first, and how then."""

_PLAIN_FIRST = (False, True)
_SPECULATIVE_FIRST = (True, False)


class Opener(Protocol):
    """What a benchmark needs of a `Runner`."""

    def session(self, draft: str | None = None) -> AnySession:
        """A new sequence with nothing in its caches."""
        ...

    def models(self, draft: str) -> Sequence[str]:
        """The names of the engines that a draft asks."""
        ...

    def engine(self, role: str) -> Engine:
        """The engine that sessions use, rolled back."""
        ...


@dataclass(frozen=True)
class Pair:
    """The two generations of a prompt, one right after the other."""

    prompt: int
    plain: Run
    speculative: Run

    def run(self, mode: Mode) -> Run:
        return self.plain if mode == "plain" else self.speculative

    @property
    def identical(self) -> bool:
        return self.speculative.same(self.plain)

    @property
    def comparable(self) -> bool:
        """Whether both decoded."""
        return self.plain.decoded and self.speculative.decoded

    @property
    def speedup(self) -> float:
        """Of decoding."""
        return self.speculative.speedup(self.plain)

    @property
    def request_speedup(self) -> float:
        """Of the whole request, prompt included."""
        plain, speculative = self.plain, self.speculative
        tokens = len(speculative.tokens) / len(plain.tokens)
        return tokens * plain.seconds / speculative.seconds


@dataclass(frozen=True)
class BenchResult:
    """What was measured. At least one pair is comparable, and only such pairs enter the speeds.

    `cost_ms` maps a role and a number of rows to the median milliseconds of a step that follows
    `cost_context` tokens. `ceiling` is what memory allows at most, on a CPU.
    """

    pairs: tuple[Pair, ...]
    cost_ms: Mapping[str, Mapping[int, float]]
    cost_context: int
    ceiling: Ceiling | None = None

    @property
    def identical(self) -> bool:
        """Whether every output was: a speed-up with different words is none."""
        return not self.differing

    @property
    def differing(self) -> tuple[int, ...]:
        """The prompts with a pair of different outputs."""
        return tuple(sorted({pair.prompt for pair in self.pairs if not pair.identical}))

    @property
    def speedups(self) -> dict[int, float]:
        """The speed-up of each comparable prompt, the median of its rounds."""
        return self._by_prompt(lambda pair: pair.speedup)

    @property
    def speedup(self) -> Spread:
        return self._spread(lambda pair: pair.speedup)

    @property
    def request_speedup(self) -> Spread:
        return self._spread(lambda pair: pair.request_speedup)

    @property
    def plain_tokens_per_second(self) -> Spread:
        return self._spread(lambda pair: pair.plain.tokens_per_second)

    @property
    def speculative_tokens_per_second(self) -> Spread:
        return self._spread(lambda pair: pair.speculative.tokens_per_second)

    @property
    def plain_first_token_seconds(self) -> Spread:
        return self._spread(lambda pair: pair.plain.statistics.first_token_seconds)

    @property
    def speculative_first_token_seconds(self) -> Spread:
        return self._spread(lambda pair: pair.speculative.statistics.first_token_seconds)

    @property
    def tested(self) -> tuple[int, ...]:
        """How many proposals were tested at each position of a chain, as far as any was."""
        counts = _sum_by_position([run.proposed for run in self._speculative])
        return tuple(count for count in counts if count)

    @property
    def acceptance(self) -> tuple[float, ...]:
        """The share that stood at each position, given that those before it did."""
        accepted = _sum_by_position([run.accepted for run in self._speculative])
        return tuple(stood / count for stood, count in zip(accepted, self.tested, strict=False))

    @property
    def accepted_length(self) -> float:
        """Tokens a round."""
        rounds = sum(run.rounds for run in self._speculative)
        return sum(run.decode_tokens for run in self._speculative) / rounds

    @property
    def splits(self) -> dict[Mode, Split] | None:
        """Where decoding spends its time; None where that is not told apart."""
        splits: dict[Mode, Split] = {}
        for mode in MODES:
            if split := split_of(pair.run(mode) for pair in self.pairs):
                splits[mode] = split
        return splits or None

    def overheads(self, mode: Mode) -> dict[int, float]:
        """Percent of each comparable prompt's decoding in which no engine runs, the median of its
        rounds; nothing where that is not told apart."""
        return self._by_prompt(
            lambda pair: split.overhead if (split := split_of([pair.run(mode)])) else None
        )

    def shares_of_ceiling(self, mode: Mode) -> dict[int, float]:
        """Of each comparable prompt the share of its ceiling, the median of its rounds; nothing
        where no ceiling is known."""
        ceiling = self.ceiling
        return self._by_prompt(lambda pair: ceiling.share([pair.run(mode)]) if ceiling else None)

    def ceilings(self, mode: Mode) -> dict[int, float]:
        """The most tokens a second that memory allows each comparable prompt."""
        ceiling = self.ceiling
        return self._by_prompt(
            lambda pair: ceiling.tokens_per_second([pair.run(mode)]) if ceiling else None
        )

    @property
    def _speculative(self) -> list[Statistics]:
        return [pair.speculative.statistics for pair in self.pairs]

    def _by_prompt(self, measure: Callable[[Pair], float | None]) -> dict[int, float]:
        values: dict[int, list[float]] = {}
        for pair in self.pairs:
            if pair.comparable and (value := measure(pair)) is not None:
                values.setdefault(pair.prompt, []).append(value)
        return {prompt: float(np.median(rounds)) for prompt, rounds in values.items()}

    def _spread(self, measure: Callable[[Pair], float]) -> Spread:
        return spread(self._by_prompt(measure).values())


def run_bench(
    opener: Opener,
    prompts: Sequence[Sequence[int]],
    request: Request,
    draft: str,
    *,
    rounds: int = 1,
    budget: float | None = None,
    progress: Progress = silent,
    reads: Mapping[str, StepBytes] | None = None,
    measure: Callable[[], Limit] = measure_limit,
) -> BenchResult:
    """Decode every prompt plainly and with `draft`, one of `Runner.drafts`, `rounds` times.

    Without a draft length in the `request`, a session's controller decides how much is drafted.
    The order within a pair alternates, so that a machine which slows down or heats up favours
    neither. A first pair warms up and is not counted. With a `budget` of seconds, no pair begins
    that is not expected to be over by then, but for the first that counts. With what the engines'
    steps read, `measure` says before and after the pairs what this machine can do. Raises
    RequestError where there is nothing to compare.
    """
    if not prompts:
        raise RequestError("there are no prompts to measure; give at least one")
    total = rounds * len(prompts) + 2
    limit = Budget(budget)
    progress(0, total, "warming up")
    warm = _run_pair(opener, prompts, 0, request, draft, _PLAIN_FIRST)
    before = measure() if reads else None
    pairs: list[Pair] = []
    for turn, index in product(range(rounds), range(len(prompts))):
        if pairs and not limit.allows(len(pairs) + 1):
            break
        progress(len(pairs) + 1, total, f"prompt {index + 1} of {len(prompts)}")
        order = _SPECULATIVE_FIRST if (turn + index) % 2 else _PLAIN_FIRST
        pairs.append(_run_pair(opener, prompts, index, request, draft, order))
    if not any(pair.comparable for pair in pairs):
        raise RequestError(NOTHING_TO_COMPARE)
    ceiling = Ceiling(before.joined(measure()), reads) if before and reads else None
    progress(total - 1, total, "cost by rows")
    engines = {role: opener.engine(role) for role in ("target", *opener.models(draft))}
    room = min(engine.capacity for engine in engines.values()) - COST_ROWS[-1]
    context = [*prompts[0], *warm.plain.tokens][:room]
    cost_ms = time_rows(engines, context, COST_ROWS)
    progress(total, total, "done")
    return BenchResult(tuple(pairs), cost_ms, len(context), ceiling)


def _run_pair(
    opener: Opener,
    prompts: Sequence[Sequence[int]],
    index: int,
    request: Request,
    draft: str,
    order: Sequence[bool],
) -> Pair:
    """`order` says, for the first generation and the second, whether it is the speculative one."""
    runs: dict[bool, Run] = {}
    for speculative in order:
        kind, length = (draft, request.draft_length) if speculative else ("none", 0)
        runs[speculative] = generate(
            opener.session(kind), prompts[index], replace(request, draft_length=length)
        )
    return Pair(index, runs[False], runs[True])


def _sum_by_position(counts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(position) for position in zip_longest(*counts, fillvalue=0))
