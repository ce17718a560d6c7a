import sys

import pytest

from speccompile.runtime.devices.driver import Driver, open_driver
from speccompile.runtime.errors import CompatibilityError, EngineError
from tests.fake_driver import FakeDriver, Result


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver()
    driver.install(monkeypatch)
    return driver


def test_a_value_comes_without_its_code(fake: FakeDriver) -> None:
    driver = open_driver(None)
    assert driver.started
    assert driver("cuMemGetInfo") == (10 << 30, 24 << 30)
    assert driver("cuDriverGetVersion") == 13010
    assert driver("cuInit", 0) is None


def test_every_code_but_success_is_an_error_of_one_line(fake: FakeDriver) -> None:
    driver = open_driver(None)
    driver.name = "NVIDIA L4"
    fake.fails["cuGraphLaunch"] = Result.CUDA_ERROR_LAUNCH_FAILED
    message = r"^NVIDIA L4: cuGraphLaunch failed: CUDA_ERROR_LAUNCH_FAILED \(launch failed\)$"
    with pytest.raises(EngineError, match=message):
        driver("cuGraphLaunch", 1, 2)
    driver.quietly("cuGraphLaunch", 1, 2)


def test_a_query_tells_not_yet_from_never(fake: FakeDriver) -> None:
    driver = open_driver(None)
    fake.pending = 1
    assert [driver.ready("cuEventQuery", 1) for _ in range(2)] == [False, True]
    fake.fails["cuEventQuery"] = Result.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(EngineError, match="what it was doing failed: CUDA_ERROR_LAUNCH_FAILED"):
        driver.ready("cuEventQuery", 1)


def test_a_driver_that_does_not_start_says_what_it_said(fake: FakeDriver) -> None:
    fake.fails["cuInit"] = Result.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    message = (
        r"does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH \(system driver mismatch\) "
        r"\(CUDA_VISIBLE_DEVICES='0'\); see what `nvidia-smi` says"
    )
    with pytest.raises(CompatibilityError, match=message):
        open_driver("0")


def test_a_host_without_a_device_has_a_driver_that_is_not_started(fake: FakeDriver) -> None:
    fake.fails["cuInit"] = Result.CUDA_ERROR_NO_DEVICE
    assert not open_driver(None).started


def test_a_host_without_the_bindings_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(CompatibilityError, match=r"pip install 'speccompile\[cuda\]'"):
        open_driver(None)


def test_a_host_without_a_driver_is_told_what_was_looked_for() -> None:
    functions = pytest.importorskip("cuda.bindings.driver")
    try:
        functions.cuInit(0)
    except RuntimeError:
        with pytest.raises(CompatibilityError, match=r"no NVIDIA driver: libcuda\.so\.1 is not"):
            open_driver(None)
    else:
        assert isinstance(open_driver(None), Driver)
