import threading
from collections.abc import Sequence

import pytest

from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.ensemble import Union
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.errors import EngineError
from speccompile.runtime.metered import Work
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from tests.unit.plugins.tree_enumeration import distance
from tests.unit.runtime.drafting.drafters import (
    GREEDY,
    PROMPT,
    Scripted,
    emitted_law,
    target_law,
    within,
)
from tests.unit.runtime.tables import TableEngine, greedy_ids, make_table, near_table

TARGET = make_table(5)
DRAFTS = near_table(TARGET, 3), near_table(TARGET, 4)


def says(*tokens: int, name: str = "scripted") -> Scripted:
    return Scripted(lambda text: tokens, name)


def models() -> list[ModelDraft]:
    return [ModelDraft(TableEngine(table)) for table in DRAFTS]


def test_what_follows_from_the_text_is_merged() -> None:
    union = Union([says(1, 2, 3, name="a"), says(1, 2, 4, name="b")], [says(1, 5, name="c")])
    effort = Effort(3, 12, beside=(1, 9))
    proposal = union.propose(PROMPT, effort, GREEDY)
    assert within(proposal, effort)
    assert proposal.tokens == [1, 2, 3, 4, 5, 9]
    assert proposal.parents == [0, 1, 2, 2, 1, 0]
    assert proposal.sources == ["a", "a", "a", "b", "c", "beside"]


def test_nodes_are_shared_in_the_order_of_trust() -> None:
    lookup, model = says(1, 2, 3, 4, 5), says(6, 7, 8, 9)
    union = Union([lookup], [model])
    proposal = union.propose(PROMPT, Effort(4, 6), GREEDY)
    assert proposal.tokens == [1, 2, 3, 4, 6, 7]
    assert (model.asked[-1].depth, model.asked[-1].nodes) == (2, 2)
    # The last of them may have more than a path.
    union.propose(PROMPT, Effort(4, 10), GREEDY)
    assert (model.asked[-1].depth, model.asked[-1].nodes) == (4, 6)


def test_without_room_for_a_tree_the_first_that_has_something_to_say_does_so() -> None:
    silent, model = says(), says(6, 7, 8, name="model")
    assert Union([silent, says(1, 2)], [model]).propose(PROMPT, Effort(4, 4), GREEDY).tokens == [
        1,
        2,
    ]
    assert model.asked == []
    proposal = Union([silent], [model]).propose(PROMPT, Effort(4, 4), GREEDY)
    assert proposal.tokens == [6, 7, 8]
    assert proposal.is_chain
    assert Union([silent]).propose(PROMPT, Effort(4, 4), GREEDY) == Proposal()


def test_whoever_was_right_so_far_comes_first() -> None:
    union = Union([says(1, 1, name="ones"), says(2, 2, name="twos")])
    text = [*PROMPT]
    for token in [2, 2, 2, 1, 1, 1, 1, 1, 1]:
        before = union.propose(text, Effort(2, 4), GREEDY).sources
        text.append(token)
        after = union.propose(text, Effort(2, 4), GREEDY).sources
        if token == 2:
            assert after == ["twos", "twos", "ones", "ones"]
    assert before == after == ["ones", "ones", "twos", "twos"]
    union.start(PROMPT)
    assert union.propose(PROMPT, Effort(2, 4), GREEDY).sources[0] == "ones"


def test_drawn_tokens_stand_for_themselves_with_their_own_laws() -> None:
    sampler, effort = Sampler(Sampling(1.0, seed=3)), Effort(2, 8)
    alone = [
        draft.propose(PROMPT, Effort(2, 2), sampler.of_drafter(number))
        for number, draft in enumerate(models(), start=1)
    ]
    first = alone[0].tokens[0]
    proposal = Union([says(first)], models()).propose(PROMPT, effort, sampler)
    assert proposal.tokens == [first, *alone[0].tokens, *alone[1].tokens]
    assert proposal.parents == [0, 0, 2, 0, 4]
    assert proposal.laws[0] is None
    for law, expected in zip(proposal.laws[1:], alone[0].laws + alone[1].laws, strict=True):
        assert law is not None
        assert expected is not None
        assert law.tolist() == expected.tolist()


def test_one_model_draws_as_it_would_without_the_lookups() -> None:
    sampler = Sampler(Sampling(1.0, seed=8))
    [model, again] = (ModelDraft(TableEngine(DRAFTS[0])) for _ in range(2))
    proposal = Union([says(1)], [model]).propose(PROMPT, Effort(3, 6), sampler)
    assert proposal.tokens[1:] == again.propose(PROMPT, Effort(3, 3), sampler).tokens


