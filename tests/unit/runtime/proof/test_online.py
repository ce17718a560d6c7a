"""A watch over production sessions: silent for sound ones, and not for wrong ones as long."""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from speccompile.runtime.control.controller import Outcome
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.proof.online import Checked, Watch
from speccompile.runtime.proof.variants import Variant
from speccompile.runtime.request import Request, Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from speccompile.runtime.verify import Verdict
from tests.unit.runtime.proof.sessions import (
    DRAFT,
    PROMPTS,
    TARGET,
    VARIANTS,
    VERIFY,
    believing,
    open_session,
    resampling,
    shifted,
    short,
)
from tests.unit.runtime.tables import TableEngine

COUNT = 1500
RULES: list[Rule] = ["traversal", "token"]
CHAIN, TREE = Variant("model", 3), Variant("model", 3, 7)


def watched(
    variants: Sequence[Variant],
    rule: Rule = "traversal",
    *,
    sampling: Sampling | None = None,
    count: int = COUNT,
) -> Watch:
    watch, seed = Watch(), 0
    target = TableEngine(TARGET)
    while watch.pit.count < count:
        variant, prompt = variants[seed % len(variants)], PROMPTS[seed % len(PROMPTS)]
        session = open_session(target, variant, Checked(variant.drawing(), watch, rule))
        request = Request(48, replace(sampling or Sampling(1.0), seed=seed), rule=rule)
        deque(session.generate(prompt, request), maxlen=0)
        seed += 1
    return watch


@pytest.mark.parametrize("rule", RULES)
def test_sound_sessions_of_every_draft_and_shape(rule: Rule) -> None:
    watch = watched(VARIANTS, rule, sampling=Sampling(1.0, top_p=0.95))
    assert watch.refusal is None
    assert watch.acceptance.tested > 100
    assert "acceptance z" in str(watch)


def test_decisions_are_those_that_follow_from_a_law() -> None:
    assert watched([CHAIN], "token", count=200).acceptance.tested > 100
    assert watched([CHAIN], "traversal", count=200).acceptance.tested == 0
    assert watched([TREE], "token", count=200).acceptance.tested < 100
    assert watched([Variant("ngram", 3, 7)], count=200).acceptance.tested > 20
    audited = Sampling(1.0, audited=True)
    assert watched([CHAIN], sampling=audited, count=200).acceptance.tested == 0


@pytest.mark.parametrize(
    ("wrong", "variant"),
    [
        (believing, CHAIN),
        (resampling, CHAIN),
        (shifted, CHAIN),
        (short, CHAIN),
        (believing, TREE),
        (shifted, TREE),
    ],
)
def test_wrong_rules(
    wrong: Callable[..., Verdict], variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VERIFY, wrong)
    assert watched([variant]).refusal is not None


def test_a_wrong_token_of_a_greedy_session(monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = Sampling()
    assert watched([TREE], sampling=greedy, count=300).refusal is None
    monkeypatch.setattr(VERIFY, believing)
    refusal = watched([TREE], sampling=greedy, count=300).refusal
    assert refusal is not None
    assert "their law excludes" in refusal


def test_a_verifier_that_accepts_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it emits has the right law: only how often proposals stand tells of it."""

    def wary(
        logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
    ) -> Verdict:
        return Verdict([0], sampler.choose(logits[0], tokens).token)

    monkeypatch.setattr(VERIFY, wary)
    watch = watched([CHAIN], "token")
    assert watch.pit.refusal is None
    refusal = watch.refusal
    assert refusal is not None
    assert "0 proposals stood where" in refusal


def test_it_counts_what_rounds_emit_and_lets_the_controller_learn() -> None:
    learned: list[Outcome] = []

    class Noting:
        def start(self) -> None:
            learned.clear()

        def effort(self, room: int) -> Effort | None:
            return Effort(min(room, 2), 2)

        def learn(self, outcome: Outcome) -> None:
            learned.append(outcome)

    watch = Watch()
    session = Session(TableEngine(TARGET), ModelDraft(TableEngine(DRAFT)), Checked(Noting(), watch))
    deque(session.generate([1, 2], Request(20, Sampling(1.0))), maxlen=0)
    assert watch.pit.count == sum(outcome.accepted + 1 for outcome in learned)
    assert watch.pit.count >= 19


def test_a_round_without_logits_says_nothing() -> None:
    watch = Watch()
    watch.observe(Outcome(Proposal(), [0], 1, np.zeros(4, np.float32), 1, 0.0, 0.0, 0.0))
    assert watch.pit.count == 0


def test_it_goes_on_from_its_state() -> None:
    watch = watched([CHAIN], "token", count=100)
    again = Watch.of(json.loads(json.dumps(watch.state())))
    assert again.state() == watch.state()
    assert str(again) == str(watch)
