from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.plugins.reference import draw
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.sampling import Purpose, Randomness, Sampling, law
from tests.unit.runtime.tables import Step, TableEngine, greedy_ids, make_table

TABLE = make_table(7)
GREEDY, RANDOMNESS = Sampling(), Randomness(11)


def test_a_model_draft_proposes_what_its_engine_would_say() -> None:
    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1, 4])
    proposal = draft.propose([3, 1, 4, 1], 5, GREEDY, RANDOMNESS)
    assert proposal.tokens == greedy_ids(TABLE, [3, 1, 4, 1], 5)
    assert proposal.laws == []


def test_sampled_proposals_come_with_the_laws_they_were_drawn_from() -> None:
    sampling = Sampling(0.9, top_k=5, top_p=0.9)
    draft = ModelDraft(TableEngine(TABLE))
    draft.start([3, 1])
    proposal = draft.propose([3, 1], 4, sampling, RANDOMNESS)
    text = [3, 1]
    for index, token in enumerate(proposal.tokens):
        expected = law(TABLE[text[-2], text[-1]], sampling)
        np.testing.assert_array_equal(proposal.laws[index], expected)
        assert token == draw(expected, RANDOMNESS.uniform(2 + index, Purpose.DRAFT))
        text.append(token)
    assert len(proposal.laws) == len(proposal.tokens) == 4


def test_only_rows_that_are_not_cached_are_computed() -> None:
    engine = TableEngine(TABLE)
    draft = ModelDraft(engine)
    draft.start([3, 1])
    first = draft.propose([3, 1, 4], 3, GREEDY, RANDOMNESS).tokens
    rejected = (first[1] + 1) % 8
    draft.propose([3, 1, 4, first[0], rejected], 1, GREEDY, RANDOMNESS)
    draft.propose([3, 1, 4, first[0], rejected], 1, GREEDY, RANDOMNESS)
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
    tokens = draft.propose([3, 1], 2, GREEDY, RANDOMNESS).tokens
    draft.propose([3, 1, *tokens, 5], 1, GREEDY, RANDOMNESS)
    # The last proposal was never an input of the draft itself.
    assert engine.steps[-1] == Step(3, (tokens[1], 5))
    assert engine.rows == [3, 1, *tokens, 5]


@pytest.mark.parametrize(("length", "proposed"), [(5, 4), (6, 3), (8, 1), (9, 0), (12, 0)])
def test_a_draft_with_a_short_context_proposes_less(length: int, proposed: int) -> None:
    text = [index % 8 for index in range(length)]
    draft = ModelDraft(TableEngine(TABLE, capacity=8))
    draft.start(text)
    tokens = draft.propose(text, 4, GREEDY, RANDOMNESS).tokens
    assert tokens == greedy_ids(TABLE, text, proposed)


def test_a_new_request_keeps_the_rows_it_shares() -> None:
    engine = TableEngine(TABLE)
    draft = ModelDraft(engine)
    draft.start([1, 2, 3, 4])
    draft.propose([1, 2, 3, 4, 5], 1, GREEDY, RANDOMNESS)
    draft.start([1, 2, 6])
    assert engine.rows == [1, 2]
    tokens = draft.propose([1, 2, 6, 0], 2, GREEDY, RANDOMNESS).tokens
    assert tokens == greedy_ids(TABLE, [1, 2, 6, 0], 2)
    assert engine.steps[-2] == Step(2, (6, 0))


def ngram_oracle(tokens: Sequence[int], limit: int, longest: int, shortest: int) -> list[int]:
    """Search the whole text, the longest ending first, from the latest place on."""
    for size in range(min(longest, len(tokens)), shortest - 1, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if tokens[end - size : end] == tokens[-size:]:
                return list(tokens[end : end + limit])
    return []


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.lists(st.integers(1, 4), max_size=8),
    st.integers(1, 5),
)
def test_ngrams_are_found_as_by_a_search_of_the_text(
    text: list[int], growth: list[int], limit: int
) -> None:
    draft = NgramDraft(longest=3, shortest=2)
    length = max(1, len(text) - sum(growth))
    draft.start(text[:length])
    for more in [*growth, 0]:
        tokens = text[:length]
        proposal = draft.propose(tokens, limit, GREEDY, RANDOMNESS)
        assert proposal.tokens == ngram_oracle(tokens, limit, 3, 2)
        assert proposal.laws == []
        length = min(len(text), length + more)


def test_a_new_request_forgets_the_text_of_the_last() -> None:
    draft = NgramDraft()
    draft.start([1, 2, 3, 1, 2])
    assert draft.propose([1, 2, 3, 1, 2], 3, GREEDY, RANDOMNESS).tokens == [3, 1, 2]
    draft.start([4, 1, 2])
    assert draft.propose([4, 1, 2], 3, GREEDY, RANDOMNESS).tokens == []
    assert draft.engine_seconds == 0.0
