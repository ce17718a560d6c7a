from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest

from speccompile.runtime.device_session import DeviceSession
from speccompile.runtime.errors import EngineError, RequestError
from speccompile.runtime.request import Request
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Finish
from tests.device_pairs import TablePair, oracle
from tests.host_device import HostDevice
from tests.table_model import half
from tests.unit.runtime.tables import Table, greedy_ids, make_table, near_table

TABLE = half(make_table(1))
NEAR = half(near_table(TABLE, 2, noise=2.0))
DRAFTS: dict[str, Table] = {"same": TABLE, "near": NEAR, "bad": half(-TABLE)}
SAMPLED = Sampling(0.9, top_k=5, top_p=0.95, seed=(1 << 63) + 11)
PROMPTS = [np.random.default_rng(seed).integers(0, 8, 1 + 5 * seed).tolist() for seed in range(4)]
OTHER_DRAFTS = ["near", "bad"]


eager = pytest.mark.parametrize("eager", [True, False], ids=["eager", "late"])
shared = pytest.mark.parametrize("shares_cache", [True, False], ids=["shared", "own"])


def pair(draft: str = "near", **options: object) -> TablePair:
    return TablePair(TABLE, DRAFTS[draft], **options)  # type: ignore[arg-type]


def generate(
    session: DeviceSession, prompt: Sequence[int], count: int = 24, length: int = 4
) -> list[int]:
    return list(session.generate(prompt, Request(count, draft_length=length)))


@shared
@pytest.mark.parametrize("draft", OTHER_DRAFTS)
@pytest.mark.parametrize("length", range(9))
def test_greedy_output_is_that_of_plain_decoding(
    length: int, draft: str, shares_cache: bool
) -> None:
    one = pair(draft, device=HostDevice(eager=length % 2 == 0), shares_cache=shares_cache)
    session = DeviceSession(one.rounds)
    for prompt in PROMPTS[::2]:
        assert generate(session, prompt, 24, length) == greedy_ids(TABLE, prompt, 24)
        assert session.finish is Finish.LENGTH


@eager
@shared
@pytest.mark.parametrize("draft", OTHER_DRAFTS)
@pytest.mark.parametrize("length", [1, 4])
def test_sampled_output_is_what_the_rules_say(
    length: int, draft: str, shares_cache: bool, eager: bool
) -> None:
    one = pair(draft, device=HostDevice(eager), shares_cache=shares_cache, capacity=40)
    session = DeviceSession(one.rounds)
    request = Request(100, SAMPLED, draft_length=length)
    for prompt in PROMPTS[1::2]:
        expected = list(oracle(TABLE, DRAFTS[draft], prompt, SAMPLED, length, capacity=40))
        assert list(session.generate(prompt, request)) == expected[: 40 - len(prompt)]


@shared
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_copy_of_the_target_has_every_proposal_accepted(
    length: int, sampling: Sampling, shares_cache: bool
) -> None:
    session = DeviceSession(pair("same", shares_cache=shares_cache).rounds)
    request = Request(1 + 4 * (length + 1), sampling, draft_length=length)
    assert len(list(session.generate([5, 1], request))) == request.max_new_tokens
    assert session.statistics.rounds == 4
    assert session.statistics.proposed == session.statistics.accepted == [4] * length


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("length", [0, 4])
def test_counters_agree_with_the_stream(length: int, sampling: Sampling) -> None:
    session = DeviceSession(pair().rounds)
    ids = list(session.generate([2, 7, 1], Request(40, sampling, draft_length=length)))
    statistics = session.statistics
    assert (statistics.prompt_tokens, statistics.new_tokens, len(ids)) == (3, 40, 40)
    surplus = sum(statistics.accepted) + statistics.rounds - statistics.decode_tokens
    assert 0 <= surplus <= length
    assert statistics.decode_seconds > 0.0
    assert statistics.first_token_seconds > 0.0


