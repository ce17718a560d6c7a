import pytest

from speccompile.runtime.sampling import Sampling
from tests.device_pairs import TablePair
from tests.host_device import HostDevice
from tests.table_model import half
from tests.unit.runtime.tables import greedy_ids, make_table

TABLE = half(make_table(1))
PROMPT = [index * 3 % 8 for index in range(41)]


def started(*, shares_cache: bool = False, eager: bool = True) -> TablePair:
    pair = TablePair(TABLE, TABLE, device=HostDevice(eager), shares_cache=shares_cache)
    pair.rounds.cached.warm_up()
    pair.rounds.state.begin(Sampling(), 0)
    return pair


def calls(pair: TablePair, model: str) -> list[int]:
    """The rows of the calls of a model since it was warm."""
    found = [op.detail for op in pair.device.operations if op.kind == "call"]
    rows = [detail[2] for detail in found if isinstance(detail, tuple) and detail[0] == model]
    return rows[3:]


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("count", [1, 2, 8, 9, 16, 17, 41])
def test_the_token_behind_a_prompt_is_the_targets(count: int, eager: bool) -> None:
    pair = started(eager=eager)
    assert [pair.rounds.cached.read(PROMPT[:count])] == greedy_ids(TABLE, PROMPT[:count], 1)
    assert pair.rounds.cached.tokens == PROMPT[:count]


def test_a_prompt_is_read_in_few_sizes_of_call() -> None:
    pair = started()
    pair.rounds.cached.read(PROMPT)
    assert calls(pair, "target") == [16, 16, 16]
    pair.rounds.cached.read_draft()
    assert calls(pair, "draft") == [16, 16, 16]


def test_a_draft_in_the_targets_cache_reads_nothing() -> None:
    pair = started(shares_cache=True)
    pair.rounds.cached.read(PROMPT)
    pair.rounds.cached.read_draft()
    assert calls(pair, "draft") == []


def test_what_two_prompts_share_is_kept_in_both_caches() -> None:
    pair = started()
    cached = pair.rounds.cached
    cached.read(PROMPT[:20])
    cached.read_draft()
    for prompt, kept in ((PROMPT, 20), (PROMPT[:20], 19), ([*PROMPT[:7], 0, 1], 7), ([6], 0)):
        cached.tokens, cached.drafted = PROMPT[:20], 20
        assert cached.keep(prompt) == kept
        assert (cached.tokens, cached.drafted) == (PROMPT[:kept], kept)


@pytest.mark.parametrize(
    ("rows", "proposals", "drafted"), [(1, 3, 11), (3, 3, 13), (4, 3, 13), (1, 1, 11), (2, 1, 11)]
)
def test_a_draft_has_not_read_its_own_last_proposal(
    rows: int, proposals: int, drafted: int
) -> None:
    pair = started()
    cached = pair.rounds.cached
    cached.tokens, cached.drafted = PROMPT[:10], 10
    cached.commit([1] * rows, proposals)
    assert (len(cached.tokens), cached.drafted) == (10 + rows, drafted)


def test_a_draft_takes_no_part_in_plain_rounds() -> None:
    cached = started().rounds.cached
    cached.tokens, cached.drafted = PROMPT[:10], 10
    cached.commit([1], 0)
    assert (len(cached.tokens), cached.drafted) == (11, 10)


def test_warming_up_has_every_size_once() -> None:
    pair = started()
    before = pair.device.kinds("call")
    pair.rounds.cached.warm_up()
    assert pair.device.kinds("call") == before
    assert len(before) == 6
