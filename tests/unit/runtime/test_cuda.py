import ctypes
import gc
from collections.abc import Callable
from ctypes import c_int32, c_void_p

import pytest

from speccompile.plugins.launches import Launch
from speccompile.runtime.device_memory import Array, Arrays
from speccompile.runtime.devices.cuda import CudaDevice
from speccompile.runtime.errors import CompatibilityError, EngineError
from tests.fake_driver import FakeDriver, Result

LAUNCH = Launch("commit", (1, 2, 3), (256, 1, 1), 0, (c_void_p(16), c_int32(5)))


class Kernels:
    """Kernels that note their launches, or fail."""

    def __init__(self, failure: str = "") -> None:
        self.failure = failure
        self.launched: list[tuple[Launch, int]] = []

    def load(self) -> None:
        if self.failure == "load":
            raise RuntimeError("cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU")

    def launch(self, launch: Launch, stream: int) -> None:
        if self.failure == "launch":
            raise RuntimeError("cuLaunchKernel: CUDA_ERROR_INVALID_VALUE")
        self.launched.append((launch, stream))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver(models=("NVIDIA L4", "NVIDIA H200 MIG 1g.18gb"))
    fake.install(monkeypatch)
    return fake


def test_a_device_says_what_it_is_and_how_it_was_chosen(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice()
    assert device.name == "NVIDIA L4, cuda:0 GPU-00000000-0000-0000-0000-000000000000"
    assert (device.architecture, device.cuda_version) == ("sm89", (13, 1))
    driver.install(monkeypatch, visible="0,MIG-01010101-0101-0101-0101-010101010101")
    uuid = "MIG-01010101-0101-0101-0101-010101010101"
    assert CudaDevice("MIG-0101").name == (
        f"NVIDIA H200 MIG 1g.18gb, cuda:1 {uuid} (CUDA_VISIBLE_DEVICES='0,{uuid}')"
    )


def test_no_device_is_an_error_that_names_the_variable(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.fails["cuInit"] = Result.CUDA_ERROR_NO_DEVICE
    driver.install(monkeypatch, visible="")
    with pytest.raises(CompatibilityError, match=r"no GPU is visible \(CUDA_VISIBLE_DEVICES=''\)"):
        CudaDevice()


def test_memory_is_zeroed_counted_and_given_back(driver: FakeDriver) -> None:
    device = CudaDevice()
    address = device.allocate(3 << 30)
    pinned = device.allocate_pinned(64)
    stream = driver.arguments("cuMemsetD8Async")[0][-1]
    assert driver.arguments("cuMemsetD8Async") == [(address, 0, 3 << 30, stream)]
    assert ctypes.string_at(pinned, 64) == bytes(64)
    memory = device.memory()
    assert (memory.free, memory.peak) == (7 << 30, 3 << 30)
    driver.free = 9 << 30
    assert device.memory().peak == 3 << 30
    device.close()
    assert driver.arguments("cuMemFree") == [(address,)]
    assert driver.arguments("cuMemFreeHost") == [(pinned,)]
    assert driver.count("cuDevicePrimaryCtxRelease") == driver.count("cuStreamDestroy") == 1


def test_what_does_not_fit_is_refused_with_need_and_have(driver: FakeDriver) -> None:
    device = CudaDevice()
    with pytest.raises(
        EngineError, match=r"L4, .*: a cache needs 11\.00 GiB .* 10\.00 GiB is free"
    ):
        Arrays(device, {"cache": Array("uint8", (11 << 30,))}, what="a cache")
    assert driver.count("cuMemAlloc") == 0


def test_kernels_are_launched_on_the_device_s_stream(driver: FakeDriver) -> None:
    device, kernels = CudaDevice(), Kernels()
    with pytest.raises(EngineError, match="commit was not loaded"):
        device.launch(LAUNCH)
    device.load(kernels)
    device.launch(LAUNCH)
    assert kernels.launched == [(LAUNCH, device.stream)]


def test_kernels_that_fail_are_errors_of_the_device(driver: FakeDriver) -> None:
    device = CudaDevice()
    with pytest.raises(EngineError, match=r"does not take the kernels .*; build for sm89"):
        device.load(Kernels("load"))
    device.load(Kernels("launch"))
    with pytest.raises(EngineError, match="commit was not launched: cuLaunchKernel"):
        device.launch(LAUNCH)


CALLS: dict[str, Callable[[CudaDevice], object]] = {
    "cuMemcpyHtoDAsync": lambda device: device.upload(1, 2, 3),
    "cuMemcpyDtoHAsync": lambda device: device.download(1, 2, 3),
    "cuMemsetD8Async": lambda device: device.clear(1, 2),
    "cuMemAlloc": lambda device: device.allocate(1),
    "cuMemHostAlloc": lambda device: device.allocate_pinned(1),
    "cuEventCreate": lambda device: device.event(),
    "cuEventRecord": lambda device: device.event().record(),
    "cuStreamBeginCapture": lambda device: device.capture(lambda: None),
    "cuStreamEndCapture": lambda device: device.capture(lambda: None),
    "cuGraphLaunch": lambda device: device.capture(lambda: None).replay(),
    "cuMemGetInfo": lambda device: device.memory(),
}


@pytest.mark.parametrize("function", CALLS)
def test_every_call_is_checked(driver: FakeDriver, function: str) -> None:
    device = CudaDevice()
    driver.fails[function] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(EngineError, match=rf"{function} failed: CUDA_ERROR_OUT_OF_MEMORY \(out of"):
        CALLS[function](device)


def test_an_event_waits_for_the_stream_and_not_for_ever(driver: FakeDriver) -> None:
    event = CudaDevice().event()
    driver.pending = 3
    event.record()
    event.wait(10.0, "round 4")
    assert driver.count("cuEventQuery") == 4
    driver.pending = 1 << 30
    with pytest.raises(EngineError, match=r"^NVIDIA L4, .*: round 4 did not end within 0\.01 s"):
        event.wait(0.01, "round 4")
    driver.pending, driver.fails["cuEventQuery"] = 0, Result.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(EngineError, match="cannot use it any more"):
        event.wait(10.0, "round 4")


def test_a_graph_is_captured_instantiated_and_replayed(driver: FakeDriver) -> None:
    device = CudaDevice()
    graph = device.capture(lambda: device.clear(1, 2))
    order = [name for name, _ in driver.calls if name != "cuCtxSetCurrent"][-6:]
    assert order == [
        "cuStreamBeginCapture",
        "cuMemsetD8Async",
        "cuStreamEndCapture",
        "cuGraphInstantiate",
        "cuGraphDestroy",
        "cuGraphUpload",
    ]
    graph.replay()
    graph.close()
    last = [name for name, _ in driver.calls if name != "cuCtxSetCurrent"][-2:]
    assert last == ["cuGraphLaunch", "cuGraphExecDestroy"]


@pytest.mark.parametrize("error", [EngineError("refused"), KeyboardInterrupt()])
def test_a_capture_is_ended_when_recording_fails(driver: FakeDriver, error: BaseException) -> None:
    device = CudaDevice()
    driver.fails["cuStreamEndCapture"] = Result.CUDA_ERROR_LAUNCH_FAILED  # it was invalidated

    def record() -> None:
        raise error

    with pytest.raises(type(error)):
        device.capture(record)
    assert driver.count("cuStreamEndCapture") == 1
    assert driver.count("cuGraphInstantiate") == 0


@pytest.mark.parametrize("function", ["cuGraphInstantiate", "cuGraphUpload"])
def test_a_graph_that_cannot_be_made_is_not_kept(driver: FakeDriver, function: str) -> None:
    driver.fails[function] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(EngineError, match=f"{function} failed"):
        CudaDevice().capture(lambda: None)
    assert driver.count("cuGraphDestroy") == 1
    assert driver.count("cuGraphExecDestroy") == (function == "cuGraphUpload")


def test_the_context_is_made_current_before_every_use(driver: FakeDriver) -> None:
    """A session's thread may change, and another library its context."""
    device = CudaDevice()
    event, graph = device.event(), device.capture(lambda: None)
    uses: list[Callable[[], None]] = [
        lambda: device.clear(1, 2),
        event.record,
        graph.replay,
        graph.close,
    ]
    for use in uses:
        before = driver.count("cuCtxSetCurrent")
        use()
        assert driver.count("cuCtxSetCurrent") == before + 1


def test_the_collector_rests_while_a_graph_is_recorded(driver: FakeDriver) -> None:
    states: list[bool] = []
    CudaDevice().capture(lambda: states.append(gc.isenabled()))
    assert states == [False]
    assert gc.isenabled()


def test_ranges_need_no_package(driver: FakeDriver) -> None:
    with CudaDevice().range("draft"):
        pass
