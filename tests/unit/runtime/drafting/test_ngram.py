from collections.abc import Sequence
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.metered import Work
from tests.unit.runtime.drafting.drafters import GREEDY


def matches(tokens: Sequence[int], longest: int, shortest: int) -> list[int]:
    """Where the longest repeated ending goes on, the latest place first: a search of the text."""
    for size in range(min(longest, len(tokens)), shortest - 1, -1):
        ends = range(len(tokens) - 1, size - 1, -1)
        found = [end for end in ends if tokens[end - size : end] == tokens[-size:]]
        if found:
            return found
    return []


def followed(tokens: Sequence[int], start: int, count: int) -> list[int]:
    """One token after the other, each also a source for those behind it."""
    text = list(tokens)
    for index in range(count):
        text.append(text[start + index])
    return text[len(tokens) :]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.lists(st.integers(1, 4), max_size=8),
    st.integers(1, 5),
)
def test_ngrams_are_found_as_by_a_search_of_the_text(
    text: list[int], growth: list[int], depth: int
) -> None:
    draft = NgramDraft(longest=3, shortest=2)
    length = max(1, len(text) - sum(growth))
    draft.start(text[:length])
    for more in [*growth, 0]:
        tokens = text[:length]
        found = matches(tokens, 3, 2)
        proposal = draft.propose(tokens, Effort(depth, depth), GREEDY)
        assert proposal.tokens == (followed(tokens, found[0], depth) if found else [])
        assert proposal.is_chain
        assert not proposal.drawn

        chains: dict[int, list[int]] = {}  # by their first token, the latest first
        for end in found:
            chains.setdefault(tokens[end], followed(tokens, end, depth))
        tree = draft.propose(tokens, Effort(depth, 3 * depth), GREEDY)
        assert tree.tokens == [*chain.from_iterable(list(chains.values())[:3])]
        length = min(len(text), length + more)


def test_other_continuations_share_the_nodes_that_are_left() -> None:
    draft, text = NgramDraft(), [1, 2, 3, 7, 1, 2, 4, 8, 1, 2, 5, 9, 1, 2, 3, 6, 1, 2]
    proposal = draft.propose(text, Effort(3, 7, beside=(4, 0)), GREEDY)
    assert proposal.tokens == [3, 6, 1, 5, 9, 1, 4]
    assert proposal.parents == [0, 1, 2, 0, 4, 5, 0]
    assert draft.propose(text, Effort(3, 8, beside=(4, 0)), GREEDY).tokens[6:] == [4, 8]
    assert draft.propose(text, Effort(3, 3, beside=(4, 0)), GREEDY).tokens == [3, 6, 1]


def test_of_many_continuations_the_latest_three_are_kept() -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 2, 5, 1, 2, 6, 1, 2]
    assert NgramDraft().propose(text, Effort(1, 9), GREEDY).tokens == [6, 5, 4]


def test_a_new_request_forgets_the_text_of_the_last() -> None:
    draft = NgramDraft()
    draft.start([1, 2, 3, 1, 2])
    assert draft.propose([1, 2, 3, 1, 2], Effort(3, 3), GREEDY).tokens == [3, 1, 2]
    draft.start([4, 1, 2])
    assert draft.propose([4, 1, 2], Effort(3, 3), GREEDY).tokens == []
    assert draft.work == Work()


def test_without_a_match_only_what_was_asked_for_is_proposed() -> None:
    assert NgramDraft().propose([1, 2], Effort(2, 4, beside=(7, 8)), GREEDY).parents == [0, 0]
