"""What is in the caches of a session: after every round, and from one request to the next."""

from collections.abc import Sequence
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import EngineError
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Finish, Request, Session
from tests.unit.runtime.tables import Step, Table, TableEngine, greedy_ids, make_table, near_table

TABLE = make_table(1)
NEAR = near_table(TABLE, 2)
SAMPLED = Sampling(1.0, seed=5)


class CheckedDraft(ModelDraft):
    """Looks at both caches when a round begins, and at its own when it has proposed."""

    def __init__(self, engine: TableEngine, target: TableEngine) -> None:
        super().__init__(engine)
        self.caches = engine, target
        self.rounds = 0

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        own, target = self.caches
        assert target.rows == list(tokens[:-1])
        proposal = super().propose(tokens, effort, sampler)
        assert own.rows == [*tokens, *proposal.tokens[:-1]]
        self.rounds += 1
        return proposal


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=str)
@pytest.mark.parametrize("table", [TABLE, NEAR, make_table(3)], ids=["same", "near", "random"])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_caches_hold_the_committed_tokens_after_every_round(
    sampling: Sampling, table: Table, length: int
) -> None:
    target = TableEngine(TABLE)
    draft = CheckedDraft(TableEngine(table), target)
    session = Session(target, draft)
    for prompt in ([3, 1, 4], [3, 1, 5, 2, 6], [3]):
        request = Request(30, sampling, draft_length=length)
        ids = list(session.generate(prompt, request))
        assert target.rows == [*prompt, *ids][:-1]
    assert draft.rounds > 10


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=str)
@pytest.mark.parametrize(
    ("first", "second", "reused"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 5, 6], 3),
        ([1, 2, 3, 4], [1, 2, 3, 4], 3),
        ([1, 2, 3, 4], [1, 2], 1),
        ([1, 2, 3, 4], [2, 2, 3, 4], 0),
    ],
)
def test_a_shared_beginning_is_reused_and_changes_nothing(
    sampling: Sampling, first: list[int], second: list[int], reused: int
) -> None:
    target = TableEngine(TABLE)
    session = Session(target, ModelDraft(TableEngine(NEAR)))
    list(session.generate(first, Request(12, sampling, draft_length=3)))
    target.steps.clear()
    request = Request(12, sampling, draft_length=3)
    ids = list(session.generate(second, request))
    assert session.statistics.reused_tokens == reused
    assert target.steps[0] == Step(reused, tuple(second[reused:]))
    cold = Session(TableEngine(TABLE), ModelDraft(TableEngine(NEAR)))
    assert ids == list(cold.generate(second, request))
    assert cold.statistics.reused_tokens == 0


def test_a_conversation_computes_only_what_is_new() -> None:
    target = TableEngine(TABLE)
    session = Session(target, ModelDraft(TableEngine(NEAR)))
    text = [1, 2, 3]
    for _ in range(3):
        text += session.generate(text, Request(8, draft_length=3))
        target.steps.clear()
        text += [7, 0]
        expected = greedy_ids(TABLE, text, 4)
        assert list(session.generate(text, Request(4, draft_length=3))) == expected
        # The last token of the answer was emitted, but never an input.
        assert target.steps[0] == Step(len(text) - 3, tuple(text[-3:]))


@pytest.mark.parametrize("taken", range(8))
def test_an_abandoned_request_leaves_the_caches_usable(taken: int) -> None:
    session = Session(TableEngine(TABLE), ModelDraft(TableEngine(TABLE)))
    ids = list(islice(session.generate([1, 2, 3], Request(30, draft_length=4)), taken))
    prompt = [1, 2, 3, *ids, 6]
    assert list(session.generate(prompt, Request(15, draft_length=4))) == greedy_ids(
        TABLE, prompt, 15
    )


def test_a_stop_inside_a_block_leaves_the_caches_usable() -> None:
    ids = greedy_ids(TABLE, [1, 2], 6)
    session = Session(TableEngine(TABLE), ModelDraft(TableEngine(TABLE)))
    stop = next(token for token in ids[1:] if token != ids[0])
    list(session.generate([1, 2], Request(6, draft_length=5, stop_tokens=frozenset({stop}))))
    assert session.finish is Finish.STOP
    prompt = [1, 2, ids[0], 7]
    assert list(session.generate(prompt, Request(9))) == greedy_ids(TABLE, prompt, 9)


class FailingEngine(TableEngine):
    """Fails at one step, counted from zero."""

    failing = -1

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        if len(self.steps) == self.failing:
            self.failing = -1
            raise EngineError("the device is gone")
        return super().step(tokens, parents=parents, last=last)


@pytest.mark.parametrize("failing", range(6))
@pytest.mark.parametrize("side", ["target", "draft"])
def test_a_failed_step_fails_its_request_only(side: str, failing: int) -> None:
    target, own = FailingEngine(TABLE), FailingEngine(NEAR)
    (target if side == "target" else own).failing = failing
    session = Session(target, ModelDraft(own))
    with pytest.raises(EngineError, match="device is gone"):
        list(session.generate([1, 2, 3], Request(40, draft_length=3)))
    for prompt in ([1, 2, 3], [1, 2, 4, 5]):
        assert list(session.generate(prompt, Request(20, draft_length=3))) == greedy_ids(
            TABLE, prompt, 20
        )


class ScriptedDraft:
    """Proposes whatever it is told to, of whatever length."""

    name = "script"
    work = Work()

    def __init__(self, proposals: list[list[int]]) -> None:
        self._proposals = iter(proposals)

    def start(self, prompt: Sequence[int]) -> None: ...

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        return Proposal.chain(next(self._proposals, [])[: effort.nodes])


tokens = st.integers(0, 7)


def test_a_rejected_proposal_is_not_taken_for_a_cached_row() -> None:
    first, second = greedy_ids(TABLE, [1, 2], 2)
    wrong = (second + 1) % 8
    session = Session(TableEngine(TABLE), ScriptedDraft([[wrong, 3, 4]]))
    assert list(islice(session.generate([1, 2], Request(draft_length=3)), 2)) == [first, second]
    prompt = [1, 2, first, wrong, 3, 4, 5]
    assert list(session.generate(prompt, Request(5))) == greedy_ids(TABLE, prompt, 5)
    assert session.statistics.reused_tokens == 3


def test_a_sequence_that_was_replaced_is_not_taken_for_cached_rows() -> None:
    target = TableEngine(TABLE)
    session = Session(target, ModelDraft(TableEngine(NEAR)))
    for prompt in ([1, 2, 3, 4, 5, 6], [7, 7], [1, 2, 3, 4, 5, 6]):
        assert list(session.generate(prompt, Request(1))) == greedy_ids(TABLE, prompt, 1)
        assert session.statistics.reused_tokens == 0
        assert target.rows == prompt


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.lists(st.lists(tokens, max_size=6), max_size=10),
    st.lists(
        st.tuples(st.lists(tokens, min_size=1, max_size=6), st.integers(0, 12), st.integers(0, 6)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([Sampling(), SAMPLED]),
)
def test_no_history_of_requests_and_guesses_changes_an_output(
    proposals: list[list[int]], requests: list[tuple[list[int], int, int]], sampling: Sampling
) -> None:
    session = Session(TableEngine(TABLE, capacity=14), ScriptedDraft(proposals))
    for prompt, count, length in requests:
        request = Request(count, sampling, draft_length=length)
        plain = Session(TableEngine(TABLE, capacity=14))
        assert list(session.generate(prompt, request)) == list(plain.generate(prompt, request))
