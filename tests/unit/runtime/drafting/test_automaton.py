from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.runtime.drafting.automaton import SuffixAutomaton

# A text of up to 16 tokens has up to 16 endings, all of which are counted.
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=16)


def occurrences(text: Sequence[int], part: Sequence[int]) -> list[int]:
    """Where they end."""
    ends = range(len(part), len(text) + 1)
    return [end for end in ends if text[end - len(part) : end] == part]


def longest_repeated_ending(text: Sequence[int]) -> Sequence[int]:
    endings = (text[start:] for start in range(1, len(text)))
    return next((ending for ending in endings if len(occurrences(text, ending)) > 1), [])


def read(text: Sequence[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for token in text:
        automaton.read(token)
    return automaton


@settings(derandomize=True, max_examples=300, deadline=None)
@given(TEXTS)
def test_the_longest_repeated_ending_and_its_followers_are_those_of_a_search(
    text: list[int],
) -> None:
    automaton = SuffixAutomaton()
    for size, token in enumerate(text, start=1):
        automaton.read(token)
        part = longest_repeated_ending(text[:size])
        state = automaton.repeated
        assert automaton.length(state) == len(part)
        if part:
            expected = {
                token: occurrences(text[:size], [*part, token])
                for token in range(3)
                if occurrences(text[:size], [*part, token])
            }
            found = automaton.followers(state)
            assert {each.token: each.times for each in found} == {
                token: len(ends) for token, ends in expected.items()
            }
            order = sorted(expected, key=lambda each: (-len(expected[each]), -expected[each][-1]))
            assert [each.token for each in found] == order


@settings(derandomize=True, max_examples=100, deadline=None)
@given(TEXTS)
def test_a_state_goes_on_as_the_text_does(text: list[int]) -> None:
    """From follower to follower, every path is a substring with its count."""
    automaton = read(text)
    waiting = [(longest_repeated_ending(text), automaton.repeated)]
    while waiting:
        part, state = waiting.pop()
        for each in automaton.followers(state):
            longer = [*part, each.token]
            if occurrences(text, longer):
                assert each.times == len(occurrences(text, longer))
                waiting.append((longer, each.state))


def test_a_text_that_ends_in_a_loop_goes_on_in_it() -> None:
    automaton = read([9, 1, 2, 3, 1, 2, 3, 1])
    state, tokens = automaton.repeated, list[int]()
    for _ in range(8):
        first = automaton.followers(state)[0]
        tokens.append(first.token)
        state = first.state
    assert tokens == [2, 3, 1, 2, 3, 1, 2, 3]


def test_a_boundary_is_never_a_follower_and_nothing_is_said_of_the_empty_substring() -> None:
    automaton = read([1, 2, -1, 1, 2])
    assert automaton.length(automaton.repeated) == 2
    assert automaton.followers(automaton.repeated) == []
    automaton = read([1, 2, -1, 1, 2, 3, 1, 2])
    assert [each.token for each in automaton.followers(automaton.repeated)] == [3]
    empty = SuffixAutomaton()
    assert (empty.repeated, empty.length(empty.repeated), empty.followers(0)) == (0, 0, [])


def test_states_are_at_most_twice_the_tokens() -> None:
    text = [index * index % 7 for index in range(300)] + [1] * 50
    automaton = read(text)
    states = {0}
    while True:
        reached = {each.state for state in states for each in automaton.followers(state)}
        if reached <= states:
            break
        states |= reached
    assert len(states) <= 2 * len(text)
