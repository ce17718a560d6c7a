"""Greedy output with speculation against greedy output without, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest

from speccompile.runtime.engine import Engine, prefill
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.session import AnySession, Request

__all__ = ["Difference", "check_greedy", "tie_tolerance"]

_TIE = 4.0  # times the noise of the rows


@dataclass(frozen=True)
class Difference:
    """Where two outputs part: token `position` after prompt `prompt`, both counted from 0.

    None stands for the end of an output. `margin` is by how much the target's own logits prefer the
    plain token: near zero for a tie that rounding decided, else speculation is at fault. An end is
    as likely as the likeliest stop token; without any, there is no margin.
    """

    draft: str
    draft_length: int
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
        return (
            f"prompt {self.prompt}, position {self.position}, {self.draft} draft of "
            f"{self.draft_length}: {speculative} instead of {plain}{margin}"
        )


def tie_tolerance(rows: Check) -> float:
    """By how much, in logits, a target may prefer one token to another in a tie: 4 times as much as
    its rows differ, as `check_rows` found, with the size of their step; 0 where they are exact."""
    noise = rows.details["max_abs_difference"]
    return _TIE * noise if isinstance(noise, float) else 0.0


def check_greedy(
    target: Engine,
    open_session: Callable[[str], AnySession],
    drafts: Sequence[str],
    prompts: Sequence[Sequence[int]],
    lengths: Sequence[int],
    *,
    tokens: int,
    stop_tokens: frozenset[int] = frozenset(),
    tolerance: float = 0.0,
    progress: Progress = silent,
) -> Check:
    """Decode `tokens` after every prompt, plainly and with every draft and draft length.

    `open_session` makes a session on `target` with the draft of that name, "none" among them. Each
    run begins with an empty cache, so that nothing but speculation tells two runs apart. Where rows
    are not exact, two outputs may part at a tie: where the margin is within `tolerance`, in logits.
    """
    total = len(prompts) * (1 + len(drafts) * len(lengths))
    done = compared = tested = 0
    faults: list[Difference] = []
    ties: list[Difference] = []

    def decode(kind: str, length: int, prompt: Sequence[int]) -> list[int]:
        nonlocal done, tested
        progress("greedy", done, total)
        session = open_session(kind)
        request = Request(tokens, draft_length=length, stop_tokens=stop_tokens)
        output = list(session.generate(prompt, request))
        tested += sum(session.statistics.proposed)
        done += 1
        return output

    for index, prompt in enumerate(prompts):
        plain = decode("none", 0, prompt)
        for kind in drafts:
            for length in lengths:
                speculative = decode(kind, length, prompt)
                compared += len(plain)
                if speculative != plain:
                    where = (kind, length, index)
                    found = _difference(target, prompt, plain, speculative, where, stop_tokens)
                    (ties if found.within(tolerance) else faults).append(found)
    runs = total - len(prompts)
    several = "s" * (len(prompts) > 1)
    extent = (
        f"{compared} tokens in {runs} runs ({len(prompts)} prompt{several}, "
        f"{' and '.join(drafts)} draft, lengths {_spelled(lengths)}), {tested} proposals tested"
    )
    if faults:
        outcome = f"{len(faults)} of the runs differ; first: {faults[0]}"
    elif ties:
        outcome = f"{len(ties)} of the runs part at ties of at most {tolerance:.2g}"
    else:
        outcome = "all as plain decoding"
    first = [*faults, *ties][:1]
    return Check(
        "greedy",
        not faults and compared > 0,
        f"{extent}: {outcome}",
        {
            "prompts": len(prompts),
            "drafts": list(drafts),
            "draft_lengths": list(lengths),
            "runs": runs,
            "compared_tokens": compared,
            "tested_proposals": tested,
            "differing_runs": len(faults) + len(ties),
            "ties": len(ties),
            "tolerance": tolerance,
            "first_difference": asdict(first[0]) if first else None,
        },
    )


def _difference(
    target: Engine,
    prompt: Sequence[int],
    plain: Sequence[int],
    speculative: Sequence[int],
    where: tuple[str, int, int],
    stop_tokens: frozenset[int],
) -> Difference:
    pairs = enumerate(zip_longest(plain, speculative))
    position, (left, right) = next(item for item in pairs if item[1][0] != item[1][1])
    target.rollback(0)
    row = prefill(target, [*prompt, *plain[:position]])
    sides = [stop_tokens if token is None else {token} for token in (left, right)]
    logits = [max((float(row[token]) for token in side), default=None) for side in sides]
    known = [logit for logit in logits if logit is not None]
    margin = known[0] - known[1] if len(known) == 2 else None
    return Difference(*where, position, left, right, margin)


def _spelled(lengths: Sequence[int]) -> str:
    whole = list(lengths) == list(range(lengths[0], lengths[-1] + 1)) and len(lengths) > 1
    return f"{lengths[0]}-{lengths[-1]}" if whole else ", ".join(map(str, lengths))
