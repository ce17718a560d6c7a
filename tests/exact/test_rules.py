"""That one round keeps the target's law, whatever is proposed: without sampling error, in fp64."""

from collections.abc import Iterator

import pytest

from speccompile.runtime.proof.enumeration import Decisions, deciding
from speccompile.runtime.proof.models import random_model
from speccompile.runtime.request import Rule
from tests.exact.models import pairs
from tests.exact.rounds import CERTAIN, Shape, error, grown

EXACT = 1e-12
EXACT_FP32 = 1e-6  # a few quotients of numbers that are rounded to 6e-8; measured: 3e-8

PAIRS = pairs()
RULES: list[Rule] = ["token", "traversal"]
CHAINS: dict[str, Shape] = {
    "chain of 1": [(0, 0)],
    "chain of 2": [(0, 0), (1, 0)],
    "chain of 3": [(0, 0), (1, 0), (2, 0)],
}
SMALL: dict[str, Shape] = {
    "three without replacement": [(0, 0), (0, 0), (0, 0)],
    "three, of which the second has two": [(0, 0), (0, 0), (0, 0), (2, 0), (2, 0)],
    "two drafts": [(0, 0), (0, 1)],
    "three drafts": [(0, 0), (0, 1), (0, 2)],
    "drawn, then certain": [(0, 0), (1, 0), (0, CERTAIN)],
    "certain, then drawn": [(0, CERTAIN), (0, 0), (2, CERTAIN)],
    "certain in between": [(0, 0), (0, CERTAIN), (0, 0)],
    "certain beside and below": [(0, 0), (1, CERTAIN), (0, CERTAIN), (3, 0)],
}
LARGE: dict[str, Shape] = {
    "two of two": [(0, 0), (0, 0), (1, 0), (1, 0), (2, 0), (2, 0)],
    "two chains of two drafts": [(0, 0), (1, 0), (0, 1), (3, 1)],
    "two of one draft, one of another, deeper": [(0, 0), (1, 0), (0, 1), (0, 0), (3, 1)],
}
CERTAINTIES: dict[str, Shape] = {
    "certain chain": [(0, CERTAIN), (1, CERTAIN), (2, CERTAIN)],
    "certain tree": [(0, CERTAIN), (0, CERTAIN), (1, CERTAIN), (2, CERTAIN), (2, CERTAIN)],
}
OTHERS = (random_model(20), random_model(21))
"""The second and third draft, where a shape has them."""


@pytest.fixture(scope="module")
def decisions() -> Iterator[Decisions]:
    with deciding() as each:
        yield each


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("shape", CHAINS | SMALL)
def test_every_rule_keeps_the_law(shape: str, pair: str, rule: Rule, decisions: Decisions) -> None:
    assert worst(decisions, (CHAINS | SMALL)[shape], pair, rule) <= EXACT


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pair", ["close", "zeros in both"])
@pytest.mark.parametrize("shape", LARGE)
def test_so_it_does_with_larger_trees(
    shape: str, pair: str, rule: Rule, decisions: Decisions
) -> None:
    assert worst(decisions, LARGE[shape], pair, rule) <= EXACT


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("shape", CERTAINTIES)
def test_a_walk_keeps_it(shape: str, pair: str, decisions: Decisions) -> None:
    assert worst(decisions, CERTAINTIES[shape], pair, "traversal") <= EXACT


@pytest.mark.parametrize("rule", RULES)
def test_of_four_tokens_too(rule: Rule, decisions: Decisions) -> None:
    target, draft = (random_model(seed, vocabulary=4) for seed in (30, 31))
    for shape in ([(0, 0), (1, 0)], [(0, 0), (0, 0), (0, 0)], [(0, 0), (1, 0), (0, 0)]):
        assert error(decisions, target, grown(shape, draft), rule, length=3) <= EXACT


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", ["chain of 3", "three, of which the second has two"])
def test_the_laws_of_production_are_as_good_as_fp32_allows(shape: str, rule: Rule) -> None:
    with deciding(fp32=True) as decisions:
        errors = [worst(decisions, (CHAINS | SMALL)[shape], pair, rule) for pair in PAIRS]
    assert EXACT < max(errors) <= EXACT_FP32


def worst(decisions: Decisions, shape: Shape, pair: str, rule: Rule) -> float:
    """The error of the first tokens of a round, one more than it is deep."""
    target, draft = PAIRS[pair]
    return error(decisions, target, grown(shape, draft, *OTHERS), rule, length=depth(shape) + 1)


def depth(shape: Shape) -> int:
    depths = [0]
    for parent, _ in shape:
        depths.append(depths[parent] + 1)
    return max(depths)
