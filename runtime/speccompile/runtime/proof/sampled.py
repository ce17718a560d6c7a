"""Level 1: sampled output against the target's law, a chi-square test of the production loop.

The laws are the engines', asked once per context (the draft's sharpened); session, drafts,
verification and random numbers are those of production, run once per seed. A test that finds
nothing may be blind, so a draft that is always accepted has to be found out by the very same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.controller import Controller, Outcome
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.ensemble import Union
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.suffix import SuffixDraft
from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.chisquare import goodness_of_fit
from speccompile.runtime.proof.liar import Liar
from speccompile.runtime.proof.tables import TableEngine, Tables, law_of, open_tables, sharpened
from speccompile.runtime.proof.variants import Variant
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Request, Session

__all__ = ["LEAST_P", "SAMPLING", "check_sampling"]

LEAST_P = 1e-9
"""A lossless artifact fails a test once in a thousand million."""

SAMPLING = Sampling(temperature=1.0, top_k=12)
"""Twelve tokens hold most of a law, and keep the number of rows to ask for small."""

_CONTEXTS = 2
_ENDINGS = 24  # the last tokens of a prompt, among which a context is looked for
_LENGTHS = (1, 2)  # depths, in turn: two tokens are inside a proposal, or end one

_FEWEST = 256  # draws of a control

_LOOKUPS = (Variant("ngram", 2), Variant("suffix", 2))
_MODELS = (Variant("model", 2), Variant("model", 2, 4), Variant("union", 2, 6))

_POPULATIONS = ("opening", "interior", "bonus")
"""How the second token came about: by a new round, behind an accepted token inside a proposal, or
behind the last one of a path. Which of them it is does not depend on the token: given the first,
each has the same law of it."""


def check_sampling(
    target: Engine,
    draft: Engine | None,
    prompts: Sequence[Sequence[int]],
    draws: int,
    progress: Progress = silent,
) -> Check:
    """Test first tokens, pairs, and second tokens by population, over `draws` seeds, for every
    draft, shape and context.

    The contexts are those at which accepting everything would show most. Passes where every p is at
    least `LEAST_P` and the control of every kind of draft is below it.
    """
    variants = (*_MODELS, *_LOOKUPS) if draft else _LOOKUPS
    total = min(_CONTEXTS, len(prompts)) * len(variants)
    progress("sampling", 0, total)
    contexts = _telling_contexts(target, draft, prompts)
    results: list[_Result] = []
    for context in contexts:
        tables = open_tables(target, draft, context, SAMPLING)
        for variant in variants:
            progress("sampling", len(results), total)
            honest = _test(tables, variant, draws, honest=True)
            control = _control(tables, variant, draws)
            results.append(_Result(_named(variant), len(context), honest, control))
    worst = min(min(result.p.values()) for result in results)
    kinds = [_named(variant) for variant in variants]
    controls = {kind: min(r.p_control for r in results if r.draft == kind) for kind in kinds}
    blind = [kind for kind, p in controls.items() if p >= LEAST_P]
    return Check(
        "sampling",
        worst >= LEAST_P and not blind,
        _summary(
            worst,
            blind,
            f"{draws * total} draws at {len(contexts)} context{'s' * (len(contexts) > 1)}",
        ),
        {
            "draws": draws,
            "temperature": SAMPLING.temperature,
            "top_k": SAMPLING.top_k,
            "least_p": LEAST_P,
            "worst_p": worst,
            "control_p": controls,
            "powerless": blind,
            "tests": [asdict(result) for result in results],
        },
    )


@dataclass(frozen=True)
class _Result:
    """The p of "first", of "pair", and of each of the `_POPULATIONS`."""

    draft: str
    context_tokens: int
    p: Mapping[str, float]
    p_control: float


class _Noted:
    """A controller that keeps the rounds of the latest request."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.rounds: list[Outcome] = []

    def start(self) -> None:
        self.rounds.clear()
        self._controller.start()

    def effort(self, room: int) -> Effort | None:
        return self._controller.effort(room)

    def learn(self, outcome: Outcome) -> None:
        self.rounds.append(outcome)
        self._controller.learn(outcome)


def _named(variant: Variant) -> str:
    return f"{variant.draft} tree" if variant.is_tree else variant.draft