@pytest.mark.parametrize("length", [0, 3])
def test_the_host_is_one_round_behind(length: int) -> None:
    one = pair("same", shares_cache=True)
    generate(DeviceSession(one.rounds), [3], 1 + 5 * (length + 1), length)
    device = one.device
    order = [
        (operation.kind, operation.detail)
        for operation in device.operations
        if operation.kind == "replay" or str(operation.detail).startswith("round ")
    ]
    # Round 0 is the prompt. From then on, the next round is enqueued before one is waited for.
    kinds = [kind for kind, _ in order]
    assert kinds[:6] == ["wait", "replay", "replay", "wait", "replay", "wait"]
    assert [detail for kind, detail in order if kind == "wait"] == [f"round {n}" for n in range(6)]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_no_round_is_launched_that_cannot_be_needed(count: int) -> None:
    one = pair()
    generate(DeviceSession(one.rounds), [3], count, 0)
    assert len(one.device.kinds("replay")) == count - 1


def test_nothing_is_captured_once_decoding_began() -> None:
    one = pair(capacity=24, rows=8)
    generate(DeviceSession(one.rounds), [3], 100)
    kinds = one.device.kinds("capture", "replay")
    assert kinds[:2] == ["capture", "capture"]  # the last rounds are plain
    assert set(kinds[2:]) == {"replay"}


def test_a_second_request_allocates_captures_and_places_nothing() -> None:
    one = pair()
    session = DeviceSession(one.rounds)
    generate(session, [7])
    list(session.generate([7], Request(9, SAMPLED, draft_length=4)))
    device = one.device
    before, captures = device.allocations, device.kinds("capture")
    device.operations.clear()
    for prompt in reversed(PROMPTS):
        generate(session, prompt)
        list(session.generate(prompt, Request(9, SAMPLED, draft_length=4)))
    assert device.allocations == before
    assert device.kinds("capture") == []
    assert len(captures) == 2  # greedy and sampled


@pytest.mark.parametrize("index", range(5))
def test_a_stop_token_ends_the_output_wherever_in_a_block_it_stands(index: int) -> None:
    # A round of the copied draft emits tokens 1..5 of the output as one block.
    prompt, ids = next(
        (prompt, ids)
        for prompt in ([first, second] for first in range(8) for second in range(8))
        for ids in [greedy_ids(TABLE, prompt, 6)]
        if ids[1 + index] not in ids[: 1 + index]
    )
    session = DeviceSession(pair("same").rounds)
    stop = frozenset({ids[1 + index]})
    request = Request(6, draft_length=4, stop_tokens=stop)
    assert list(session.generate(prompt, request)) == ids[: 1 + index]
    assert session.finish is Finish.STOP
    assert session.statistics.new_tokens == 1 + index
    # The round ahead went on behind the stop; the next request does not see it.
    assert generate(session, prompt) == greedy_ids(TABLE, prompt, 24)


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("length", [0, 4])
def test_exactly_so_many_tokens_as_asked_for(count: int, length: int) -> None:
    session = DeviceSession(pair().rounds)
    assert generate(session, [4, 4], count, length) == greedy_ids(TABLE, [4, 4], count)


@shared
@pytest.mark.parametrize("room", range(10))
@pytest.mark.parametrize("length", [0, 1, 4])
def test_the_capacity_bounds_the_output(length: int, room: int, shares_cache: bool) -> None:
    prompt = [index * 3 % 8 for index in range(20 - room)]
    # The models themselves refuse rows that pass their capacity.
    one = pair(
        capacity=20, rows=8, device=HostDevice(eager=room % 2 == 0), shares_cache=shares_cache
    )
    session = DeviceSession(one.rounds)
    assert generate(session, prompt, 100, length) == greedy_ids(TABLE, prompt, room)
    assert session.finish is Finish.LENGTH


@pytest.mark.parametrize("capacity", [8, 13, 30])
def test_a_draft_whose_cache_ends_before_the_targets_stops_proposing(capacity: int) -> None:
    session = DeviceSession(pair("same", draft_capacity=capacity, rows=8).rounds)
    prompt = PROMPTS[2]
    assert generate(session, prompt, 100) == greedy_ids(TABLE, prompt, 64 - len(prompt))
    assert sum(session.statistics.accepted) <= max(capacity - len(prompt), 0)


def test_a_smaller_context_than_the_cache_is_kept() -> None:
    session = DeviceSession(pair().rounds, context=9)
    assert generate(session, [1, 2], 100) == greedy_ids(TABLE, [1, 2], 7)
    with pytest.raises(RequestError, match="10 tokens; it must have 1 to 9"):
        next(session.generate([0] * 10, Request()))


