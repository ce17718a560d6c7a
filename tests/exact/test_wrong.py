"""That the gate which right rules pass finds wrong ones out, and lets pass what only looks wrong.

Distances beside the wrong ones are total variations of the first three tokens, as they have been
reported of another pair of models; the order of size is a matter of the rule.
"""

from collections.abc import Iterator

import pytest

from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.ensemble import Union
from speccompile.runtime.drafting.hedge import Hedge
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.proof.enumeration import Decisions, SpentTwiceError, deciding
from speccompile.runtime.proof.models import Model, ModelEngine, Text, mixed, random_model
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.signals import Signals
from tests.exact import wrong
from tests.exact.models import masked, near, total_variation
from tests.exact.rounds import Propose, Shape, drafted, error, grown
from tests.unit.runtime.drafting.drafters import Scripted

EXACT = 1e-12
WRONG = 1e-3
ORDER_OF_SIZE = 3.0

RULES: list[Rule] = ["token", "traversal"]
TARGET = random_model(100)
DRAFT, OTHER = near(TARGET, random_model(200)), near(TARGET, random_model(300))
CHAIN: Shape = [(0, 0), (1, 0)]
OTHER_CHAIN: Shape = [(0, 1), (1, 1)]

JUDGES: dict[str, tuple[wrong.Judge, float | None]] = {
    "declared sharper": (wrong.declared_sharper, 0.098),
    "residual from target": (wrong.residual_from_target, 0.051),
    "fresh after match": (wrong.fresh_after_match, 0.058),
    "roll back to half": (wrong.roll_back_to_half, 0.063),
    "typical": (wrong.typical, 0.134),
    "greedy where open": (wrong.greedy_where_open, None),
    "first failure": (wrong.first_failure, None),
    "token residual": (wrong.token_residual, None),
}
PROPOSALS: dict[str, tuple[Propose, float]] = {
    "without unlikely": (wrong.without_unlikely(grown(CHAIN, DRAFT)), 0.228),
    "surest draft": (
        wrong.surest_draft(grown(CHAIN, DRAFT), grown(OTHER_CHAIN, DRAFT, OTHER)),
        0.148,
    ),
}


@pytest.fixture(scope="module")
def decisions() -> Iterator[Decisions]:
    with deciding() as each:
        yield each


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("judge", JUDGES)
def test_wrong_judges_are_found_out(judge: str, rule: Rule, decisions: Decisions) -> None:
    _assert_wrong(decisions, grown(CHAIN, DRAFT), rule, *JUDGES[judge])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("proposal", PROPOSALS)
def test_so_are_wrong_proposals(proposal: str, rule: Rule, decisions: Decisions) -> None:
    propose, reported = PROPOSALS[proposal]
    _assert_wrong(decisions, propose, rule, wrong.Round.verify, reported)


@pytest.mark.parametrize("rule", RULES)
def test_so_are_siblings_judged_as_if_replaced(rule: Rule, decisions: Decisions) -> None:
    verify = wrong.by(decisions, wrong.as_if_replaced)
    siblings, apart = (
        error(decisions, TARGET, grown(shape, DRAFT, OTHER), rule, length=2, verify=verify)
        for shape in ([(0, 0), (0, 0)], CHAIN)
    )
    assert siblings > WRONG
    assert apart <= EXACT


def test_block_verification_itself_is_right(decisions: Decisions) -> None:
    for shape in (CHAIN, [(0, 0), (1, 0), (2, 0)]):
        verify = wrong.by(decisions, wrong.block)
        length = len(shape) + 1
        assert error(decisions, TARGET, grown(shape, DRAFT), length=length, verify=verify) <= EXACT


def test_two_decisions_by_one_number_are_found_out(decisions: Decisions) -> None:
    def same(text: Text, sampler: Sampler) -> Proposal:
        chain, again = (grown(CHAIN, DRAFT)(text, sampler) for _ in range(2))
        return max(chain, again, key=lambda proposal: proposal.tokens)

    with pytest.raises(SpentTwiceError):
        error(decisions, TARGET, same, length=3)


def model(each: Model) -> ModelDraft:
    return ModelDraft(ModelEngine(each))


def union() -> Draft:
    return Union([], [model(DRAFT), model(OTHER)])


def beside_lookup() -> Draft:
    """What the text says comes first, and may be drawn too."""
    return Union([Scripted(lambda text: [1, 2])], [model(DRAFT)])


def hedge() -> Draft:
    return Hedge([], [model(DRAFT), model(OTHER)])


def likely(signals: Signals) -> bool:
    return signals.probability > 0.4


LEGAL: dict[str, Propose] = {
    "the target draws the same, and its draw is emitted": drafted(
        lambda: model(DRAFT), Effort(2, 2), undeclared=True
    ),
    "the token that ends a draft stays": drafted(lambda: model(DRAFT), Effort(3, 3, go_on=likely)),
    "and with it, what there is room for": drafted(
        lambda: model(DRAFT), Effort(3, 4, go_on=likely, branches={0: 2, 1: 2})
    ),
    "a draft that knows some tokens only": grown(CHAIN, masked(DRAFT, [0, 2])),
    "both drafts": drafted(union, Effort(2, 4)),
    "both drafts, with siblings": drafted(union, Effort(1, 4, branches={0: 2})),
    "both drafts' best": drafted(union, Effort(2, 4, certain=True)),
    "a draft beside what the text says": drafted(beside_lookup, Effort(2, 4)),
    "one draft, chosen before it draws": drafted(hedge, Effort(2, 2)),
    "a mixture of drafts": grown(CHAIN, mixed(DRAFT, OTHER)),
    "certain tokens beside, unless they were drawn": drafted(
        lambda: model(DRAFT), Effort(2, 4, beside=(1, 2))
    ),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("proposal", LEGAL)
def test_what_only_looks_wrong_passes(proposal: str, rule: Rule, decisions: Decisions) -> None:
    assert error(decisions, TARGET, LEGAL[proposal], rule, length=4) <= EXACT


def _assert_wrong(
    decisions: Decisions,
    propose: Propose,
    rule: Rule,
    judge: wrong.Judge,
    reported: float | None,
) -> None:
    verify = wrong.by(decisions, judge)
    assert error(decisions, TARGET, propose, rule, length=3, verify=verify) > WRONG
    if reported is not None:
        found = error(
            decisions, TARGET, propose, rule, length=3, verify=verify, measure=total_variation
        )
        assert reported / ORDER_OF_SIZE < found < reported * ORDER_OF_SIZE