def _test(tables: Tables, variant: Variant, draws: int, *, honest: bool) -> dict[str, float]:
    """The p of every test, by its name."""
    size = len(tables.first)
    guess = int(tables.first.argmax())
    then = int(tables.second[guess].argmax())
    # So that look-ups find stem and root at the beginning, and propose the likely.
    root = size + 1
    stem = [size, root, guess, then, size]
    draft = _drafting(variant.draft, tables, stem, root)
    if not honest:
        draft = Liar(draft, size + 2)
    noted = _Noted(variant.drawing())
    session = Session(TableEngine(tables.target, stem, root), draft, noted)
    counts = {name: np.zeros((size, size), np.int64) for name in _POPULATIONS}
    for seed in range(draws):
        pair = _draw(session, stem, seed)
        counts[_population(noted.rounds[0])][pair] += 1
    pairs = sum(counts.values(), np.zeros((size, size), np.int64))
    law = tables.first[:, None] * tables.second
    return {
        "first": goodness_of_fit(pairs.sum(axis=1), tables.first).p,
        "pair": goodness_of_fit(pairs.ravel(), law.ravel()).p,
        **{name: _conditional(found, tables.second) for name, found in counts.items()},
    }


def _control(tables: Tables, variant: Variant, draws: int) -> float:
    """The p of a draft that is always accepted, by as few of the draws as show it."""
    count = min(_FEWEST, draws)
    while True:
        p = min(_test(tables, variant, count, honest=False).values())
        if p < LEAST_P or count == draws:
            return p
        count = min(2 * count, draws)


def _drafting(kind: str, tables: Tables, stem: Sequence[int], root: int) -> Draft:
    if kind == "ngram" or tables.draft is None:
        return NgramDraft() if kind == "ngram" else SuffixDraft()
    if kind == "suffix":
        return SuffixDraft()
    model = ModelDraft(TableEngine(tables.draft, stem, root))
    return model if kind == "model" else Union([SuffixDraft()], [model])


def _draw(session: Session, stem: Sequence[int], seed: int) -> tuple[int, int]:
    """The two tokens after the root."""
    request = Request(
        # The root, two tokens, and one more, so that two may still be proposed after the root.
        max_new_tokens=4,
        sampling=replace(SAMPLING, seed=seed),
        draft_length=_LENGTHS[seed % len(_LENGTHS)],
    )
    _, first, second = islice(session.generate(stem, request), 3)
    return first, second


def _population(outcome: Outcome) -> str:
    """That of the second token, by the round behind the root."""
    if not outcome.accepted:
        return "opening"
    return "interior" if outcome.proposal.children(outcome.path[1]) else "bonus"


def _conditional(counts: NDArray[np.int64], second: NDArray[np.float64]) -> float:
    """The p of second tokens [C, C], given first ones.

    How often each first token came is taken as it is. That it is no sum to be tested makes for
    fewer degrees of freedom than are counted, and for a p that is rather too large.
    """
    firsts = counts.sum(axis=1)
    if not firsts.any():
        return 1.0
    return goodness_of_fit(counts.ravel(), (firsts[:, None] / firsts.sum() * second).ravel()).p


def _telling_contexts(
    target: Engine, draft: Engine | None, prompts: Sequence[Sequence[int]]
) -> list[Sequence[int]]:
    """Beginnings of different prompts, those first where target and draft differ most."""
    found: list[tuple[float, Sequence[int]]] = []
    for prompt in prompts:
        targets = _ending(target, prompt)
        drafts = _ending(draft, prompt) if draft else [None] * len(targets)
        distances = [_distance(row, other) for row, other in zip(targets, drafts, strict=True)]
        best = int(np.argmax(distances))
        found.append((distances[best], prompt[: len(prompt) - len(targets) + best + 1]))
    found.sort(key=lambda entry: -entry[0])
    return [context for _, context in found[:_CONTEXTS]]


def _ending(engine: Engine, prompt: Sequence[int]) -> Logits:
    """The rows of a prompt's last tokens."""
    engine.rollback(0)
    if head := prompt[:-_ENDINGS]:
        prefill(engine, head)
    return engine.step(prompt[-_ENDINGS:]).copy()


def _distance(target: Logits, draft: Logits | None) -> float:
    """Total variation of the laws; without a draft's, from always saying the most likely token."""
    p = law_of(target, SAMPLING)
    if draft is None:
        return 1.0 - float(p.max())
    return 1.0 - float(np.minimum(p, law_of(sharpened(draft), SAMPLING)).sum())


def _summary(worst: float, blind: Sequence[str], draws: str) -> str:
    if worst < LEAST_P:
        return f"{draws} do not have the target's law: p {worst:.2g}"
    if blind:
        return (
            f"{draws} are too few: a {blind[0]} draft that is always accepted goes unnoticed; "
            "use more draws"
        )
    return f"{draws} have the target's law: least p {worst:.2g}; an always accepted draft does not"
