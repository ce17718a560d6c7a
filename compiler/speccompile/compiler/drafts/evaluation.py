"""What is known of one draft once it was evaluated, and the questions that it was evaluated on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from speccompile.compiler.drafts.acceptance import Acceptance, Point
from speccompile.compiler.drafts.figures import Figures, StepCosts, Trace, figures
from speccompile.runtime.bench.run import NOTHING_TO_COMPARE, Spread
from speccompile.runtime.errors import RequestError

__all__ = ["Evaluation", "Measured", "Progress", "Question", "Training", "encoded", "figures_of"]

Progress = Callable[[int, int, str], None]
"""Called with the steps done, all steps, and what is done next."""


class Question(NamedTuple):
    """A prompt, and the domain whose figures it is counted among."""

    text: str
    domain: str


@dataclass(frozen=True)
class Measured:
    """Speculative against plain decoding on the artifact's engines, in pairs, by domain: the
    speed-up over prompts, which only those that decoded have. `differing` are the prompts whose
    outputs were not the same."""

    speedups: Mapping[str, Spread]
    tokens_a_round: float
    differing: Sequence[int]


@dataclass(frozen=True)
class Training:
    """What `draft.json` may tell of how a draft was made: how many tokens its head has (0: all),
    how far it stood on held-out prompts before and after its weights became INT8, and the curve."""

    vocabulary: int = 0
    held_out: Mapping[str, Acceptance] = field(default_factory=dict[str, Acceptance])
    held_out_int8: Mapping[str, Acceptance] = field(default_factory=dict[str, Acceptance])
    curve: Sequence[Point] = ()


@dataclass(frozen=True)
class Evaluation:
    """Of the draft that `name` leads to: an artifact's, on its engines, or one in a folder of
    `speccompile draft`, with its stored weights. `training` is what such a folder tells of it."""

    name: str
    kind: Literal["artifact", "folder"]
    domains: Mapping[str, Figures]
    costs: StepCosts
    measured: Measured | None = None
    training: Training | None = None


def encoded(
    encode: Callable[[str], list[int]],
    questions: Sequence[Question],
    *,
    tokens: int,
    context: int,
    where: object,
) -> list[list[int]]:
    """The questions' tokens; where one and an answer of `tokens` do not fit, a RequestError."""
    found = [encode(question.text) for question in questions]
    for number, ids in enumerate(found, start=1):
        if not ids or len(ids) + tokens > context:
            raise RequestError(
                f"prompt {number} has {len(ids)} tokens; with {tokens} of an answer it has to be 1 "
                f"to {context} in all, for {where}: shorten it, leave it out, or lower --tokens"
            )
    return found


def figures_of(
    questions: Sequence[Question],
    traces: Sequence[Trace],
    costs: StepCosts,
    *,
    depth: int,
    trees: bool = True,
) -> dict[str, Figures]:
    """See `figures`; raises RequestError where no answer has a token that a round could propose."""
    texts: dict[str, list[Trace]] = {}
    for question, each in zip(questions, traces, strict=True):
        texts.setdefault(question.domain, []).append(each)
    found = figures(texts, costs, depth=depth, trees=trees)
    if not found:
        raise RequestError(NOTHING_TO_COMPARE)
    return found
