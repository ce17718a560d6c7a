from collections.abc import Callable
from itertools import zip_longest

import numpy as np
import pytest

from speccompile.runtime import engine as engine_module
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.errors import RequestError
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Finish, Request, Session
from tests.unit.runtime.tables import TableEngine, greedy_ids, make_table, near_table

TABLE = make_table(1)
NEAR = near_table(TABLE, 2)
SAMPLED = Sampling(1.0, seed=3)
PROMPTS = [np.random.default_rng(seed).integers(0, 8, 1 + seed % 7).tolist() for seed in range(20)]
AUDITED = Sampling(0.9, seed=3, audited=True)


class Growing:
    """Trees of another shape in every round."""

    def __init__(self) -> None:
        self.rounds = 0

    def start(self) -> None: ...

    def effort(self, room: int) -> Effort | None:
        self.rounds += 1
        depth = min(room, self.rounds % 5)
        branches = {level: 1 + (self.rounds + level) % 3 for level in range(depth)}
        return Effort(depth, depth * 3, branches=branches) if depth else None

    def learn(self, outcome: object) -> None: ...


TREES: dict[str, Callable[[], Controller]] = {
    "leaves": lambda: FixedController(3, 8),
    "root": lambda: FixedController(1, 4),
    "growing": Growing,
}
DRAFTS: dict[str, Callable[[], Draft]] = {
    "same": lambda: ModelDraft(TableEngine(TABLE)),
    "near": lambda: ModelDraft(TableEngine(near_table(TABLE, 2))),
    "random": lambda: ModelDraft(TableEngine(make_table(3))),
    "short": lambda: ModelDraft(TableEngine(TABLE, capacity=12)),
    "ngram": NgramDraft,
}


def session(draft: str | None = None, capacity: int = 64, tree: str | None = None) -> Session:
    controller = TREES[tree]() if tree else None
    return Session(TableEngine(TABLE, capacity), DRAFTS[draft]() if draft else None, controller)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("length", range(9))
def test_greedy_output_is_that_of_plain_decoding(draft: str, length: int) -> None:
    for prompt in PROMPTS:
        one = session(draft)
        ids = list(one.generate(prompt, Request(24, draft_length=length)))
        assert ids == greedy_ids(TABLE, prompt, 24)
        assert one.finish is Finish.LENGTH


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("tree", TREES)
def test_so_it_is_with_trees(draft: str, tree: str) -> None:
    for prompt in PROMPTS:
        one = session(draft, tree=tree)
        assert list(one.generate(prompt, Request(24))) == greedy_ids(TABLE, prompt, 24)


def test_a_tree_finds_what_a_chain_of_its_depth_misses() -> None:
    lengths = {"chain": 0.0, "tree": 0.0}
    for kind, nodes in (("chain", 3), ("tree", 12)):
        for prompt in PROMPTS:
            draft = ModelDraft(TableEngine(near_table(TABLE, 2, noise=2.0)))
            one = Session(TableEngine(TABLE), draft, FixedController(3, nodes))
            list(one.generate(prompt, Request(24)))
            lengths[kind] += one.statistics.accepted_length
    assert lengths["tree"] > 1.08 * lengths["chain"]


def test_accepted_tokens_off_the_first_chain_are_fed_again_as_a_chain() -> None:
    target = TableEngine(TABLE, 512)
    one = Session(target, ModelDraft(TableEngine(NEAR, 512)), FixedController(2, 8))
    tokens = [1, 2, *one.generate([1, 2], Request(200))]
    assert target.rows == tokens[: target.length]
    fed = [step.start for step in target.steps]
    again = [
        step
        for step, following in zip(target.steps, target.steps[1:], strict=False)
        if following.start + 1 < step.start + len(step.tokens)
    ]
    assert fed == sorted(fed)
    assert again


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("tree", [None, *TREES])
def test_audited_output_is_that_of_plain_sampling_whatever_drafts(
    draft: str, tree: str | None
) -> None:
    for prompt in PROMPTS[:8]:
        request = Request(24, AUDITED, draft_length=None if tree else 4)
        plain = list(session().generate(prompt, request))
        assert list(session(draft, tree=tree).generate(prompt, request)) == plain


