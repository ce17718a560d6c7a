"""Sampled output against the target's law: a chi-square test of the production loop.

The laws are the engines', asked once per context (the draft's sharpened); session, drafts,
verification and random numbers are those of production, run once per seed. A test that finds
nothing may be blind, so a draft that is always accepted has to be found out by the very same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

import numpy as np

from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.proposal import Draft, Proposal
from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.chisquare import goodness_of_fit
from speccompile.runtime.proof.tables import TableEngine, Tables, open_tables, sharpened
from speccompile.runtime.sampling import Randomness, Sampling, law
from speccompile.runtime.session import Request, Session

__all__ = ["LEAST_P", "SAMPLING", "check_sampling"]

LEAST_P = 1e-9
"""A lossless artifact fails a test once in a thousand million."""

SAMPLING = Sampling(temperature=1.0, top_k=12)
"""Twelve tokens hold most of a law, and keep the number of rows to ask for small."""

_CONTEXTS = 3
_ENDINGS = 24  # the last tokens of a prompt, among which a context is looked for
_LENGTHS = (1, 2)  # draft lengths, in turn: two tokens are inside a proposal, or end one


def check_sampling(
    target: Engine,
    draft: Engine | None,
    prompts: Sequence[Sequence[int]],
    draws: int,
    progress: Progress = silent,
) -> Check:
    """Test the first token and the first two, over `draws` seeds, for every draft and context.

    The contexts are those at which accepting everything would show most. Passes where every p is at
    least `LEAST_P` and the control of every kind of draft is below it.
    """
    kinds = ("model", "ngram") if draft else ("ngram",)
    total = min(_CONTEXTS, len(prompts)) * len(kinds)
    progress("sampling", 0, total)
    contexts = _telling_contexts(target, draft, prompts)
    results: list[_Result] = []
    for context in contexts:
        tables = open_tables(target, draft, context, SAMPLING)
        for kind in kinds:
            progress("sampling", len(results), total)
            p_first, p_pair = _test(tables, kind, draws, honest=True)
            control = min(_test(tables, kind, draws, honest=False))
            results.append(_Result(kind, len(context), p_first, p_pair, control))
    worst = min(min(result.p_first, result.p_pair) for result in results)
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
    draft: str
    context_tokens: int
    p_first: float
    p_pair: float
    p_control: float


class _Liar:
    """Declares laws so small that whatever the target might say itself is accepted."""

    def __init__(self, draft: Draft, vocab_size: int) -> None:
        self._draft = draft
        self._law = np.full(vocab_size, 1e-300)

    @property
    def engine_seconds(self) -> float:
        return self._draft.engine_seconds

    def start(self, prompt: Sequence[int]) -> None:
        self._draft.start(prompt)

    def propose(
        self, tokens: Sequence[int], limit: int, sampling: Sampling, randomness: Randomness
    ) -> Proposal:
        proposal = self._draft.propose(tokens, limit, sampling, randomness)
        return Proposal(proposal.tokens, [self._law] * len(proposal.tokens))


def _test(tables: Tables, kind: str, draws: int, *, honest: bool) -> tuple[float, float]:
    """The p of the first token, and of the first two."""
    size = len(tables.first)
    guess = int(tables.first.argmax())
    then = int(tables.second[guess].argmax())
    # So that the n-gram draft finds stem and root at the beginning, and proposes the likely.
    root = size + 1
    stem = [size, root, guess, then, size]
    draft: Draft = NgramDraft()
    if kind == "model" and tables.draft is not None:
        draft = ModelDraft(TableEngine(tables.draft, stem, root))
    if not honest:
        draft = _Liar(draft, size + 2)
    session = Session(TableEngine(tables.target, stem, root), draft)
    counts = np.zeros((size, size), np.int64)
    for seed in range(draws):
        counts[_draw(session, stem, seed)] += 1
    first = goodness_of_fit(counts.sum(axis=1), tables.first)
    pair = goodness_of_fit(counts.ravel(), (tables.first[:, None] * tables.second).ravel())
    return first.p, pair.p


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
    p = law(target, SAMPLING)
    if draft is None:
        return 1.0 - float(p.max())
    return 1.0 - float(np.minimum(p, law(sharpened(draft), SAMPLING)).sum())


def _summary(worst: float, blind: Sequence[str], draws: str) -> str:
    if worst < LEAST_P:
        return f"{draws} do not have the target's law: p {worst:.2g}"
    if blind:
        return (
            f"{draws} are too few: a {blind[0]} draft that is always accepted goes unnoticed; "
            "use more draws"
        )
    return f"{draws} have the target's law: least p {worst:.2g}; an always accepted draft does not"
