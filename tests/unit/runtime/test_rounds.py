import pytest

from speccompile.plugins.launches import Launch
from speccompile.runtime.device_memory import host_array
from speccompile.runtime.device_model import Tensor, place_models
from speccompile.runtime.errors import EngineError
from speccompile.runtime.rounds import Kind, Rounds
from speccompile.runtime.sampling import Sampling
from tests.device_pairs import TablePair
from tests.host_device import HostDevice
from tests.round_kernels import run_launch
from tests.table_model import TableModel
from tests.unit.runtime.tables import greedy_ids, make_table

TABLE = make_table(1)
PLAIN = Kind(1, 0, sampled=False)
WORK = ("draft_step", "call", "keep_logits", "commit")


def started(kind: Kind, *, shares_cache: bool = False) -> TablePair:
    """A pair that has read a prompt and has the graph of `kind`."""
    pair = TablePair(TABLE, TABLE, shares_cache=shares_cache)
    pair.rounds.state.begin(Sampling(1.0 if kind.sampled else 0.0), 0)
    pair.rounds.prepare(kind)
    pair.rounds.cached.read([1, 2, 3])
    pair.rounds.cached.read_draft()
    pair.rounds.arrange(kind)
    return pair


def recorded(pair: TablePair) -> list[str]:
    """What the captures recorded; a call as the model and its rows."""
    names: list[str] = []
    for operation in pair.device.operations:
        if operation.captured and operation.kind in WORK:
            detail = operation.detail
            assert isinstance(detail, tuple)
            call = f"{detail[0]} {detail[2]}" if operation.kind == "call" else operation.kind
            names.append(call)
    return names


@pytest.mark.parametrize(
    ("shares_cache", "sampled", "order"),
    [
        (True, False, ["draft_step", "draft 1", "draft_step", "draft 1"]),
        (True, True, ["draft_step", "draft 1", "keep_logits"] * 2),
        (False, False, ["draft_step", "draft 2", "draft_step", "draft 1"]),
        (
            False,
            True,
            ["draft_step", "draft 2", "keep_logits", "draft_step", "draft 1", "keep_logits"],
        ),
    ],
)
def test_a_round_drafts_verifies_and_commits_in_this_order(
    shares_cache: bool, sampled: bool, order: list[str]
) -> None:
    pair = started(Kind(1, 2, sampled), shares_cache=shares_cache)
    assert recorded(pair) == [*order, "draft_step", "target 3", "commit"]


def test_a_plain_round_is_the_target_and_its_random_numbers() -> None:
    assert recorded(started(PLAIN)) == ["draft_step", "target 1", "commit"]


def test_a_graph_is_captured_once_for_each_kind() -> None:
    kinds = [Kind(1, 2, sampled=True), Kind(1, 2, sampled=False), PLAIN, Kind(1, 3, sampled=False)]
    pair = started(kinds[0], shares_cache=True)
    for kind in [*kinds, *kinds]:
        pair.rounds.result(pair.rounds.launch(kind))
    assert pair.device.kinds("capture") == ["capture"] * len(kinds)


def test_every_call_of_a_size_has_the_same_addresses_captured_or_not() -> None:
    pair = started(Kind(1, 3, sampled=True))
    pair.rounds.result(pair.rounds.launch(Kind(1, 3, sampled=True)))
    sizes: dict[object, set[object]] = {}
    for operation in pair.device.operations:
        if operation.kind == "call":
            assert isinstance(operation.detail, tuple)
            name, batch, rows, addresses = operation.detail
            sizes.setdefault((name, batch, rows), set()).add(addresses)
    assert {len(found) for found in sizes.values()} == {1}
    assert ("target", 1, 4) in sizes
    assert ("draft", 1, 2) in sizes


