import numpy as np
import pytest

from speccompile.runtime.device_model import place_models
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.engines.device_engine import DeviceEngine
from speccompile.runtime.errors import EngineError, RequestError
from speccompile.runtime.request import Request
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.host_device import HostDevice
from tests.table_model import TableModel, half
from tests.unit.runtime.tables import TableEngine, greedy_ids, make_table, near_table

TABLE = half(make_table(1))
NEAR = half(near_table(TABLE, 2))
PROMPT = np.random.default_rng(3).integers(0, 8, 27).tolist()


def engines(
    *, eager: bool = True, shares_cache: bool = False, rows: int = 24, capacity: int = 64
) -> tuple[DeviceEngine, DeviceEngine]:
    device = HostDevice(eager)
    target = TableModel(device, TABLE, rows=rows, capacity=capacity)
    draft = TableModel(device, NEAR, "draft", "walk", rows=rows, capacity=capacity)
    placed = place_models(device, {"target": target, "draft": draft}, shares_cache=shares_cache)
    return DeviceEngine(device, placed["target"]), DeviceEngine(device, placed["draft"])


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("last", [None, 1, 2, 17])
@pytest.mark.parametrize("capacity", [27, 29, 64])
@pytest.mark.parametrize("rows", [3, 17, 24])
def test_a_step_returns_the_rows_that_are_asked_for(
    rows: int, capacity: int, last: int | None, eager: bool
) -> None:
    engine, _ = engines(eager=eager, rows=rows, capacity=capacity)
    oracle = TableEngine(TABLE, capacity)
    for tokens in (PROMPT[:5], PROMPT[5:]):
        wanted = last and min(last, len(tokens))
        found, expected = engine.step(tokens, last=wanted), oracle.step(tokens, last=wanted)
        assert found.tolist() == expected.tolist()
        assert engine.length == oracle.length


TREES = {
    "two ways from the root": [-1, 0, 0],
    "given ahead": [-1, 0, 1, 1, 2, 3],
    "more than one root": [-1, -1, 0, 1, 2],
    "a chain": [-1, 0, 1, 2],
    "larger than the sizes that come again": [-1, *(node // 3 for node in range(19))],
}


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("last", [None, 1, 3])
@pytest.mark.parametrize("room", [20, 40])
@pytest.mark.parametrize("name", TREES)
def test_rows_of_a_tree_follow_their_parents(
    name: str, room: int, last: int | None, eager: bool
) -> None:
    parents = TREES[name]
    engine, _ = engines(eager=eager, capacity=7 + room)
    oracle = TableEngine(TABLE, 7 + room)
    tokens = np.random.default_rng(4).integers(0, 8, len(parents)).tolist()
    for each in (engine, oracle):
        each.step(PROMPT[:7])
    for _ in range(2):  # a tree leaves nothing that the next step sees
        found = engine.step(tokens, parents=parents, last=last)
        assert found.tolist() == oracle.step(tokens, parents=parents, last=last).tolist()
        assert engine.length == oracle.length == 7 + len(parents)
        for each in (engine, oracle):
            each.rollback(8)  # the root stays
        assert engine.step([3]).tolist() == oracle.step([3]).tolist()
        for each in (engine, oracle):
            each.rollback(7)


def test_a_tree_is_one_call() -> None:
    engine, _ = engines(rows=24)
    engine.step([1] * 24, parents=[-1, *[0] * 23])
    with pytest.raises(EngineError, match="a tree of 25 rows, and its plan takes 24; propose"):
        engine.step([1] * 25, parents=[-1, *[0] * 24])
    assert engine.length == 24
    engine.rollback(0)
    engine.step([1] * 25, parents=range(-1, 24))  # no tree


def test_the_cache_ends_where_it_ends() -> None:
    engine, _ = engines(capacity=27)
    engine.step(PROMPT)
    with pytest.raises(RequestError, match="27 \\+ 1 tokens pass the context of 27"):
        engine.step([1])
    engine.rollback(20)
    assert engine.step([1, 2]).shape == (2, 8)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, seed=3)], ids=str)
def test_the_host_s_loop_runs_on_a_device(sampling: Sampling) -> None:
    target, draft = engines()
    own = Session(target, ModelDraft(draft))
    target, draft = engines(shares_cache=True)
    shared = Session(target, SharedCacheDraft(draft, target))
    for count in (9, 30):
        request = Request(count, sampling, draft_length=3)
        expected = Session(TableEngine(TABLE), ModelDraft(TableEngine(NEAR)))
        ids = list(expected.generate(PROMPT[:7], request))
        assert list(own.generate(PROMPT[:7], request)) == ids
        assert list(shared.generate(PROMPT[:7], request)) == ids
        if sampling.greedy:
            assert ids == greedy_ids(TABLE, PROMPT[:7], count)


def test_a_failed_step_leaves_the_length_as_it_was() -> None:
    device = HostDevice()
    model = TableModel(device, TABLE)
    engine = DeviceEngine(
        device, place_models(device, {"target": model}, shares_cache=False)["target"]
    )
    engine.step([1, 2])
    model.refuses = True
    with pytest.raises(EngineError, match="refuses a call"):
        engine.step([3])
    assert engine.length == 2
    assert engine.step([3]).tolist() == [TABLE[2, 3].tolist()]
