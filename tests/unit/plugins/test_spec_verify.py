from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.plugins.laws import Sampling, law
from speccompile.plugins.schema import INVALID, RULES, Rule
from speccompile.plugins.spec_verify import Tree, TreeVerdict, spec_verify
from tests.trees import Logits, random_rounds, verdicts

SAMPLING = Sampling(temperature=1.0)
PROBLEMS = 500


def test_on_chains_the_token_rule_is_speculative_sampling() -> None:
    for seed in range(PROBLEMS):
        logits, draft_logits, tree, uniforms, sampling = _chain(seed)
        p, q = _laws(logits, sampling), _laws(draft_logits, sampling)
        expected = _speculative_sampling(p, q, tree.tokens[1:].tolist(), uniforms / 2.0**53)
        verdict = spec_verify("token", logits, tree, uniforms, sampling, draft_logits)
        assert (len(verdict.path) - 1, verdict.next_token) == expected, seed


def test_on_chains_the_traversal_is_block_verification() -> None:
    for seed in range(PROBLEMS):
        logits, draft_logits, tree, uniforms, sampling = _chain(seed)
        p, q = _laws(logits, sampling), _laws(draft_logits, sampling)
        expected = _block(p, q, tree.tokens[1:].tolist(), uniforms / 2.0**53)
        verdict = spec_verify("traversal", logits, tree, uniforms, sampling, draft_logits)
        assert (len(verdict.path) - 1, verdict.next_token) == expected, seed


def test_at_temperature_0_every_rule_is_greedy() -> None:
    rounds = random_rounds(1, 300, 8, 6, broken=0.0)
    rounds.sampling[:, 0] = 0.0
    greedy = verdicts("greedy", rounds)
    assert np.unique(greedy["count"] - rounds.given).size > 3
    for rule in RULES[1:]:
        found = verdicts(rule, rounds)
        for name, expected in greedy.items():
            assert np.array_equal(found[name], expected), (rule, name)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_rounds_emit_what_plain_greedy_decoding_does(seed: int) -> None:
    # Few different values: ties are frequent, and must fall as in plain decoding.
    rows = np.random.default_rng(seed).integers(0, 3, (40, 3)).astype(np.float32)  # by context
    for first, second in product(range(3), repeat=2):
        contexts = [0, 1 + first, 4 + 3 * first + second]
        tree = Tree(np.array([0, first, second]), np.array([-1, 0, 1]))
        verdict = spec_verify("greedy", rows[contexts], tree)
        plain = [int(row.argmax()) for row in rows[contexts]]
        accepted = len(verdict.path) - 1
        assert verdict.emitted(tree) == plain[: accepted + 1]
        assert accepted == 2 or plain[accepted] != (first, second)[accepted]


def test_the_first_of_equal_siblings_is_followed() -> None:
    logits = np.eye(4, dtype=np.float32)[[2, 1, 3, 0, 0]]
    tree = Tree(np.array([0, 1, 2, 2, 3]), np.array([-1, 0, 0, 0, 2]))
    assert spec_verify("greedy", logits, tree) == TreeVerdict([0, 2, 4], 0)


def test_given_nodes_are_not_in_question() -> None:
    logits = np.eye(4, dtype=np.float32)[[3, 3, 1, 2]]
    tree = Tree(np.array([0, 0, 0, 1]), np.array([-1, 0, 1, 2]), given=3)
    verdict = spec_verify("greedy", logits, tree)
    assert verdict == TreeVerdict([0, 1, 2, 3], 2)
    assert verdict.emitted(tree) == [1, 2]
    whole = replace(tree, given=4)
    assert spec_verify("greedy", logits, whole).emitted(whole) == [2]


def test_padding_and_children_of_given_nodes_are_passed_over() -> None:
    logits = np.eye(4, dtype=np.float32)[[1, 1, 1, 1]]
    tree = Tree(np.array([0, 0, 1, 1]), np.array([-1, 0, 0, -1]), given=2)
    assert tree.children(1) == []
    assert spec_verify("greedy", logits, tree) == TreeVerdict([0, 1], 1)


@pytest.mark.parametrize("rule", RULES)
def test_an_invalid_row_ends_the_round(rule: Rule) -> None:
    logits = np.eye(4, dtype=np.float32)[[1, 2, 3]] * 99
    logits[1, 3] = np.nan
    tree = Tree(np.array([0, 1, 2]), np.array([-1, 0, 1]))
    verdict = spec_verify(rule, logits, tree, np.zeros((3, 2), np.int64), SAMPLING, logits * 0)
    assert verdict.next_token == INVALID
    # The traversal decides from the leaf up, and has decided nothing yet.
    assert verdict.path == ([0] if rule == "traversal" else [0, 1])
    assert verdict.emitted(tree)[-1] == INVALID


