import pytest

from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.words import WordListDraft
from tests.unit.runtime.drafting.drafters import GREEDY, within

ENTRIES = [[1, 2, 3, 4, 5], [1, 2, 3, 6], [2, 3, 7], [1, 2, 8], [9]]


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ([0, 1, 2], [3, 4, 5]),  # the entry that was given first
        ([0, 1, 2, 3], [4, 5]),
        ([0, 2, 3], [7]),
        ([1, 2, 3, 4], [5]),
        ([1, 2, 3, 4, 5], []),  # nothing is left of it
        ([0, 1], []),  # too short a beginning
        ([1, 2, 0], []),
        ([9], []),
        ([], []),
    ],
)
def test_the_rest_of_an_entry_is_proposed(text: list[int], chain: list[int]) -> None:
    proposal = WordListDraft(ENTRIES).propose(text, Effort(3, 3), GREEDY)
    assert proposal.tokens == chain
    assert proposal.is_chain


def test_the_longest_beginning_counts() -> None:
    draft = WordListDraft([[2, 3, 7], [1, 2, 3, 4]])
    assert draft.propose([1, 2, 3], Effort(1, 1), GREEDY).tokens == [4]
    assert draft.propose([0, 2, 3], Effort(1, 1), GREEDY).tokens == [7]


def test_an_entry_may_begin_as_another_ends() -> None:
    draft = WordListDraft([[1, 2, 3], [2, 3, 4, 5]])
    assert draft.propose([1, 2, 3], Effort(2, 2), GREEDY).tokens == [4, 5]


def test_other_entries_stand_beside_the_first() -> None:
    effort = Effort(2, 4, beside=(6, 3))
    proposal = WordListDraft(ENTRIES).propose([1, 2], effort, GREEDY)
    assert [proposal.path(node) for node in range(1, 5)] == [[3], [3, 4], [3, 6], [8]]
    assert within(proposal, effort)
    assert WordListDraft(ENTRIES).propose([1, 2], Effort(2, 5, beside=(6, 3)), GREEDY).tokens == [
        *proposal.tokens,
        6,
    ]


def test_one_token_may_be_beginning_enough() -> None:
    draft = WordListDraft(ENTRIES, shortest=1)
    assert draft.propose([1], Effort(2, 2), GREEDY).tokens == [2, 3]
    assert WordListDraft([]).propose([1, 2], Effort(2, 2), GREEDY).tokens == []
