"""Kernels by the CUDA driver, where a driver that is not there keeps what it was called with."""

from __future__ import annotations

import ctypes
import sys
from enum import IntEnum

import pytest

from speccompile.plugins.driver import CubinKernels
from speccompile.plugins.launches import KERNELS, Launch


class _Code(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_IMAGE = 200


class _Driver:
    """Every call succeeds but `fails`."""

    CUresult = _Code

    def __init__(self) -> None:
        self.fails = ""
        self.images: list[bytes] = []
        self.symbols: list[str] = []
        self.launches: list[tuple[object, ...]] = []

    def cuModuleLoadData(self, image: bytes) -> tuple[_Code, object]:
        self.images.append(image)
        return self._code("cuModuleLoadData"), "module"

    def cuModuleGetFunction(self, module: str, symbol: bytes) -> tuple[_Code, object]:
        self.symbols.append(symbol.decode())
        broken = self.symbols[-1] == KERNELS[1]
        code = self._code("cuModuleGetFunction") if broken else _Code.CUDA_SUCCESS
        return code, f"{module}.{symbol.decode()}"

    def cuLaunchKernel(self, *arguments: object) -> tuple[_Code]:
        *geometry, address, _ = arguments
        assert isinstance(address, int)
        pointers = (ctypes.c_void_p * 2).from_address(address)
        size = ctypes.c_int32.from_address(pointers[1] or 0).value
        pointer = ctypes.c_void_p.from_address(pointers[0] or 0).value
        self.launches.append((*geometry, pointer, size))
        return (self._code("cuLaunchKernel"),)

    def _code(self, call: str) -> _Code:
        return _Code.CUDA_ERROR_INVALID_IMAGE if call == self.fails else _Code.CUDA_SUCCESS


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> _Driver:
    driver = _Driver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    return driver


def _image() -> bytes:
    return b"cubin"


_LAUNCH = Launch(
    "tree_mask", (1, 2, 3), (256, 1, 1), 0, (ctypes.c_void_p(4096), ctypes.c_int32(17))
)


def test_a_launch_goes_out_as_it_is(driver: _Driver) -> None:
    CubinKernels(_image).launch(_LAUNCH, 77)

    expected = ("module.tree_mask", 1, 2, 3, 256, 1, 1, 0, 77, 4096, 17)
    assert driver.launches == [expected]


def test_the_cubin_is_loaded_once_and_late(driver: _Driver) -> None:
    kernels = CubinKernels(_image)
    assert driver.images == []

    kernels.load()
    kernels.launch(_LAUNCH, 77)
    kernels.launch(_LAUNCH, 77)

    assert driver.images == [b"cubin"]
    assert driver.symbols == list(KERNELS)


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"])
def test_every_return_code_is_looked_at(call: str, driver: _Driver) -> None:
    driver.fails = call

    with pytest.raises(RuntimeError, match=f"{call}: CUDA_ERROR_INVALID_IMAGE"):
        CubinKernels(_image).launch(_LAUNCH, 77)


def test_kernels_that_could_not_be_loaded_are_tried_again(driver: _Driver) -> None:
    kernels = CubinKernels(_image)
    driver.fails = "cuModuleGetFunction"
    with pytest.raises(RuntimeError):
        kernels.load()
    driver.fails = ""

    kernels.launch(_LAUNCH, 77)

    assert len(driver.launches) == 1