def test_an_audited_draft_is_accepted_more_often_than_by_chance() -> None:
    one = Session(TableEngine(TABLE, 512), ModelDraft(TableEngine(NEAR, 512)))
    list(one.generate([1, 2], Request(400, AUDITED)))
    assert one.statistics.acceptance > 0.5


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, Sampling(0.7, 3, 0.9)], ids=str)
@pytest.mark.parametrize("length", range(1, 9))
def test_a_copy_of_the_target_has_every_proposal_accepted(sampling: Sampling, length: int) -> None:
    one = session("same")
    rounds = 4
    request = Request(1 + rounds * (length + 1), sampling, draft_length=length)
    assert len(list(one.generate([5], request))) == request.max_new_tokens
    assert one.statistics.rounds == rounds
    assert one.statistics.proposed == one.statistics.accepted == [rounds] * length
    assert one.statistics.acceptance == 1.0
    assert one.statistics.accepted_length == length + 1


@pytest.mark.parametrize("draft", [None, *DRAFTS])
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=str)
def test_counters_agree_with_the_stream(draft: str | None, sampling: Sampling) -> None:
    one = session(draft)
    ids = list(one.generate([2, 7, 1], Request(40, sampling, draft_length=4)))
    statistics = one.statistics
    assert statistics.prompt_tokens == 3
    assert statistics.new_tokens == len(ids) == 40
    # All but the first token, which the prompt yields, are accepted proposals or the target's own.
    assert statistics.decode_tokens == sum(statistics.accepted) + statistics.rounds
    rejected = sum(statistics.proposed) - sum(statistics.accepted)
    assert 0 <= rejected <= statistics.rounds
    assert statistics.acceptance <= 1.0
    assert statistics.decode_seconds >= statistics.draft_seconds + statistics.target_seconds > 0.0
    assert statistics.first_token_seconds > 0.0


def test_a_random_draft_is_found_out_by_its_acceptance() -> None:
    one = session("random")
    list(one.generate([2], Request(60, draft_length=4)))
    assert one.statistics.acceptance < 0.3


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=str)
@pytest.mark.parametrize("index", range(5))
def test_a_stop_token_ends_the_output_wherever_in_a_block_it_stands(
    sampling: Sampling, index: int
) -> None:
    # A round of the copied draft emits tokens 1..5 of the output as one block.
    request = Request(6, sampling, draft_length=4)
    prompt, ids = next(
        (prompt, ids)
        for prompt in ([first, second] for first in range(8) for second in range(8))
        for ids in [list(session("same").generate(prompt, request))]
        if ids[1 + index] not in ids[: 1 + index]
    )
    one = session("same")
    stopping = Request(6, sampling, draft_length=4, stop_tokens=frozenset({ids[1 + index]}))
    assert list(one.generate(prompt, stopping)) == ids[: 1 + index]
    assert one.finish is Finish.STOP
    assert one.statistics.new_tokens == 1 + index


def test_a_stop_token_may_be_the_first() -> None:
    one = session("same")
    first = greedy_ids(TABLE, [1, 2], 1)
    assert list(one.generate([1, 2], Request(stop_tokens=frozenset(first)))) == []
    assert (one.finish, one.statistics.new_tokens, one.statistics.rounds) == (Finish.STOP, 0, 0)


def test_a_stop_beyond_the_budget_is_not_seen() -> None:
    ids = list(session("same").generate([1, 2], Request(5, draft_length=4)))
    last = next(index for index in range(1, 5) if ids[index] not in ids[:index])
    stop = frozenset({ids[last]})
    for budget, finish in [(last, Finish.LENGTH), (last + 1, Finish.STOP)]:
        one = session("same")
        request = Request(budget, draft_length=4, stop_tokens=stop)
        assert list(one.generate([1, 2], request)) == ids[:last]
        assert one.finish is finish


