import numpy as np
import pytest

from speccompile.plugins.laws import Sampling as Filters
from speccompile.plugins.laws import draw, law
from speccompile.plugins.spec_verify import Tree, spec_verify
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import EngineError
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Randomness, Sampling
from speccompile.runtime.verify import LEAST_MARGIN, Verdict, verify
from tests.unit.runtime.tables import VOCABULARY, make_table, near_table

TABLE = make_table(100)
DRAFT_TABLE = near_table(TABLE, 101)
TOKENS = [0] * 9
Asked = list[str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The random numbers that were used."""
    numbers: Asked = []
    for name in ("emit", "accept", "draft"):
        known = getattr(Randomness, name)

        def noted(self: Randomness, *key: int, name: str = name, known: object = known) -> object:
            numbers.append(f"{name}{key}")
            return known(self, *key)  # type: ignore[operator]

        monkeypatch.setattr(Randomness, name, noted)
    return numbers


def test_greedy_verification_needs_no_random_numbers(asked: Asked) -> None:
    choices = TABLE[0, :4].argmax(axis=-1).tolist()
    proposal = Proposal.chain([*choices[:2], (choices[2] + 1) % VOCABULARY])
    verdict = verify(TABLE[0, :4], proposal, TOKENS, Sampler(Sampling()))
    assert verdict == Verdict([0, 1, 2], choices[2])
    assert asked == []


def test_a_round_without_proposals_draws_one_number(asked: Asked) -> None:
    sampling = Sampling(1.0, seed=3)
    verdict = verify(TABLE[0, :1], Proposal(), TOKENS, Sampler(sampling))
    assert asked == ["emit(9,)"]
    expected = law(TABLE[0, 0], sampling.filters)
    assert expected is not None
    assert verdict == Verdict([0], draw(expected, Randomness(3).emit(9)) or 0)


@pytest.mark.parametrize("sampling", [Sampling(0.8, 4, seed=3), Sampling(0.8, audited=True)])
def test_derived_proposals_only_meet_what_the_target_chooses(sampling: Sampling) -> None:
    sampler, rows = Sampler(sampling), TABLE[1, :3]
    first = sampler.choose(rows[0], TOKENS).token
    for token in range(VOCABULARY):
        verdict = verify(rows, Proposal.chain([token, 1]), TOKENS, sampler)
        assert verdict.path[:2] == ([0, 1] if token == first else [0])
        if token != first:
            assert verdict.token == first
        else:
            second = sampler.choose(rows[1], TOKENS, [token]).token
            assert (len(verdict.path) == 3) == (second == 1)


@pytest.mark.parametrize("rule", ["token", "traversal"])
def test_drawn_trees_are_judged_as_the_oracle_does(rule: Rule) -> None:
    filters, lengths = Filters(1.3, top_p=0.9), set[int]()
    for seed in range(200):
        sampler = Sampler(Sampling(1.3, top_p=0.9, seed=seed))
        rows, drafts = (table[seed % 8, :5] for table in (TABLE, DRAFT_TABLE))
        first, third = sampler.guesses(drafts[0], TOKENS, [], 2, node=1)
        second, fourth = sampler.guesses(drafts[1], TOKENS, [first.token], 2, node=2)
        guesses, parents = [first, second, third, fourth], [0, 1, 0, 1]
        proposal = Proposal(
            [each.token for each in guesses], parents, [each.law for each in guesses]
        )
        uniforms = np.array(
            [
                [sampler.randomness.accept(8, node), sampler.randomness.emit(9 + depth)]
                for node, depth in enumerate([0, 1, 2, 1, 2])
            ]
        )
        tree = Tree(np.array([0, *proposal.tokens]), np.array([-1, *parents]))
        expected = spec_verify(rule, rows, tree, uniforms, filters, drafts)
        verdict = verify(rows, proposal, TOKENS, sampler, rule)
        assert verdict == (expected.path, expected.next_token), seed
        lengths.add(len(verdict.path))
    assert lengths == {1, 2, 3}


def test_a_certain_child_in_a_drawn_tree_stands_as_often_as_the_target_has_it() -> None:
    row = np.array([0.0, 1.0, 2.0, 0.5], np.float32)
    q = law(np.zeros(4, np.float32), Filters(1.0))
    p = law(row, Filters(1.0))
    assert q is not None
    assert p is not None
    counts = np.zeros(4)
    for seed in range(4000):
        sampler = Sampler(Sampling(1.0, seed=seed))
        drawn = draw(q, sampler.randomness.draft(8, 1)) or 0
        proposal = Proposal([drawn, 2], [0, 0], [q, None])
        verdict = verify(np.stack([row] * 3), proposal, TOKENS, sampler)
        first = [*(proposal.tokens[node - 1] for node in verdict.path[1:]), verdict.token][0]
        counts[first] += 1
    assert np.abs(counts / counts.sum() - p).max() < 0.03


def test_an_undecided_row_off_the_first_chain_is_asked_again_as_a_root() -> None:
    clear = np.array([0.0, 9.0, 0.0, 0.0], np.float32)
    tied = np.array([0.0, 5.0, 5.0 - LEAST_MARGIN / 2, 0.0], np.float32)
    proposal = Proposal([2, 1, 1], [0, 0, 2], [None] * 3)
    sampler = Sampler(Sampling())
    # Node 2 is the second child: its row is believed only if it is clear.
    assert verify(_rows(clear, clear, clear, clear), proposal, TOKENS, sampler).path == [0, 2, 3]
    assert verify(_rows(clear, clear, tied, clear), proposal, TOKENS, sampler) == ([0], 1)
    # A row of the first chain is the very row of plain decoding.
    chain = Proposal.chain([1])
    assert verify(_rows(clear, tied), chain, TOKENS, sampler) == ([0, 1], 1)


def test_disjoint_supports_give_a_token_of_the_target() -> None:
    target, draft = np.arange(8, dtype=np.float32), -np.arange(8, dtype=np.float32)
    for seed in range(200):
        sampler = Sampler(Sampling(1.0, top_k=2, seed=seed))
        [guess] = sampler.guesses(draft, TOKENS, [], 1, node=1)
        proposal = Proposal([guess.token], [0], [guess.law])
        verdict = verify(np.stack([target, target]), proposal, TOKENS, sampler)
        assert guess.token in (0, 1)
        assert verdict.path == [0]
        assert verdict.token in (6, 7)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(poison: float, temperature: float) -> None:
    logits = np.zeros((2, 8), np.float32)
    logits[0, 3] = poison
    with pytest.raises(EngineError, match="not finite"):
        verify(logits, Proposal.chain([1]), [5], Sampler(Sampling(temperature)))


def _rows(*rows: Logits) -> Logits:
    return np.stack(rows)