@shared
@eager
def test_what_two_prompts_share_is_read_once(shares_cache: bool, eager: bool) -> None:
    one = pair(device=HostDevice(eager), shares_cache=shares_cache)
    session = DeviceSession(one.rounds)
    first = [*PROMPTS[2], *generate(session, PROMPTS[2])]
    # A further turn, a turn before the last, and another branch of it.
    turns = ([*first, 1], len(first) - 1), (first[:15], 14), ([*first[:13], 7 - first[13]], 13)
    for prompt, reused in turns:
        assert generate(session, prompt) == greedy_ids(TABLE, prompt, min(24, 64 - len(prompt)))
        # What the last round brought beyond the limit is in the cache, too.
        assert session.statistics.reused_tokens in (reused, len(prompt) - 1)
    # Nobody overwrites what was reused while warming up for another length.
    assert generate(session, first[:15], 24, 7) == greedy_ids(TABLE, first[:15], 24)


def test_sessions_on_the_same_rounds_know_what_is_in_the_cache() -> None:
    one = pair()
    first, second = DeviceSession(one.rounds), DeviceSession(one.rounds)
    for session, prompt in ((first, [1, 2, 3]), (second, [1, 2, 4, 5]), (first, [1, 2, 3, 4])):
        assert generate(session, prompt) == greedy_ids(TABLE, prompt, 24)
    left = first.generate([5], Request(24, draft_length=2))
    next(left)
    assert generate(second, [6]) == greedy_ids(TABLE, [6], 24)
    with pytest.raises(RequestError, match="another request began"):
        list(left)
    assert generate(first, [6, 1]) == greedy_ids(TABLE, [6, 1], 24)


def test_a_request_may_be_left_in_the_middle() -> None:
    session = DeviceSession(pair(device=HostDevice(eager=False)).rounds)
    for count in range(1, 9):
        stream = session.generate([count % 8], Request(24, draft_length=3))
        assert list(islice(stream, count)) == greedy_ids(TABLE, [count % 8], count)
        del stream


# failures


@eager
@pytest.mark.parametrize("fails", ["replay", "record", "commit", "call", "upload", "keep_logits"])
@pytest.mark.parametrize("after", [0, 1])
def test_after_a_refused_operation_the_next_request_begins_afresh(
    fails: str, after: int, eager: bool
) -> None:
    one = pair(device=HostDevice(eager))
    session = DeviceSession(one.rounds)
    request = Request(30, SAMPLED, draft_length=4)
    generate(session, [1, 2])
    one.device.fails, one.device.after = fails, after
    # A kind that was not captured yet, so that every operation is asked for.
    with pytest.raises(EngineError, match=f"{fails} failed"):
        list(session.generate([1, 2, 3], request))
    assert one.device.capturing is None
    one.device.fails = ""
    expected = list(oracle(TABLE, NEAR, [1, 2, 3], SAMPLED, 4))[:30]
    assert list(session.generate([1, 2, 3], request)) == expected
    assert session.statistics.reused_tokens == 0


def test_logits_that_are_not_finite_are_an_error_and_leave_nothing_behind() -> None:
    one = pair()
    session = DeviceSession(one.rounds)
    ids = greedy_ids(TABLE, [1], 24)
    one.target.broken = ids[6]
    with pytest.raises(EngineError, match=r"logits are not finite in round \d+; run"):
        generate(session, [1])
    one.target.broken = None
    assert generate(session, [1]) == ids


def test_a_draft_with_logits_that_are_not_finite_is_an_error_too() -> None:
    one = pair()
    one.draft.broken = 3
    with pytest.raises(EngineError, match="not finite"):
        list(DeviceSession(one.rounds).generate([3, 3], Request(60, SAMPLED, draft_length=4)))


def test_a_device_that_hangs_is_an_error_and_so_is_the_next_request() -> None:
    one = pair(device=HostDevice(eager=False), seconds=0.05)
    session = DeviceSession(one.rounds)
    stream = session.generate([1, 2], Request(30, draft_length=4))
    list(islice(stream, 2))  # the second token is of a round
    one.device.hangs = True
    with pytest.raises(EngineError, match=r"round \d+ did not end within 0.05 s"):
        list(stream)
    with pytest.raises(EngineError, match=r"what failed before did not end within 0.05 s"):
        generate(session, [1, 2])
    one.device.hangs = False
    assert generate(session, [1, 2]) == greedy_ids(TABLE, [1, 2], 24)
