"""That the production loop keeps the target's law over several rounds, whatever shapes the next.

A session begins with a token of the target, and its rounds grow shorter towards the end: all that a
request of a few tokens may do is followed, what a round leaves in the caches included.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from speccompile.runtime import decoding
from speccompile.runtime.control import policies
from speccompile.runtime.control.controller import Controller, FixedController, Outcome
from speccompile.runtime.control.policies import PolicyController
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.ensemble import Union
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.proof.enumeration import Decisions, SpentTwiceError, deciding
from speccompile.runtime.proof.models import Model, ModelEngine, Text, random_model
from speccompile.runtime.request import Request, Rule
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.exact import wrong
from tests.exact.models import PROMPT, distance, everywhere, near, target_law

EXACT = 1e-12
EXACT_FP32 = 1e-6
WRONG = 1e-3
SEEDS = (59, 159, 259)
RULES: list[Rule] = ["token", "traversal"]


@dataclass
class Guided:
    """The next effort is a function of the last round, what it proposed in vain included."""

    function: Callable[[Outcome | None, int], Effort]
    last: Outcome | None = field(default=None, init=False)

    def start(self) -> None:
        self.last = None

    def effort(self, room: int) -> Effort | None:
        return self.function(self.last, room)

    def learn(self, outcome: Outcome) -> None:
        self.last = outcome


def by_what_fell(outcome: Outcome | None, room: int) -> Effort:
    """Deeper, the larger the first proposed token was, and wider after a rejection."""
    if outcome is None or not outcome.proposal.tokens:
        return Effort(room, room)
    width = 2 if outcome.accepted < len(outcome.proposal.tokens) else 1
    depth = min(room, 1 + outcome.proposal.tokens[0])
    return Effort(depth, depth + width - 1, branches={0: width})


def certain_after_success(outcome: Outcome | None, room: int) -> Effort:
    """Drawn tokens first, and behind those that stood, certain ones beside certain ones."""
    if outcome is None or not outcome.accepted:
        return Effort(room, room + 1, beside=(1,))
    return Effort(1, 2, certain=True)


CONTROLLERS: dict[str, Callable[[], Controller]] = {
    "chains": lambda: FixedController(2),
    "trees": lambda: Guided(lambda _, room: Effort(room, room + 2, branches={0: 2, 1: 2})),
    "by what fell": lambda: Guided(by_what_fell),
    "certain after success": lambda: Guided(certain_after_success),
}


@pytest.fixture(scope="module")
def decisions() -> Iterator[Decisions]:
    with deciding() as each:
        yield each


def models(vocabulary: int) -> tuple[Model, Model, Model]:
    """A target that is certain of its first token, as no round decides that, and two drafts."""
    target, *noise = (random_model(seed, vocabulary=vocabulary) for seed in SEEDS)
    certain = everywhere(np.eye(vocabulary)[0].tolist())
    begun = Model(lambda text: (certain if text == PROMPT else target).law(text))
    return begun, near(target, noise[0], 0.6), near(target, noise[1], 0.6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize(("vocabulary", "length"), [(2, 5), (3, 4)])
def test_sessions_keep_the_law(
    vocabulary: int, length: int, controller: str, rule: Rule, decisions: Decisions
) -> None:
    target, draft, _ = models(vocabulary)
    found = emitted(
        decisions, target, lambda: drafting(draft), CONTROLLERS[controller], length, rule
    )
    assert distance(found, target_law(target, length)) <= EXACT


@pytest.mark.parametrize("rule", RULES)
def test_so_do_sessions_with_several_drafts(rule: Rule, decisions: Decisions) -> None:
    target, draft, other = models(2)

    def union() -> Draft:
        return Union([], [drafting(draft), drafting(other)])

    wide = CONTROLLERS["trees"]
    assert (
        distance(emitted(decisions, target, union, wide, 4, rule), target_law(target, 4)) <= EXACT
    )


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds that laws of two tokens reach."""
    monkeypatch.setattr(policies, "_CERTAIN", 0.5)
    monkeypatch.setattr(policies, "_OPEN", 0.5)


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("vocabulary", "proposals", "length", "expected"),
    [
        (3, 3, 5, {"retry-wider", "halve-and-branch"}),
        (3, 2, 5, {"retry-wider", "certain-at-open-end"}),
    ],
)
def test_policies_keep_the_law(
    vocabulary: int,
    proposals: int,
    length: int,
    expected: set[str],
    rule: Rule,
    decisions: Decisions,
) -> None:
    target, draft, _ = models(vocabulary)
    seen = set[str]()

    class Noted(PolicyController):
        def effort(self, room: int) -> Effort | None:
            effort = super().effort(room)
            seen.update(effort.policies if effort else ())
            return effort

    def controller() -> Controller:
        return Noted(FixedController(proposals))

    found = emitted(decisions, target, lambda: drafting(draft), controller, length, rule)
    assert seen == expected
    assert distance(found, target_law(target, length)) <= EXACT


@pytest.mark.parametrize("rule", RULES)
def test_the_laws_of_production_are_as_good_as_fp32_allows(rule: Rule) -> None:
    target, draft, _ = models(2)
    with deciding(fp32=True) as each:
        found = emitted(each, target, lambda: drafting(draft), CONTROLLERS["trees"], 5, rule)
    assert EXACT < distance(found, target_law(target, 5)) <= EXACT_FP32


def test_a_session_that_turns_greedy_is_found_out(
    decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft, _ = models(3)
    verify = wrong.by(decisions, wrong.greedy_where_open)
    monkeypatch.setattr(decoding, "verify", verify)
    found = emitted(decisions, target, lambda: drafting(draft), CONTROLLERS["chains"], 4, RULES[1])
    assert distance(found, target_law(target, 4)) > WRONG


def test_a_session_that_takes_tokens_back_draws_by_spent_numbers(
    decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft, _ = models(2)
    verify = wrong.by(decisions, wrong.roll_back_to_half)
    monkeypatch.setattr(decoding, "verify", verify)
    with pytest.raises(SpentTwiceError):
        emitted(decisions, target, lambda: drafting(draft), CONTROLLERS["chains"], 5, RULES[1])


def drafting(model: Model) -> Draft:
    return ModelDraft(ModelEngine(model))


def emitted(
    decisions: Decisions,
    target: Model,
    draft: Callable[[], Draft],
    controller: Callable[[], Controller],
    length: int,
    rule: Rule,
) -> dict[Text, float]:
    """The law of what a new session answers to the prompt."""
    request = Request(max_new_tokens=length, sampling=Sampling(1.0), rule=rule)

    def answer() -> Text:
        session = Session(ModelEngine(target), draft(), controller())
        return tuple(session.generate(PROMPT, request))

    return decisions.law(answer)
