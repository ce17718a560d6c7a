from collections.abc import Callable, Sequence

import pytest

from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.hedge import Hedge, Weights, agreement
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from tests.unit.plugins.tree_enumeration import distance
from tests.unit.runtime.drafting.drafters import (
    GREEDY,
    PROMPT,
    Scripted,
    emitted_law,
    target_law,
)
from tests.unit.runtime.tables import Table, TableEngine, make_table, near_table

TARGET = make_table(5)
DRAFTS = near_table(TARGET, 1, noise=2.0), near_table(TARGET, 2, noise=2.0)
FIVE = Effort(5, 5)
SAMPLED = Sampling(1.0, top_k=3)


def counting(start: int, step: int = 1) -> Callable[[Sequence[int]], Sequence[int]]:
    """Says that the text goes on as so many numbers behind its last."""
    return lambda tokens: [tokens[-1] + start + step * index for index in range(5)]


def test_the_longest_path_that_came_true_counts() -> None:
    tree = Proposal([4, 5, 4, 6, 7], [0, 1, 0, 3, 4], [None] * 5)
    assert agreement(tree, [4, 5, 1]) == 2
    assert agreement(tree, [4, 6, 7]) == 3  # behind the second 4
    assert agreement(tree, [4, 6]) == 2
    assert agreement(tree, [5]) == 0
    assert agreement(Proposal(), [5]) == 0


def test_a_reward_is_the_share_of_the_tokens_per_cost() -> None:
    weights = Weights([0.0, 0.0, 1.0], memory=0.0)  # only the latest round counts
    chains = [Proposal.chain(tokens) for tokens in ([5], [6, 7], [6, 7])]
    weights.note([1], dict(enumerate(chains)))
    weights.learn([1, 6, 7, 8])
    # 1/4, 3/4, 3/8
    assert weights.ranking() == [1, 2, 0]
    scale = 4.0
    shares = [2.718281828 ** (scale * reward) for reward in (0.25, 0.75, 0.375)]
    edges = [sum(shares[:count]) / sum(shares) * 2**53 for count in (1, 2)]
    for drafter, edge in enumerate(edges):
        assert weights.draw([0, 1, 2], int(edge * 0.999)) == drafter
        assert weights.draw([0, 1, 2], int(edge * 1.001)) == drafter + 1
    assert weights.draw([0], 2**53 - 1) == 0


def test_plain_rounds_after_one_say_nothing_against_it() -> None:
    weights = Weights([0.0, 0.0], memory=0.0)
    weights.note([1], {0: Proposal.chain([6, 7]), 1: Proposal.chain([6])})
    weights.learn([1, 6, 7, 8, *range(100)])
    # Of three tokens, 3/4 and 2/4; of all, they would be equals.
    assert weights.draw([0, 1], int(0.6 * 2**53)) == 0


def test_who_proposes_nothing_keeps_its_weight_and_who_never_did_is_trusted() -> None:
    weights = Weights([0.0, 0.0, 0.5])
    for length in range(1, 40):
        weights.note([0] * length, {0: Proposal.chain([1]), 1: Proposal(), 2: Proposal.chain([0])})
        weights.learn([0] * (length + 1))
    assert weights.ranking() == [1, 2, 0]
    weights.start()
    assert weights.ranking() == [0, 1, 2]


def test_the_drafter_that_was_right_is_followed_and_left_when_it_is_not() -> None:
    up, down = Scripted(counting(1), "up"), Scripted(counting(-1, -1), "down")
    hedge = Hedge([up, down])
    hedge.start([100])
    text, chosen = [100], list[str]()
    for step in [1] * 60 + [-1] * 60:
        chosen.append(hedge.propose(text, FIVE, GREEDY).sources[0])
        text.append(text[-1] + step)
    assert chosen[20:60].count("up") > 35
    assert chosen[100:].count("down") > 15
    assert len(up.asked) == len(down.asked) == 120  # both are judged every round
    hedge.start([100])
    assert hedge.propose([100], FIVE, GREEDY).sources == [chosen[0]] * 5