def test_a_size_is_called_before_it_is_captured_and_waited_for() -> None:
    pair = started(Kind(1, 2, sampled=False))
    operations = pair.device.operations
    capture = next(n for n, operation in enumerate(operations) if operation.kind == "capture")
    before = operations[:capture]
    assert before[-1].kind == "wait"
    called = {operation.detail[:3] for operation in before if isinstance(operation.detail, tuple)}
    assert {("target", 1, 3), ("draft", 1, 2), ("draft", 1, 1)} <= called


def test_results_are_those_of_their_rounds_with_one_more_under_way() -> None:
    kind = Kind(1, 2, sampled=False)
    one, ahead = started(kind), started(kind)
    expected = [one.rounds.result(one.rounds.launch(kind)) for _ in range(4)]
    flying = [ahead.rounds.launch(kind)]
    for result in expected:
        flying.append(ahead.rounds.launch(kind))
        assert ahead.rounds.result(flying.pop(0)) == result


@pytest.mark.parametrize("before", [0, 1])
def test_rounds_of_different_sizes_do_not_share_their_records(before: int) -> None:
    pair = started(Kind(1, 4, sampled=False), shares_cache=True)
    for _ in range(before):
        pair.rounds.result(pair.rounds.launch(PLAIN))
    pair.rounds.prepare(PLAIN)
    long, short = pair.rounds.launch(Kind(1, 4, sampled=False)), pair.rounds.launch(PLAIN)
    expected = greedy_ids(TABLE, [1, 2, 3], before + 7)[before + 1 :]
    assert [*pair.rounds.result(long)[0], *pair.rounds.result(short)[0]] == expected


def test_plans_that_cannot_be_captured_are_refused() -> None:
    pair = TablePair(TABLE, TABLE)
    pair.draft.capturable = False
    with pytest.raises(EngineError, match="cannot be captured into a graph; build the artifact"):
        pair.rounds.prepare(Kind(1, 2, sampled=False))
    pair.rounds.prepare(PLAIN)  # has no part in a plain round


def test_a_capture_ends_when_a_library_refuses_a_call_in_it() -> None:
    pair = started(PLAIN)
    kind = Kind(1, 3, sampled=False)
    pair.device.fails, pair.device.after = "call", 3  # behind three calls to warm up
    with pytest.raises(EngineError, match="call failed"):
        pair.rounds.prepare(kind)
    assert pair.device.kinds("capture")[-1] == "capture"
    assert pair.device.capturing is None
    pair.device.fails = ""
    pair.rounds.result(pair.rounds.launch(kind))


def test_a_round_that_leaves_no_record_is_an_error() -> None:
    def without_commit(launch: Launch) -> None:
        if launch.kernel != "commit":
            run_launch(launch)

    pair = started(PLAIN)
    pair.device.run = without_commit
    with pytest.raises(EngineError, match="round 1 ended and left no record"):
        pair.rounds.result(pair.rounds.launch(PLAIN))


def test_models_whose_logits_do_not_go_together_are_refused() -> None:
    device = HostDevice()
    target, draft = TableModel(device, TABLE), TableModel(device, TABLE, "draft", "walk")
    draft.tensors = {**draft.tensors, "logits": Tensor("float32", (-1, -1, 9))}
    models = place_models(device, {"target": target, "draft": draft}, shares_cache=False)
    with pytest.raises(EngineError, match="9 x float32, the target's plan takes 8 x float16"):
        Rounds(device, models["target"], models["draft"])


def test_a_reset_leaves_nothing_of_what_failed() -> None:
    pair = started(PLAIN)
    addresses = pair.rounds.state.addresses(3)
    sizes = {"key_cache.0": 128, "draft_logits": 48, "lengths": 8, "round": 8, "previous": 8}
    for name, size in sizes.items():
        host_array(addresses[name], size).fill(0xFF)  # of floats, NaNs
    pair.rounds.reset()
    assert not any(host_array(addresses[name], size).any() for name, size in sizes.items())
    assert pair.rounds.cached.tokens == []
