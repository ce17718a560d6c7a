"""What no host can show: that a GPU does what `tests/host_device.py` stands for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from speccompile.plugins.cubins import compile_kernels
from speccompile.plugins.driver import CubinKernels
from speccompile.plugins.launches import draft_step_launches
from speccompile.runtime.device_memory import Array, Arrays, Staging
from speccompile.runtime.devices.cuda import CudaDevice
from speccompile.runtime.errors import CompatibilityError, EngineError
from tests.host_device import HostDevice

pytestmark = pytest.mark.gpu

ARRAYS = {
    "tokens": Array("int64", (2, 5)),
    "lengths": Array("int64", (2,)),
    "seeds": Array("int64", (2, 2)),
    "draft_next_token": Array("int64", (2,)),
    "uniforms": Array("int64", (2, 5, 2)),
}


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    try:
        found = CudaDevice()
    except CompatibilityError as error:
        pytest.skip(str(error))
    architecture = found.architecture
    found.load(CubinKernels(lambda: compile_kernels(architecture)))
    yield found
    found.close()


def uniforms(device: CudaDevice | HostDevice, replays: int) -> list[int]:
    """The random numbers of a round, by a kernel of a captured graph, as a host reads them."""
    arrays = Arrays(device, ARRAYS, what="a test")
    staging = Staging(device, ARRAYS, arrays)
    staging.put("lengths", np.array([3, 9], np.int64))
    staging.put("seeds", np.array([[7, 0], [-8, 1]], np.int64))
    [launch] = draft_step_launches(2, 4, 5, arrays)
    graph = device.capture(lambda: device.launch(launch))
    for _ in range(replays):
        graph.replay()
    data, arrived = staging.get("uniforms", 0, ARRAYS["uniforms"].size), device.event()
    arrived.record()
    arrived.wait(30.0, "a test")
    found: list[int] = data.view(np.int64).tolist()
    return found


@pytest.mark.parametrize("replays", [0, 1, 3])
def test_memory_kernels_and_graphs_are_those_of_the_host(replays: int, device: CudaDevice) -> None:
    assert uniforms(device, replays) == uniforms(HostDevice(), replays)


def test_a_capture_that_fails_leaves_the_stream_usable(device: CudaDevice) -> None:
    def record() -> None:
        raise EngineError("refused")

    with pytest.raises(EngineError, match="refused"):
        device.capture(record)
    assert uniforms(device, 1) == uniforms(HostDevice(), 1)


def test_memory_is_counted(device: CudaDevice) -> None:
    before = device.memory()
    device.allocate(64 << 20)
    after = device.memory()
    assert before.free - after.free >= 64 << 20
    assert after.peak >= 64 << 20
