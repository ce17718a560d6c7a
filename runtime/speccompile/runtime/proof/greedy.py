"""Greedy output with speculation against greedy output without, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest

from speccompile.runtime.engine import Engine, prefill
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.session import Request, Session

__all__ = ["Difference", "check_greedy"]


@dataclass(frozen=True)
class Difference:
    """Where two outputs part: token `position` after prompt `prompt`, both counted from 0.

    None stands for the end of an output. `margin` is by how much the target's own logits prefer the
    plain token: near zero for a tie that rounding decided, else speculation is at fault.
    """

    draft: str
    draft_length: int
    prompt: int
    position: int
    plain: int | None
    speculative: int | None
    margin: float | None

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


def check_greedy(
    target: Engine,
    open_session: Callable[[str], Session],
    drafts: Sequence[str],
    prompts: Sequence[Sequence[int]],
    lengths: Sequence[int],
    *,
    tokens: int,
    stop_tokens: frozenset[int] = frozenset(),
    progress: Progress = silent,
) -> Check:
    """Decode `tokens` after every prompt, plainly and with every draft and draft length.

    `open_session` makes a session on `target` with the draft of that name, "none" among them. Each
    run begins with an empty cache, so that nothing but speculation tells two runs apart.
    """
    total = len(prompts) * (1 + len(drafts) * len(lengths))
    done = compared = tested = differing = 0
    first: Difference | None = None

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
                    differing += 1
                    where = (kind, length, index)
                    first = first or _difference(target, prompt, plain, speculative, where)
    runs = total - len(prompts)
    several = "s" * (len(prompts) > 1)
    extent = (
        f"{compared} tokens in {runs} runs ({len(prompts)} prompt{several}, "
        f"{' and '.join(drafts)} draft, lengths {_spelled(lengths)}), {tested} proposals tested"
    )
    outcome = (
        f"{differing} of the runs differ; first: {first}" if first else "all as plain decoding"
    )
    return Check(
        "greedy",
        first is None and compared > 0,
        f"{extent}: {outcome}",
        {
            "prompts": len(prompts),
            "drafts": list(drafts),
            "draft_lengths": list(lengths),
            "runs": runs,
            "compared_tokens": compared,
            "tested_proposals": tested,
            "differing_runs": differing,
            "first_difference": asdict(first) if first else None,
        },
    )


def _difference(
    target: Engine,
    prompt: Sequence[int],
    plain: Sequence[int],
    speculative: Sequence[int],
    where: tuple[str, int, int],
) -> Difference:
    pairs = enumerate(zip_longest(plain, speculative))
    position, (left, right) = next(item for item in pairs if item[1][0] != item[1][1])
    margin = None
    if left is not None and right is not None:
        target.rollback(0)
        row = prefill(target, [*prompt, *plain[:position]])
        margin = float(row[left] - row[right])
    return Difference(*where, position, left, right, margin)


def _spelled(lengths: Sequence[int]) -> str:
    whole = list(lengths) == list(range(lengths[0], lengths[-1] + 1)) and len(lengths) > 1
    return f"{lengths[0]}-{lengths[-1]}" if whole else ", ".join(map(str, lengths))
