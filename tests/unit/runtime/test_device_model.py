import numpy as np
import pytest

from speccompile.runtime.device_memory import host_array
from speccompile.runtime.device_model import pieces, place_models
from speccompile.runtime.errors import EngineError
from tests.host_device import HostDevice
from tests.table_model import TableModel
from tests.unit.runtime.tables import make_table

TABLE = make_table(1)


def models(device: HostDevice, **options: int) -> dict[str, TableModel]:
    return {
        "target": TableModel(device, TABLE, **options),  # type: ignore[arg-type]
        "draft": TableModel(device, TABLE, "draft", "walk", **options),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("room", [8, 9, 20, 64, 1000])
@pytest.mark.parametrize("widths", [[1], [1, 4], [1, 8, 64], list(range(1, 17))])
def test_pieces_read_every_row_within_the_room(room: int, widths: list[int]) -> None:
    for count in range(1, min(room, 200) + 1):
        calls = pieces(count, room, widths)
        assert sum(rows for rows, _ in calls) == count
        start = 0
        for rows, width in calls:
            assert 1 <= rows <= width
            assert width in widths
            assert start + width <= room
            start += rows


def test_pieces_are_few_where_there_is_room_for_padding() -> None:
    assert pieces(5, 64, [1, 8, 64]) == [(5, 8)]
    assert pieces(70, 1000, [1, 8, 64]) == [(64, 64), (6, 8)]
    assert pieces(9, 9, [1, 8, 64]) == [(8, 8), (1, 1)]
    assert pieces(3, 7, [1, 8, 64]) == [(1, 1)] * 3
    assert pieces(0, 7, [1]) == []


@pytest.mark.parametrize("shares_cache", [True, False])
def test_both_models_lie_in_one_allocation(shares_cache: bool) -> None:
    device = HostDevice()
    placed = place_models(device, models(device), shares_cache=shares_cache)
    assert device.kinds("allocate") == ["allocate"]
    target, draft = (placed[role].addresses(4) for role in ("target", "draft"))
    shared = {name for name in target if draft.get(name) == target[name]}
    caches = {name for name in target if "cache" in name}
    assert len(caches) == 4
    assert shared == (caches if shares_cache else set())


@pytest.mark.parametrize(("batch", "placed"), [(None, 4), (1, 1), (3, 3), (9, 4)])
def test_memory_is_for_as_many_sequences_as_wanted_and_possible(
    batch: int | None, placed: int
) -> None:
    device, alike = HostDevice(), HostDevice()
    pair = place_models(device, models(device, batch=4), shares_cache=False, batch=batch)
    assert [model.batch for model in pair.values()] == [placed] * 2
    place_models(alike, models(alike, batch=placed), shares_cache=False)
    sizes = [
        [operation.detail for operation in each.operations if operation.kind == "allocate"]
        for each in (device, alike)
    ]
    assert sizes[0] == sizes[1]


def test_a_new_cache_is_the_cache_itself() -> None:
    device = HostDevice()
    for model in place_models(device, models(device), shares_cache=False).values():
        addresses = model.addresses(2)
        for kind in ("key_cache.0", "value_cache.0"):
            assert addresses[f"new_{kind}"] == addresses[kind]
        assert addresses["key_cache.0"] != addresses["value_cache.0"]


def test_trees_have_a_place_for_every_number_of_rows_and_all_else_has_one() -> None:
    device = HostDevice()
    target = place_models(device, models(device), shares_cache=False)["target"]
    few, many = target.addresses(2), target.addresses(3)
    assert {name for name in few if few[name] != many[name]} == {"parents", "given"}


def test_a_padded_chain_is_fed() -> None:
    device = HostDevice()
    target = place_models(device, models(device), shares_cache=False)["target"]
    target.feed([5, 6, 7], 5, 11)
    addresses = target.addresses(5)

    def found(name: str, count: int) -> list[int]:
        values: list[int] = host_array(addresses[name], 8 * count).view(np.int64).tolist()
        return values

    assert found("input_ids", 5) == [5, 6, 7, 0, 0]
    assert found("parents", 5) == [-1, 0, 1, -1, -1]
    assert (found("given", 1), found("lengths", 1)) == ([3], [11])


def test_a_context_is_made_once_for_a_size_and_called_once_to_warm_it_up() -> None:
    device = HostDevice()
    target = place_models(device, models(device), shares_cache=False)["target"]
    target.feed([1], 1, 0)
    contexts = [target.warm_up(1, 1) for _ in range(3)]
    assert contexts[0] is contexts[1] is contexts[2]
    assert device.kinds("call") == ["call"]


def test_models_that_do_not_fit_are_refused_together() -> None:
    device = HostDevice(free=1 << 12)
    with pytest.raises(EngineError, match=r"running the models needs .* a smaller context\.length"):
        place_models(device, models(device), shares_cache=False)
