"""How many proposed tokens stand on average: what papers say, to the last digit."""

from collections.abc import Iterator

import numpy as np
import pytest

from speccompile.runtime.proof.enumeration import Decisions, deciding
from speccompile.runtime.proof.models import Model, random_model
from speccompile.runtime.request import Rule
from tests.exact.models import PROMPT, everywhere, near, pairs
from tests.exact.rounds import Shape, grown, mean_accepted

EXACT = 1e-12
RULES: list[Rule] = ["token", "traversal"]
CHAIN: Shape = [(0, 0), (1, 0)]
SHAPES: dict[str, Shape] = {
    "chain of 2": CHAIN,
    "chain of 3": [*CHAIN, (2, 0)],
    "two of two": [(0, 0), (0, 0), (1, 0), (1, 0), (2, 0), (2, 0)],
    "path with siblings": [(0, 0), (1, 0), (0, 0), (1, 0)],
    "two drafts": [(0, 0), (1, 0), (0, 1), (3, 1)],
}


@pytest.fixture(scope="module")
def decisions() -> Iterator[Decisions]:
    with deciding() as each:
        yield each


def near_pairs() -> list[tuple[Model, Model]]:
    """Random targets, and drafts that are mostly of their opinion."""
    targets = [random_model(seed) for seed in range(50, 53)]
    return [(each, near(each, random_model(60 + at))) for at, each in enumerate(targets)]


def test_the_example_of_the_block_verification_paper(decisions: Decisions) -> None:
    """arXiv 2403.10444: two tokens, two proposals."""
    target, draft = everywhere([1 / 3, 2 / 3]), everywhere([2 / 3, 1 / 3])
    means = [mean_accepted(decisions, target, grown(CHAIN, draft), rule) for rule in RULES]
    assert means == pytest.approx([10 / 9, 11 / 9], abs=EXACT)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pair", pairs())
def test_one_token_stands_as_often_as_the_laws_overlap(
    pair: str, rule: Rule, decisions: Decisions
) -> None:
    target, draft = pairs()[pair]
    overlap = float(np.minimum(target.law(PROMPT), draft.law(PROMPT)).sum())
    found = mean_accepted(decisions, target, grown([(0, 0)], draft), rule)
    assert found == pytest.approx(overlap, abs=EXACT)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_fewer_stand_by_traversal_than_token_by_token(shape: str, decisions: Decisions) -> None:
    more = list[float]()
    for target, draft in near_pairs():
        propose = grown(SHAPES[shape], draft, random_model(70))
        token, traversal = (mean_accepted(decisions, target, propose, rule) for rule in RULES)
        more.append(traversal - token)
    assert min(more) >= -EXACT
    assert max(more) > 1e-3
