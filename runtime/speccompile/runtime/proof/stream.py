"""Level 4: a stream of sampled tokens, each against the target's law of it.

The rounds are those of production on the artifact's own engines, with every draft, shape, rule and
filter in turn, in no order. A test that finds nothing may be blind, so a draft that is always
accepted has to be found out by the very same one, over a model of a few tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from speccompile.runtime.control.controller import Controller
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.ledger import Ledger
from speccompile.runtime.proof.liar import Liar
from speccompile.runtime.proof.models import ModelEngine, mixed, random_model
from speccompile.runtime.proof.online import Checked, Watch
from speccompile.runtime.proof.variants import Variant
from speccompile.runtime.request import Request, Rule
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import AnySession, Session

__all__ = ["check_stream"]

_T = TypeVar("_T")

_SAMPLINGS = (
    Sampling(1.0),
    Sampling(0.7, top_p=0.95),
    Sampling(1.3, top_k=50),
    Sampling(1.0, min_p=0.05),
)
_RULES: tuple[Rule, ...] = ("traversal", "token")
_RUN = 64  # tokens after a prompt
_CONTROL = 4096  # tokens at most: what shows there shows in more
_VOCABULARY = 16


def check_stream(
    open_session: Callable[[Variant, Callable[[Controller], Controller]], AnySession],
    variants: Sequence[Variant],
    prompts: Sequence[Sequence[int]],
    count: int,
    *,
    remark: str = "",
    ledger: Ledger | None = None,
    progress: Progress = silent,
) -> Check:
    """Watch at least `count` tokens of rounds.

    `open_session` makes a session of a variant and wraps its controller. Passes where no test of
    the `Watch` refuses the stream, and its test of the distribution refuses that of the control.
    A `remark` goes into the summary.
    """
    ledger = ledger or Ledger()
    known = ledger.known("stream")
    watch = Watch.of(known["watch"]) if known else Watch()
    run = int(known["runs"]) if known else 0
    while watch.pit.count < count:
        progress("stream", watch.pit.count, count)
        rng = np.random.default_rng(run)  # so that a proof that was interrupted goes on alike
        variant, prompt = _one(rng, variants), _one(rng, prompts)
        rule, sampling = _one(rng, _RULES), replace(_one(rng, _SAMPLINGS), seed=run)

        def checked(controller: Controller, rule: Rule = rule) -> Controller:
            return Checked(controller, watch, rule)

        request = Request(_RUN, sampling, rule=rule)
        deque(open_session(variant, checked).generate(prompt, request), maxlen=0)
        run += 1
        ledger.note("stream", {"runs": run, "watch": watch.state()})
    control = _control(min(watch.pit.count, _CONTROL))
    blind = control.pit.statistic <= control.pit.limit
    refusal, acceptance = watch.refusal, watch.acceptance
    if refusal:
        outcome = f"do not have the target's law: {refusal}"
    elif blind:
        outcome = "are too few: a draft that is always accepted goes unnoticed; watch more tokens"
    else:
        outcome = f"have the target's law: {watch}; an always accepted draft does not"
    return Check(
        "stream",
        refusal is None and not blind,
        f"{watch.pit.count} tokens in {run} runs {outcome}{remark and f'; {remark}'}",
        {
            **watch.pit.figures(),
            "runs": run,
            "acceptance": {**acceptance.state(), "z": acceptance.z},
            "control_ks": control.pit.statistic,
            "control_limit": control.pit.limit,
            "drafts": list(dict.fromkeys(each.draft for each in variants)),
        },
    )


def _one(rng: np.random.Generator, choices: Sequence[_T]) -> _T:
    return choices[int(rng.integers(len(choices)))]


def _control(count: int) -> Watch:
    """So many tokens of sessions whose draft, half of the target's opinion, is always accepted."""
    watch = Watch()
    target, noise = (random_model(seed, vocabulary=_VOCABULARY, memory=1) for seed in (1, 2))
    draft = mixed(noise, target, memory=1)
    seed = 0
    while watch.pit.count < count:
        session = Session(
            ModelEngine(target),
            Liar(ModelDraft(ModelEngine(draft)), _VOCABULARY),
            Checked(Variant("model", 3).drawing(), watch),
        )
        deque(session.generate([0], Request(48, Sampling(1.0, seed=seed))), maxlen=0)
        seed += 1
    return watch
