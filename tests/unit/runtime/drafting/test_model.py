import numpy as np
import pytest

from speccompile.plugins.laws import draw, law, without
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Randomness, Sampling
from speccompile.runtime.signals import Signals
from tests.unit.runtime.tables import Step, TableEngine, greedy_ids, make_table

TABLE = make_table(7)
GREEDY = Sampler(Sampling())


def test_a_model_draft_proposes_what_its_engine_would_say() -> None:
    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1, 4])
    proposal = draft.propose([3, 1, 4, 1], Effort(5, 5), GREEDY)
    assert proposal.tokens == greedy_ids(TABLE, [3, 1, 4, 1], 5)
    assert proposal.is_chain
    assert not proposal.drawn


def test_sampled_proposals_come_with_the_laws_they_were_drawn_from() -> None:
    sampling = Sampling(0.9, top_k=5, top_p=0.9, seed=11)
    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1])
    proposal = draft.propose([3, 1], Effort(4, 4), Sampler(sampling))
    text = [3, 1]
    for node, token in enumerate(proposal.tokens, start=1):
        expected = law(TABLE[text[-2], text[-1]], sampling.filters)
        assert expected is not None
        np.testing.assert_array_equal(proposal.laws[node - 1], expected)
        assert token == draw(expected, Randomness(11).draft(root=1, node=node))
        text.append(token)
    assert proposal.is_chain
    assert len(proposal.tokens) == 4


def test_drawn_siblings_lack_those_before_them() -> None:
    sampling = Sampling(1.5, seed=4)
    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1])
    proposal = draft.propose([3, 1], Effort(2, 9, branches={0: 3, 1: 2}), Sampler(sampling))
    assert proposal.parents == [0, 1, 0, 0, 1]
    first, second, third = (proposal.laws[node - 1] for node in proposal.children(0))
    tokens = [proposal.tokens[node - 1] for node in proposal.children(0)]
    expected = law(TABLE[3, 1], sampling.filters)
    assert expected is not None
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, without(expected, tokens[0]))
    np.testing.assert_array_equal(third, without(without(expected, tokens[0]), tokens[1]))
    assert len(set(tokens)) == 3


def test_more_nodes_than_levels_are_the_likeliest_of_all_rows() -> None:
    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1])
    proposal = draft.propose([3, 1], Effort(3, 6), GREEDY)
    text, reached, found = [3, 1], 1.0, list[tuple[float, int, int]]()
    for level, token in enumerate(greedy_ids(TABLE, [3, 1], 3)):
        row = TABLE[text[-2], text[-1]].astype(np.float64)
        shares = np.exp(row) / np.exp(row).sum()
        found += [(reached * shares[other], level, other) for other in range(8)]
        reached *= shares[token]
        text.append(token)
    depths = proposal.depths()
    assert {(depths[node] - 1, token) for node, token in enumerate(proposal.tokens, start=1)} == {
        (level, token) for _, level, token in sorted(found)[-6:]
    }
    assert not proposal.is_chain
    # Only the path has rows, so nothing else has children.
    assert set(proposal.parents) <= set(range(4))


def test_no_node_is_less_likely_than_its_price() -> None:
    draft = ModelDraft(TableEngine(TABLE))
    sizes = []
    for price in (0.0, 0.1, 0.5, 1.0):
        draft.start([3, 1])
        sizes.append(len(draft.propose([3, 1], Effort(3, 12, price=price), GREEDY).tokens))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[1] > sizes[-1] == 0


def test_drafting_ends_where_the_effort_says_and_keeps_what_is_drafted() -> None:
    seen: list[float] = []

    def go_on(signals: Signals) -> bool:
        seen.append(signals.probability)
        return len(seen) < 2

    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1])
    proposal = draft.propose([3, 1], Effort(5, 5, go_on), GREEDY)
    assert proposal.tokens == greedy_ids(TABLE, [3, 1], 2)
    row = TABLE[3, 1].astype(np.float64)
    assert seen[0] == pytest.approx((np.exp(row) / np.exp(row).sum()).max(), rel=1e-5)


def test_tokens_beside_its_own_come_last_and_only_once() -> None:
    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1])
    own = greedy_ids(TABLE, [3, 1], 1)[0]
    other = (own + 1) % 8
    proposal = draft.propose([3, 1], Effort(1, 3, beside=(own, other)), GREEDY)
    assert [proposal.tokens[node - 1] for node in proposal.children(0)].count(own) == 1
    assert proposal.tokens[-1] == other or other in proposal.tokens


def test_a_certain_effort_draws_nothing() -> None:
    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1])
    proposal = draft.propose([3, 1], Effort(3, 3, certain=True), Sampler(Sampling(1.0)))
    assert proposal.tokens == greedy_ids(TABLE, [3, 1], 3)
    assert not proposal.drawn


def test_only_rows_that_are_not_cached_are_computed() -> None:
    engine = TableEngine(TABLE)
    draft = ModelDraft(engine)
    draft.start([3, 1])
    first = draft.propose([3, 1, 4], Effort(3, 3), GREEDY).tokens
    rejected = (first[1] + 1) % 8
    draft.propose([3, 1, 4, first[0], rejected], Effort(1, 1), GREEDY)
    draft.propose([3, 1, 4, first[0], rejected], Effort(1, 1), GREEDY)
    assert engine.steps == [
        Step(0, (3, 1, 4)),
        Step(3, (first[0],)),
        Step(4, (first[1],)),
        Step(4, (rejected,)),  # the accepted row stays, the rejected one is written over
        Step(4, (rejected,)),  # the last row has to be asked again
    ]


def test_after_a_fully_accepted_proposal_the_missing_row_is_made_up() -> None:
    engine = TableEngine(TABLE)
    draft = ModelDraft(engine)
    draft.start([3])
    tokens = draft.propose([3, 1], Effort(2, 2), GREEDY).tokens
    draft.propose([3, 1, *tokens, 5], Effort(1, 1), GREEDY)
    # The last proposal was never an input of the draft itself.
    assert engine.steps[-1] == Step(3, (tokens[1], 5))
    assert engine.rows == [3, 1, *tokens, 5]


@pytest.mark.parametrize(("length", "proposed"), [(5, 4), (6, 3), (8, 1), (9, 0), (12, 0)])
def test_a_draft_with_a_short_context_proposes_less(length: int, proposed: int) -> None:
    text = [index % 8 for index in range(length)]
    draft = ModelDraft(TableEngine(TABLE, capacity=8))
    draft.start(text)
    tokens = draft.propose(text, Effort(4, 4), GREEDY).tokens
    assert tokens == greedy_ids(TABLE, text, proposed)


def test_a_new_request_keeps_the_rows_it_shares() -> None:
    engine = TableEngine(TABLE)
    draft = ModelDraft(engine)
    draft.start([1, 2, 3, 4])
    draft.propose([1, 2, 3, 4, 5], Effort(1, 1), GREEDY)
    draft.start([1, 2, 6])
    assert engine.rows == [1, 2]
    tokens = draft.propose([1, 2, 6, 0], Effort(2, 2), GREEDY).tokens
    assert tokens == greedy_ids(TABLE, [1, 2, 6, 0], 2)
    assert engine.steps[-2] == Step(2, (6, 0))
