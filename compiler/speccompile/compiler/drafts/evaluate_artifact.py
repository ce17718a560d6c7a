"""Evaluate an artifact's draft on its own engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from speccompile.compiler.drafts.evaluation import (
    Evaluation,
    Measured,
    Progress,
    Question,
    encoded,
    figures_of,
)
from speccompile.compiler.drafts.figures import EVERYTHING, LONGEST, StepCosts, Trace, trace
from speccompile.runtime.bench.pairs import BenchResult, run_bench
from speccompile.runtime.bench.run import Spread, spread
from speccompile.runtime.draft_names import engine_name
from speccompile.runtime.engine import CacheSharer, Engine, prefill
from speccompile.runtime.errors import RequestError
from speccompile.runtime.request import Request
from speccompile.runtime.runner import Runner

__all__ = ["evaluate_artifact", "trace_engines"]


def evaluate_artifact(
    runner: Runner,
    name: str,
    questions: Sequence[Question],
    *,
    tokens: int,
    depth: int,
    progress: Progress,
    draft: str = "model",
) -> Evaluation:
    """Answer every question plainly and with the draft, one right after the other, as the artifact
    decodes; then have both engines read the answers. `draft` is "model", or an expert.

    Raises RequestError where there is no draft, or nothing to compare.
    """
    role = engine_name(draft)
    if role not in runner.roles:
        raise RequestError(
            f"{name}: has no model that drafts; what n-grams are worth, `speccompile bench` tells"
        )
    prompts = encoded(runner.encode, questions, tokens=tokens, context=runner.context, where=name)
    stop = frozenset(runner.manifest.model.eos_token_ids)
    request = Request(max_new_tokens=tokens, stop_tokens=stop)
    result = run_bench(runner, prompts, request, draft, progress=progress)
    shares = runner.manifest.engines[role].shares_cache
    costs = StepCosts(result.cost_ms["target"], result.cost_ms[role], shares, measured=True)
    target, engine = runner.engine("target"), runner.engine(role)
    traces = list[Trace]()
    for number, pair in enumerate(result.pairs):
        progress(number, len(prompts), "reading the answers")
        text = pair.plain.tokens
        traces.append(trace_engines(target, engine, prompts[pair.prompt], text, shares=shares))
    return Evaluation(
        name,
        "artifact",
        figures_of(questions, traces, costs, depth=depth, trees=runner.takes_trees),
        costs,
        _measured(questions, result),
    )


def trace_engines(
    target: Engine, draft: Engine, prompt: Sequence[int], answer: Sequence[int], *, shares: bool
) -> Trace:
    """What `draft` thinks of the `answer` of `target`, as far as both have room for it.

    They read it in blocks of a round's length. Where the draft `shares` the target's cache, its
    rows see those of the target up to the block and its own within, as in a round.
    """
    room = min(target.capacity, draft.capacity)
    text = [*prompt, *answer][:room]
    start = len(prompt) - 1
    sharer = draft if shares and isinstance(draft, CacheSharer) else None
    target.rollback(0)
    draft.rollback(0)
    for engine in (target,) if sharer else (target, draft):
        if start:
            prefill(engine, text[:start])
    blocks = list[Trace]()
    for begin in range(start, len(text) - 1, LONGEST):
        block = text[begin:-1][:LONGEST]
        if sharer:
            sharer.adopt(begin)
        guessed = draft.step(block)
        known = target.step(block)  # in a shared cache, these rows replace the draft's
        said = text[begin + 1 : begin + 1 + len(block)]
        blocks.append(trace(np.array(said, np.int64), guessed, known))
    if not blocks:
        return Trace(np.zeros(0, np.int64), np.zeros(0))
    return Trace(
        np.concatenate([each.ranks for each in blocks]),
        np.concatenate([each.overlaps for each in blocks]),
    )


def _measured(questions: Sequence[Question], result: BenchResult) -> Measured:
    speedups = result.speedups
    domains = dict.fromkeys(questions[prompt].domain for prompt in speedups)
    found: Mapping[str, Spread] = {
        domain: spread(
            value for prompt, value in speedups.items() if questions[prompt].domain == domain
        )
        for domain in domains
    }
    if len(domains) > 1:
        found = {**found, EVERYTHING: result.speedup}
    return Measured(found, result.accepted_length, result.differing)