def test_one_with_nothing_to_say_is_not_chosen() -> None:
    silent, model = Scripted(lambda tokens: [], "silent"), Scripted(counting(1), "model")
    hedge = Hedge([silent], [model])
    for length in range(1, 9):
        proposal = hedge.propose([1] * length, Effort(2, 4, beside=(9,)), GREEDY)
        assert proposal.tokens == [2, 3, 9]
        assert proposal.sources == ["model", "model", "beside"]
    assert Hedge([silent]).propose([1], FIVE, GREEDY) == Proposal()
    assert silent.asked[0].beside == ()


def test_a_model_is_asked_only_when_it_is_chosen_and_what_it_costs_counts() -> None:
    lookup, model = Scripted(counting(1), "lookup"), Scripted(counting(1), "model")
    hedge = Hedge([lookup], [model], costs=[0.5])
    for length in range(1, 30):
        hedge.propose(list(range(length)), FIVE, GREEDY)
    assert len(model.asked) < 5
    with pytest.raises(ValueError, match="2 costs for 1 models"):
        Hedge([lookup], [model], costs=[1.0, 2.0])


def test_equals_are_chosen_by_the_seed_alone() -> None:
    def choices(seed: int) -> list[str]:
        hedge = Hedge([Scripted(counting(1), "one"), Scripted(counting(1), "other")])
        sampler, texts = Sampler(Sampling(1.0, seed=seed)), [[7] * n for n in range(1, 40)]
        return [hedge.propose(text, FIVE, sampler).sources[0] for text in texts]

    assert choices(1) == choices(1) != choices(2)
    assert 8 < choices(1).count("one") < 32


def test_time_in_engines_and_the_beginning_of_a_request_are_those_of_all() -> None:
    drafters = [Scripted(counting(1)), Scripted(counting(2))]
    hedge = Hedge(drafters[:1], drafters[1:])
    hedge.start([4, 5])
    assert [drafter.started for drafter in drafters] == [[[4, 5]]] * 2
    drafters[1].work = Work(0.25, 0.125, 2, 9)
    assert hedge.work == Work(0.25, 0.125, 2, 9)


class Watched(Hedge):
    """Keeps who proposed what in which round."""

    def __init__(self, models: Sequence[Draft], seen: set[tuple[int, str]]) -> None:
        super().__init__([], models, rate=50.0, memory=0.0)
        self.seen = seen

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        proposal = super().propose(tokens, effort, sampler)
        self.seen |= {(len(tokens) - len(PROMPT), source) for source in proposal.sources}
        return proposal


class Surest:
    """Has all drafters draw, and takes the draw that is likeliest by its own law."""

    name = "surest"
    work = Work()

    def __init__(self, drafters: Sequence[Draft]) -> None:
        self._drafters = drafters

    def start(self, prompt: Sequence[int]) -> None:
        for drafter in self._drafters:
            drafter.start(prompt)

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        drawn = [drafter.propose(tokens, effort, sampler) for drafter in self._drafters]
        return max(drawn, key=lambda each: _confidence(each))


def _confidence(proposal: Proposal) -> float:
    law = proposal.laws[0]
    assert law is not None
    return float(law[proposal.tokens[0]])


def models(tables: Sequence[Table] = DRAFTS) -> list[ModelDraft]:
    drafters = [ModelDraft(TableEngine(table)) for table in tables]
    for number, drafter in enumerate(drafters):
        drafter.name = f"model {number}"
    return drafters


def test_a_choice_by_history_keeps_the_law() -> None:
    seen = set[tuple[int, str]]()
    found = emitted_law(TARGET, lambda: Watched(models(), seen), Effort(1, 1), SAMPLED, 3)
    assert distance(found, target_law(TARGET, SAMPLED, 3)) < 1e-6
    # In some round, what happened before decided who proposed.
    assert any({(length, "model 0"), (length, "model 1")} <= seen for length in (1, 2))


def test_a_choice_by_what_was_drawn_does_not() -> None:
    found = emitted_law(TARGET, lambda: Surest(models()), Effort(1, 1), SAMPLED, 1)
    assert distance(found, target_law(TARGET, SAMPLED, 1)) > 0.01
