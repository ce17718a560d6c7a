"""That rounds keep the target's law by the very numbers that production draws and accepts with."""

import pytest

from speccompile.runtime import sampler
from speccompile.runtime.control.controller import FixedController
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.proof.models import Model, ModelEngine, Text, exact_law, random_model
from speccompile.runtime.request import Request, Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Randomness, Sampling
from speccompile.runtime.session import Session
from speccompile.runtime.verify import verify
from tests.exact.measured import measured
from tests.exact.models import PROMPT, continued, distance, pairs, target_law
from tests.exact.rounds import CERTAIN, Shape, grown, rows

EXACT = 1e-12
EXACT_FP32 = 1e-6
WRONG = 1e-3
RULES: list[Rule] = ["token", "traversal"]
SHAPES: dict[str, Shape] = {
    "chain of 2": [(0, 0), (1, 0)],
    "two, the second drawn from what is left": [(0, 0), (0, 0)],
    "drawn, then certain": [(0, 0), (0, CERTAIN)],
    "certain": [(0, CERTAIN), (1, CERTAIN)],
}


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "law", exact_law)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pair", ["random", "zeros in both"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rounds_keep_the_law(shape: str, pair: str, rule: Rule) -> None:
    assert _error(*pairs()[pair], SHAPES[shape], rule) <= EXACT


@pytest.mark.parametrize("rule", RULES)
def test_so_do_those_of_production(rule: Rule) -> None:
    error = _error(*pairs()["random"], SHAPES["chain of 2"], rule)
    assert EXACT < error <= EXACT_FP32


@pytest.mark.usefixtures("exact")
def test_a_number_that_serves_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(self: Randomness, root: int, node: int) -> int:
        return self.emit(root + node)

    monkeypatch.setattr(Randomness, "draft", same)
    assert _error(*pairs()["random"], SHAPES["chain of 2"], "token") > WRONG


@pytest.mark.usefixtures("exact")
def test_sessions_keep_it() -> None:
    target, draft = (random_model(seed, vocabulary=2) for seed in (80, 81))

    def answer() -> Text:
        session = Session(ModelEngine(target), ModelDraft(ModelEngine(draft)), FixedController(1))
        request = Request(max_new_tokens=3, sampling=Sampling(1.0))
        return tuple(session.generate(PROMPT, request))

    assert distance(measured(answer), target_law(target, 3)) <= EXACT


def _error(target: Model, draft: Model, shape: Shape, rule: Rule) -> float:
    """Of the first three tokens: a round, then the target alone."""

    def emitted() -> Text:
        sampler = Sampler(Sampling(1.0))
        proposal = grown(shape, draft)(PROMPT, sampler)
        verdict = verify(rows(target, PROMPT, proposal), proposal, PROMPT, sampler, rule)
        return (*(proposal.tokens[node - 1] for node in verdict.path[1:]), verdict.token)

    return distance(continued(target, measured(emitted), 3), target_law(target, 3))