@pytest.mark.parametrize("rule", ["token", "traversal"])
def test_an_invalid_row_of_the_draft_does_so_only_behind_an_inner_node(rule: Rule) -> None:
    logits = np.eye(4, dtype=np.float32)[[1, 2]] * 99
    tree, uniforms = Tree(np.array([0, 1]), np.array([-1, 0])), np.zeros((2, 2), np.int64)
    for broken, expected in ((0, TreeVerdict([0], INVALID)), (1, TreeVerdict([0, 1], 2))):
        draft_logits = logits.copy()
        draft_logits[broken] = np.nan
        assert spec_verify(rule, logits, tree, uniforms, SAMPLING, draft_logits) == expected


def test_a_rule_says_what_it_lacks() -> None:
    logits, tree = np.zeros((1, 4), np.float32), Tree(np.array([0]), np.array([-1]))
    with pytest.raises(ValueError, match="walk needs uniform numbers"):
        spec_verify("walk", logits, tree)
    with pytest.raises(ValueError, match="token needs the draft's logits"):
        spec_verify("token", logits, tree, np.zeros((1, 2), np.int64))


def _chain(seed: int) -> tuple[Logits, Logits, Tree, NDArray[np.int64], Sampling]:
    """Logits of a target and a draft, a proposal that the draft drew, uniform numbers."""
    rng = np.random.default_rng(seed)
    length, vocabulary = int(rng.integers(1, 7)), 12
    logits = (2 * rng.normal(size=(length + 1, vocabulary))).astype(np.float32)
    draft_logits = (logits + rng.normal(size=logits.shape)).astype(np.float32)
    sampling = Sampling(1.0, top_k=int(rng.choice([0, 8])), top_p=float(rng.choice([0.9, 1.0])))
    tokens = [0] + [
        int(rng.choice(vocabulary, p=row / row.sum())) for row in _laws(draft_logits[:-1], sampling)
    ]
    uniforms = rng.integers(0, 2**53, (length + 1, 2))
    return logits, draft_logits, Tree(np.array(tokens), np.arange(-1, length)), uniforms, sampling


def _laws(logits: Logits, sampling: Sampling) -> list[NDArray[np.float64]]:
    laws = [law(row, sampling) for row in logits]
    return [row.astype(np.float64) for row in laws if row is not None]


def _speculative_sampling(
    p: Sequence[NDArray[np.float64]],
    q: Sequence[NDArray[np.float64]],
    proposal: Sequence[int],
    uniforms: NDArray[np.float64],
) -> tuple[int, int]:
    """Token by token (arXiv 2211.17192 and 2302.01318): how many stand, and the next token."""
    for count, token in enumerate(proposal):
        if uniforms[count + 1, 0] * q[count][token] >= p[count][token]:
            return count, _drawn(np.maximum(p[count] - q[count], 0.0), float(uniforms[count, 1]))
    return len(proposal), _drawn(p[-1], float(uniforms[-1, 1]))


def _block(
    p: Sequence[NDArray[np.float64]],
    q: Sequence[NDArray[np.float64]],
    proposal: Sequence[int],
    uniforms: NDArray[np.float64],
) -> tuple[int, int]:
    """Block verification (arXiv 2403.10444): how many stand, and the next token.

    The last prefix whose own number allows it stands, not the one before the first that falls.
    """
    weights = [1.0]
    for index, token in enumerate(proposal):
        weights.append(min(1.0, weights[-1] * p[index][token] / q[index][token]))
    accepted, following = 0, p[-1]
    for count in range(len(proposal) + 1):
        residual = np.maximum(weights[count] * p[count] - q[count], 0.0)
        if count == len(proposal):
            stands = weights[count]
            residual = p[count]
        elif residual.sum() + 1 - weights[count] == 0.0:
            stands, residual = 1.0, p[count]
        else:
            stands = residual.sum() / (residual.sum() + 1 - weights[count])
        if count == 0 or uniforms[count, 0] <= stands:
            accepted, following = count, residual
    return accepted, _drawn(following, float(uniforms[accepted, 1]))


def _drawn(law: NDArray[np.float64], uniform: float) -> int:
    cumulated = np.cumsum(law)
    return int(np.searchsorted(cumulated, uniform * cumulated[-1], side="right"))
