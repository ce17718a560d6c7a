from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import pytest

from speccompile.plugins import cubins
from speccompile.plugins.cubins import ARCHITECTURES, KernelError, abi, compile_kernels
from speccompile.plugins.launches import KERNELS
from tests.kills import LONG

TESTED = ARCHITECTURES if LONG else ("sm75", "sm89", "sm120")
"""The oldest, one between, and the newest: each takes seconds to compile."""

needs_nvrtc = pytest.mark.skipif(
    find_spec("cuda") is None, reason="compiles CUDA kernels, which needs speccompile[cuda]"
)


@needs_nvrtc
@pytest.mark.parametrize("architecture", TESTED)
def test_every_architecture_has_every_kernel(architecture: str) -> None:
    cubin = compiled()[architecture]
    assert cubin.startswith(b"\x7fELF")
    assert [kernel for kernel in KERNELS if b".text." + kernel.encode() not in cubin] == []


@needs_nvrtc
def test_the_same_sources_give_the_same_bytes() -> None:
    assert compile_kernels("sm89") == compiled()["sm89"]


@needs_nvrtc
def test_an_unknown_architecture_is_refused_in_one_line() -> None:
    with pytest.raises(KernelError, match="no kernels for sm33") as error:
        compile_kernels("sm33")
    assert "\n" not in str(error.value)


@needs_nvrtc
def test_a_mistake_in_the_sources_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubins, "kernel_sources", lambda: {"kernels.cu": "a mistake"})
    with pytest.raises(KernelError, match=r"kernels.cu\(1\): error") as error:
        compile_kernels("sm89")
    assert "\n" not in str(error.value)


def test_without_nvrtc_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(KernelError, match=r"pip install 'speccompile\[cuda\]'"):
        compile_kernels("sm89")


def test_the_abi_follows_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = abi()
    assert len(before) == 64
    changed = cubins.kernel_sources() | {"walk.cu": "another"}
    monkeypatch.setattr(cubins, "kernel_sources", lambda: changed)
    assert abi() != before


@cache
def compiled() -> dict[str, bytes]:
    import_module("cuda.core")  # whose first import does not bear two threads
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(TESTED, pool.map(compile_kernels, TESTED), strict=True))
