"""Levels 2 and 3: output with speculation against plain output, token by token.

Greedy output is the same whatever drafts. So is sampled output where draft and target choose with
the same noise (`Sampling.audited`): both are functions of the target and a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from speccompile.runtime.engine import Engine, prefill
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.ledger import Ledger
from speccompile.runtime.proof.variants import Variant, spelled
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import AnySession, Request

__all__ = ["PLAIN", "Difference", "always_greedy", "check_equality", "tie_tolerance"]

PLAIN = Variant("none", 0)

_TIE = 4.0  # times the noise of the rows


@dataclass(frozen=True)
class Difference:
    """Where two outputs part: token `position` after prompt `prompt`, both counted from 0.

    None stands for the end of an output. `margin` is by how much, in logits, the target itself
    prefers the plain token: near zero for a tie that rounding decided, else speculation is at
    fault. An end is as likely as the likeliest stop token; without any, there is no margin.
    """

    draft: str
    draft_length: int
    nodes: int
    prompt: int
    position: int
    plain: int | None
    speculative: int | None
    margin: float | None

    def within(self, tolerance: float) -> bool:
        return self.margin is not None and abs(self.margin) <= tolerance

    def __str__(self) -> str:
        margin = "" if self.margin is None else f" (logit margin {self.margin:.3g})"
        plain, speculative = (
            "the end" if token is None else f"token {token}"
            for token in (self.plain, self.speculative)
        )
        variant = Variant(self.draft, self.draft_length, self.nodes)
        return (
            f"prompt {self.prompt}, position {self.position}, {variant}: "
            f"{speculative} instead of {plain}{margin}"
        )


@dataclass
class _Tally:
    """What the prompts so far have shown."""

    prompts: int = 0
    compared: int = 0
    tested: int = 0
    faults: list[Difference] = field(default_factory=list[Difference])
    ties: list[Difference] = field(default_factory=list[Difference])

    @classmethod
    def of(cls, state: Any) -> _Tally:  # noqa: ANN401 - JSON
        """That of a ledger, empty if there is none."""
        if state is None:
            return cls()
        faults, ties = ([Difference(**each) for each in state[name]] for name in ("faults", "ties"))
        return cls(state["prompts"], state["compared"], state["tested"], faults, ties)

    @property
    def flips(self) -> float:
        """Runs that part at a tie, per 1,000 compared tokens."""
        return 1e3 * len(self.ties) / max(self.compared, 1)


def tie_tolerance(rows: Check) -> float:
    """By how much, in logits, a target may prefer one token to another in a tie: 4 times as much as
    its rows differ, as `check_rows` found, with the size of their step; 0 where they are exact."""
    noise = rows.details["max_abs_difference"]
    return _TIE * noise if isinstance(noise, float) else 0.0


def always_greedy(prompt: int) -> Sampling:
    """The sampling of every prompt in a greedy check."""
    return Sampling()


def check_equality(
    name: str,
    target: Engine,
    open_session: Callable[[Variant], AnySession],
    variants: Sequence[Variant],
    prompts: Sequence[Sequence[int]],
    *,
    opening: Callable[[Sequence[int]], Sequence[int]] = list,
    tokens: int,
    sampling: Callable[[int], Sampling] = always_greedy,
    stop_tokens: frozenset[int] = frozenset(),
    tolerance: float = 0.0,
    remark: str = "",
    ledger: Ledger | None = None,
    progress: Progress = silent,
) -> Check:
    """Decode `tokens` after every prompt, plainly and in every variant.

    `open_session` makes a session on `target`, `PLAIN` among others; `opening` is what the sequence
    of a prompt begins with, and `sampling` is that of a prompt. Each run begins with an empty
    cache, so that nothing but speculation tells two runs apart. Where rows are not exact, two
    outputs may part at a tie: where the margin is within `tolerance`, in logits; sampling must then
    be without filters, whose edges are no ties of two tokens. A `remark` goes into the summary.
    """
    ledger = ledger or Ledger()
    tally = _Tally.of(ledger.known(name))
    runs = 1 + len(variants)

    def decode(variant: Variant) -> list[int]:
        session = open_session(variant)
        request = Request(
            tokens,
            sampling(tally.prompts),
            draft_length=variant.depth,
            stop_tokens=stop_tokens,
        )
        output = list(session.generate(prompts[tally.prompts], request))
        tally.tested += sum(session.statistics.proposed)
        return output

    while tally.prompts < len(prompts):
        done = tally.prompts * runs
        progress(name, done, len(prompts) * runs)
        plain = decode(PLAIN)
        for count, variant in enumerate(variants, start=1):
            progress(name, done + count, len(prompts) * runs)
            speculative = decode(variant)
            tally.compared += len(plain)
            if speculative != plain:
                sampler = Sampler(sampling(tally.prompts))
                prompt = opening(prompts[tally.prompts])
                where = (variant.draft, variant.depth, variant.nodes, tally.prompts)
                found = _difference(target, sampler, prompt, plain, speculative, where, stop_tokens)
                (tally.ties if found.within(tolerance) else tally.faults).append(found)
        tally.prompts += 1
        ledger.note(name, asdict(tally))
    return _verdict(name, tally, variants, tolerance, remark)


def _verdict(
    name: str, tally: _Tally, variants: Sequence[Variant], tolerance: float, remark: str
) -> Check:
    drafts = list(dict.fromkeys(each.draft for each in variants))
    lengths = sorted({each.depth for each in variants if not each.is_tree})
    trees = sorted({(each.depth, each.nodes) for each in variants if each.is_tree})
    runs, faults, ties = tally.prompts * len(variants), tally.faults, tally.ties
    several = "s" * (tally.prompts > 1)
    shapes = [f"lengths {spelled(lengths)}"] if lengths else []
    shapes += [f"trees of {spelled([nodes for _, nodes in trees])}"] if trees else []
    if faults:
        outcome = f"{len(faults)} of the runs differ; first: {faults[0]}"
    elif ties:
        outcome = (
            f"{len(ties)} of the runs part at ties of at most {tolerance:.2g}, "
            f"{tally.flips:.2g} per 1,000 tokens"
        )
    else:
        outcome = "all as plain decoding"
    first = [*faults, *ties][:1]
    return Check(
        name,
        not faults and tally.compared > 0,
        f"{tally.compared} tokens in {runs} runs ({tally.prompts} prompt{several}, "
        f"{', '.join(drafts)} draft, {', '.join(shapes)}), {tally.tested} proposals tested: "
        f"{outcome}{remark and f'; {remark}'}",
        {
            "prompts": tally.prompts,
            "drafts": drafts,
            "draft_lengths": lengths,
            "trees": [{"depth": depth, "nodes": nodes} for depth, nodes in trees],
            "runs": runs,
            "compared_tokens": tally.compared,
            "tested_proposals": tally.tested,
            "differing_runs": len(faults) + len(ties),
            "ties": len(ties),
            "flips_per_1000_tokens": tally.flips,
            "tolerance": tolerance,
            "first_difference": asdict(first[0]) if first else None,
        },
    )


def _difference(
    target: Engine,
    sampler: Sampler,
    prompt: Sequence[int],
    plain: Sequence[int],
    speculative: Sequence[int],
    where: tuple[str, int, int, int],
    stop_tokens: frozenset[int],
) -> Difference:
    pairs = enumerate(zip_longest(plain, speculative))
    position, (left, right) = next(item for item in pairs if item[1][0] != item[1][1])
    before = [*prompt, *plain[:position]]
    target.rollback(0)
    row = prefill(target, before).copy()

    def prefers(tokens: Sequence[int]) -> tuple[int, float]:
        """Which of the tokens the target chooses, and by how much."""
        only = np.full_like(row, -np.inf)
        only[tokens] = row[tokens]
        return sampler.choose(only, before)

    sides = [sorted(stop_tokens) if token is None else [token] for token in (left, right)]
    margin = None
    if all(sides):
        ours, theirs = (prefers(side)[0] for side in sides)
        chosen, by = prefers([ours, theirs])
        margin = by if chosen == ours else -by
    return Difference(*where, position, left, right, margin)
