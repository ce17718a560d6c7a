import ml_dtypes
import numpy as np
import pytest

from speccompile.runtime.device import ALIGNMENT
from speccompile.runtime.device_memory import Array, Arrays, DType, Staging, as_float32, host_array
from speccompile.runtime.errors import EngineError
from tests.host_device import HostDevice

ARRAYS = {"a": Array("int64", (3,)), "b": Array("float16", (2, 5, 7)), "c": Array("bool", (1,))}


def test_all_arrays_are_one_aligned_allocation_without_overlap() -> None:
    device = HostDevice()
    arrays = Arrays(device, ARRAYS, what="a test")
    assert device.kinds("allocate") == ["allocate"]
    assert [address % ALIGNMENT for address in arrays.values()] == [0, 0, 0]
    ends = [address + ARRAYS[name].size for name, address in arrays.items()]
    assert all(end <= start for end, start in zip(ends, list(arrays.values())[1:], strict=False))
    assert (arrays["b"] - arrays["a"], ARRAYS["b"].size) == (ALIGNMENT, 140)


def test_clearing_reaches_all_of_it() -> None:
    arrays = Arrays(HostDevice(), ARRAYS, what="a test")
    for name, address in arrays.items():
        host_array(address, ARRAYS[name].size).fill(7)
    arrays.clear()
    assert not any(host_array(at, ARRAYS[name].size).any() for name, at in arrays.items())


def test_what_does_not_fit_is_refused_before_anything_is_allocated() -> None:
    device = HostDevice(free=ALIGNMENT * 2)
    message = r"the host: a test needs 0\.00 GiB of its memory, and 0\.00 GiB is free; free some"
    with pytest.raises(EngineError, match=message):
        Arrays(device, ARRAYS, what="a test")
    assert device.allocations == 0


@pytest.mark.parametrize("eager", [True, False])
def test_values_go_there_and_back_through_pinned_memory(eager: bool) -> None:
    device = HostDevice(eager)
    arrays = Arrays(device, ARRAYS, what="a test")
    staging = Staging(device, {"a": ARRAYS["a"]}, arrays)
    staging.put("a", np.array([5, 6], np.int64))
    event, data = device.event(), staging.get("a", 8, 16)
    event.record()
    event.wait(1.0, "a copy")
    assert data.view(np.int64).tolist() == [6, 0]
    with pytest.raises(ValueError, match="32 bytes are more than a has"):
        staging.put("a", np.zeros(4, np.int64))


@pytest.mark.parametrize(
    ("dtype", "type"),
    [("float32", np.float32), ("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)],
)
def test_floats_of_any_type_are_read_exactly(dtype: DType, type: type[np.generic]) -> None:
    values = np.array([0.0, -0.0, 1.5, -3e-5, np.inf, -np.inf, 65504.0]).astype(type)
    read = as_float32(values.view(np.uint8), dtype)
    assert read.tobytes() == values.astype(np.float32).tobytes()
    assert np.isnan(as_float32(np.array([np.nan]).astype(type).view(np.uint8), dtype)).all()


def test_other_types_are_no_floats() -> None:
    with pytest.raises(ValueError, match="int64 is no floating-point type"):
        as_float32(np.zeros(8, np.uint8), "int64")
