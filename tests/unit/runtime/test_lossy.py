import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.lossy import LOSSY_RULES, LossyRule
from speccompile.runtime.proof.chisquare import goodness_of_fit
from speccompile.runtime.proof.tables import law_of
from speccompile.runtime.request import AnyRule, Request
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.unit.runtime.tables import TableEngine, greedy_ids, make_table, near_table

TABLE = make_table(100, spread=1.5)
DRAFT = near_table(TABLE, 101, noise=1.2)
SAMPLING = Sampling(1.0, seed=1)


def sampled(rule: AnyRule, seeds: int = 1500) -> tuple[NDArray[np.int64], float]:
    """How often each token came second, and how many proposals stood."""
    counts, stood, tested = np.zeros(8, np.int64), 0, 0
    for seed in range(seeds):
        session = Session(TableEngine(TABLE), ModelDraft(TableEngine(DRAFT)))
        request = Request(3, Sampling(1.0, seed=seed), draft_length=1, rule=rule)
        first, second, _ = session.generate([0, 1], request)
        if first == 2:
            counts[second] += 1
        stood += sum(session.statistics.accepted)
        tested += sum(session.statistics.proposed)
    return counts, stood / tested


@pytest.mark.parametrize("rule", LOSSY_RULES)
def test_more_stands_and_the_law_is_another(rule: LossyRule) -> None:
    expected = law_of(TABLE[1, 2], SAMPLING)
    exact, usual = sampled("token")
    lossy, more = sampled(rule)
    assert more > usual + 0.03
    assert goodness_of_fit(exact, expected).p > 1e-6
    assert _distance(lossy, expected) > _distance(exact, expected)


@pytest.mark.parametrize("rule", LOSSY_RULES)
def test_greedy_output_has_nothing_to_lose(rule: LossyRule) -> None:
    for prompt in ([1, 2], [3], [4, 4, 5]):
        session = Session(TableEngine(TABLE), ModelDraft(TableEngine(DRAFT)))
        ids = list(session.generate(prompt, Request(24, draft_length=4, rule=rule)))
        assert ids == greedy_ids(TABLE, prompt, 24)


def test_a_request_says_whether_it_is_lossless() -> None:
    assert Request().lossless
    assert Request(rule="token").lossless
    assert not Request(rule="lossy:typical").lossless


def _distance(counts: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    """The largest difference of a probability."""
    return float(np.abs(counts / counts.sum() - law).max())
