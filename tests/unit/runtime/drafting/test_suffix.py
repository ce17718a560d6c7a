from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.suffix import SuffixDraft
from tests.unit.runtime.drafting.drafters import GREEDY, within

PASSAGE = [10 + index for index in range(30)]


def propose(
    draft: SuffixDraft, tokens: Sequence[int], depth: int, nodes: int | None = None
) -> list[int]:
    effort = Effort(depth, depth if nodes is None else nodes)
    proposal = draft.propose(tokens, effort, GREEDY)
    assert within(proposal, effort)
    assert not proposal.drawn
    return proposal.tokens


@pytest.mark.parametrize(("matched", "proposed"), [(1, 0), (2, 4), (3, 6), (8, 16), (12, 18)])
def test_the_longer_the_match_the_longer_the_proposal(matched: int, proposed: int) -> None:
    draft = SuffixDraft(factor=2.0)
    text = [*PASSAGE, 1, *PASSAGE[:matched]]
    assert propose(draft, text, 24)[:proposed] == PASSAGE[matched : matched + proposed]
    assert draft.matched == matched
    assert len(propose(draft, text, 24)) == min(24, 2 * matched if matched >= 2 else 0)


def test_exact_copies_are_proposed_whole_as_they_go_on() -> None:
    draft = SuffixDraft()
    draft.start([*PASSAGE, 1])
    text, rounds = [*PASSAGE, 1, *PASSAGE[:2]], 0
    while len(text) < 61:
        chain = propose(draft, text, 16)
        assert chain[: 61 - len(text)] == PASSAGE[len(text) - 31 :][: len(chain)]
        text, rounds = [*text, *chain][:61], rounds + 1
    assert rounds == 3  # 4, 12 and the rest


def test_the_most_frequent_continuation_comes_first_and_the_latest_of_equals() -> None:
    draft = SuffixDraft()
    text = [1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2]
    assert propose(draft, text, 1) == [3]
    draft.start([])
    assert propose(draft, [1, 2, 3, 0, 1, 2, 4, 9, 1, 2], 1) == [4]


def test_a_tree_holds_the_likeliest_paths() -> None:
    text = [1, 2, 3, 5, 1, 2, 3, 6, 1, 2, 4, 7, 1, 2]
    proposal = SuffixDraft(least=0.0).propose(text, Effort(2, 4), GREEDY)
    # 3 and then 6 or 5: 2/3, 1/3 and 1/3; 4: 1/3.
    assert [proposal.path(node) for node in range(1, 5)] == [[3], [3, 6], [3, 5], [4]]
    assert SuffixDraft(least=0.5).propose(text, Effort(2, 4), GREEDY).tokens == [3]
    chain = SuffixDraft().propose(text, Effort(3, 3), GREEDY)
    assert chain.is_chain
    assert chain.tokens == [3, 6, 1]


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=24), st.integers(1, 23))
def test_it_reads_a_text_in_pieces_as_at_once(text: list[int], first: int) -> None:
    pieces, whole = SuffixDraft(), SuffixDraft()
    pieces.start(text[:first])
    propose(pieces, text[:first], 3, 6)
    assert propose(pieces, text, 3, 6) == propose(whole, text, 3, 6)


def test_a_request_that_goes_on_with_the_last_text_keeps_it_and_another_forgets_it() -> None:
    draft = SuffixDraft()
    draft.start(PASSAGE)
    draft.start([*PASSAGE, 1, 10, 11])
    assert propose(draft, [*PASSAGE, 1, 10, 11], 2) == [12, 13]
    draft.start([1, 10, 11])
    assert propose(draft, [1, 10, 11], 2) == []


def test_a_history_finds_what_earlier_requests_said_but_never_across_two_of_them() -> None:
    draft = SuffixDraft(history=100)
    draft.start(PASSAGE)
    draft.start([1, 10, 11])
    assert propose(draft, [1, 10, 11], 2) == [12, 13]
    assert propose(draft, [1, 10, 11, 38, 39], 2) == []  # the passage ends here
    draft.start([11, 38, 39])
    assert propose(draft, [11, 38, 39], 2) == []  # here ended the request before, too


def test_of_a_long_history_the_older_half_is_forgotten() -> None:
    draft = SuffixDraft(history=40)
    draft.start(PASSAGE)
    draft.start([100 + index for index in range(25)])
    draft.start([1, 10, 11])
    assert propose(draft, [1, 10, 11], 2) == []
    assert propose(draft, [1, 10, 11, 102, 103], 2) == []
    assert propose(draft, [1, 10, 11, 102, 103, 110, 111], 2) == [112, 113]