def test_greedy_models_are_merged_too() -> None:
    proposal = Union([says(9)], [*models(), ModelDraft(TableEngine(DRAFTS[0]))]).propose(
        PROMPT, Effort(3, 10), GREEDY
    )
    assert within(proposal, Effort(3, 10))
    paths = [proposal.path(node) for node in range(1, len(proposal.tokens) + 1)]
    for table in DRAFTS:
        assert greedy_ids(table, PROMPT, 3) in paths


class Meeting(Scripted):
    """Proposes when all have come: one after the other, none ever would."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__(lambda text: [threading.get_ident() % 1000])
        self._barrier = barrier

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        self._barrier.wait(timeout=20.0)
        return super().propose(tokens, effort, sampler)


def test_models_run_at_the_same_time_and_lookups_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    barrier = threading.Barrier(2)
    lookup = says(1)
    Union([lookup], [Meeting(barrier), Meeting(barrier)]).propose(PROMPT, Effort(1, 4), GREEDY)
    assert len(lookup.asked) == 1


class Failing(Scripted):
    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        raise EngineError("the engine is broken")


@pytest.mark.parametrize("cores", [1, 2])
def test_a_failure_of_one_is_that_of_all(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    other = says(1)
    union = Union([], [Failing(lambda text: []), other])
    with pytest.raises(EngineError, match="broken"):
        union.propose(PROMPT, Effort(1, 4), GREEDY)
    assert len(other.asked) == cores - 1


def test_time_in_engines_and_the_beginning_of_a_request_are_those_of_all() -> None:
    drafters = [says(1), says(2), says(3)]
    union = Union(drafters[:1], drafters[1:])
    union.start([4, 5])
    assert [drafter.started for drafter in drafters] == [[[4, 5]]] * 3
    drafters[1].work, drafters[2].work = Work(0.25, 0.125, 1, 3), Work(0.5, 0.25, 2, 9)
    assert union.work == Work(0.75, 0.375, 3, 12)


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs in parallel, so that the draws of a round have an order."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


LIKELY = greedy_ids(DRAFTS[0], PROMPT, 2)


@pytest.mark.parametrize("rule", ["token", "traversal"])
@pytest.mark.parametrize("guesses", [(), LIKELY], ids=["models", "models and a lookup"])
@pytest.mark.parametrize(("depth", "top_k"), [(1, 3), (2, 2)])
@pytest.mark.usefixtures("one_core")
def test_a_union_keeps_the_law(depth: int, top_k: int, guesses: Sequence[int], rule: Rule) -> None:
    sampling, effort = Sampling(1.0, top_k=top_k), Effort(depth, 3 * depth)
    found = emitted_law(
        TARGET, lambda: Union([says(*guesses)], models()), effort, sampling, 2, rule
    )
    assert distance(found, target_law(TARGET, sampling, 2)) < 1e-6


class Merged:
    """A union with its duplicates among siblings left out, as if a drawn token needed no law."""

    name = "merged"
    work = Work()

    def __init__(self, union: Union) -> None:
        self._union = union

    def start(self, prompt: Sequence[int]) -> None:
        self._union.start(prompt)

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        found, merged, numbers = self._union.propose(tokens, effort, sampler), Proposal(), {0: 0}
        nodes = dict[tuple[int, int], int]()
        for node, token in enumerate(found.tokens, start=1):
            parent = numbers[found.parents[node - 1]]
            if (parent, token) not in nodes:
                nodes[parent, token] = merged.add(token, parent, found.laws[node - 1])
            numbers[node] = nodes[parent, token]
        return merged


@pytest.mark.parametrize("rule", ["token", "traversal"])
@pytest.mark.parametrize("guesses", [(), LIKELY], ids=["models", "models and a lookup"])
@pytest.mark.usefixtures("one_core")
def test_one_whose_drawn_chains_are_merged_does_not(guesses: Sequence[int], rule: Rule) -> None:
    def merged() -> Draft:
        return Merged(Union([says(*guesses)], models()))

    sampling = Sampling(1.0, top_k=4)
    found = emitted_law(TARGET, merged, Effort(1, 3), sampling, 1, rule)
    assert distance(found, target_law(TARGET, sampling, 1)) > 0.01