@pytest.mark.parametrize("draft", [None, "same", "near", "ngram"])
@pytest.mark.parametrize("count", range(7))
def test_exactly_so_many_tokens_as_asked_for(draft: str | None, count: int) -> None:
    one = session(draft)
    ids = list(one.generate([4, 4], Request(count, draft_length=4)))
    assert ids == greedy_ids(TABLE, [4, 4], count)
    assert one.finish is Finish.LENGTH


@pytest.mark.parametrize("draft", [None, "same", "near", "short", "ngram"])
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=str)
@pytest.mark.parametrize("room", range(6))
def test_the_context_bounds_the_output(draft: str | None, sampling: Sampling, room: int) -> None:
    prompt = [index * 3 % 8 for index in range(20 - room)]
    engine = TableEngine(TABLE, capacity=20)
    one = Session(engine, DRAFTS[draft]() if draft else None)
    # The engine itself refuses rows that pass its capacity.
    ids = list(one.generate(prompt, Request(100, sampling, draft_length=4)))
    assert len(ids) == room
    assert one.finish is Finish.LENGTH
    if sampling.greedy:
        assert ids == greedy_ids(TABLE, prompt, room)


def test_a_smaller_context_than_the_cache_is_kept() -> None:
    one = Session(TableEngine(TABLE), DRAFTS["same"](), context=9)
    assert list(one.generate([1, 2], Request(100))) == greedy_ids(TABLE, [1, 2], 7)
    with pytest.raises(RequestError, match="10 tokens; it must have 1 to 9"):
        next(one.generate([0] * 10, Request()))


@pytest.mark.parametrize("length", [0, 65])
def test_a_prompt_that_does_not_fit_is_refused_and_the_session_lives(length: int) -> None:
    one = session("near")
    with pytest.raises(RequestError, match=f"prompt has {length} tokens; it must have 1 to 64"):
        next(one.generate([0] * length, Request()))
    assert list(one.generate([6], Request(9))) == greedy_ids(TABLE, [6], 9)


def test_negative_limits_are_refused() -> None:
    with pytest.raises(RequestError, match="max_new_tokens is -1; it cannot be negative"):
        Request(-1)
    with pytest.raises(RequestError, match="draft_length is -2; it cannot be negative"):
        Request(draft_length=-2)


@pytest.mark.parametrize("draft", [None, "near", "ngram"])
def test_the_seed_alone_decides_sampled_output(draft: str | None) -> None:
    prompts = [[1, 2, 3], [4]]
    requests = [Request(30, Sampling(1.2, seed=seed), draft_length=3) for seed in (8, 9)]
    alone = [list(session(draft).generate(*each)) for each in zip(prompts, requests, strict=True)]
    again = [list(session(draft).generate(*each)) for each in zip(prompts, requests, strict=True)]
    streams = [session(draft).generate(*each) for each in zip(prompts, requests, strict=True)]
    interleaved = [list(column) for column in zip(*zip_longest(*streams), strict=True)]
    assert alone == again == interleaved
    other = Request(30, Sampling(1.2, seed=10), draft_length=3)
    assert list(session(draft).generate(prompts[0], other)) != alone[0]


def test_derived_proposals_change_no_sampled_token() -> None:
    for seed in range(10):
        request = Request(50, Sampling(0.6, seed=seed), draft_length=4)
        assert list(session("ngram").generate([1, 2], request)) == list(
            session().generate([1, 2], request)
        )


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_the_size_of_a_prefill_chunk_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(engine_module, "PREFILL_ROWS", rows)
    prompt = [index * 5 % 8 for index in range(11)]
    assert list(session("near").generate(prompt, Request(20))) == greedy_ids(TABLE, prompt, 20)


def test_a_request_left_in_the_middle_cannot_go_on_after_another() -> None:
    one = session("near")
    first = one.generate(PROMPTS[3], Request(24, draft_length=3))
    next(first)
    list(one.generate(PROMPTS[4], Request(4, draft_length=3)))
    with pytest.raises(RequestError, match="another request began"):
        list(first)
