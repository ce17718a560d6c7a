from __future__ import annotations

import ctypes
import errno
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from speccompile.compiler.tensorrt.library import LibraryName, Log, Message, open_library
from speccompile.runtime.errors import SpeccompileError
from tests.plans import NEEDS_RTX


class _Logger:
    """ILogger, as far as it is needed."""


class _AnyDevice:
    """IBuilderConfig of a library that builds without a GPU."""

    def set_compute_capability(self) -> None: ...


def _install(
    monkeypatch: pytest.MonkeyPatch, name: str, config: type = SimpleNamespace, folder: str = ""
) -> None:
    """Let the library `name` be installed, its shared objects in `folder`; "" for neither."""
    module = ModuleType(name)
    members = {"NONE": 0, "CURRENT": 1, "SM80": 80, "SM89": 89}
    for attribute, value in {
        "__version__": "9.9",
        "ILogger": _Logger,
        "IBuilderConfig": config,
        "ComputeCapability": SimpleNamespace(__members__=members),
    }.items():
        setattr(module, attribute, value)
    monkeypatch.setitem(sys.modules, name, module)
    libraries = ModuleType(f"{name}_libs")
    libraries.__file__ = f"{folder}/__init__.py"
    monkeypatch.setitem(sys.modules, f"{name}_libs", libraries if folder else None)


def _remove(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


def test_tensorrt_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, "tensorrt")
    _install(monkeypatch, "tensorrt_rtx", _AnyDevice)

    library = open_library("auto")

    assert (library.name, library.version) == ("tensorrt", "9.9")
    assert library.title == "TensorRT 9.9"
    assert library.needs_device


def test_tensorrt_rtx_stands_in_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _remove(monkeypatch, "tensorrt")
    _install(monkeypatch, "tensorrt_rtx", _AnyDevice)

    library = open_library("auto")

    assert library.name == "tensorrt_rtx"
    assert library.architectures == ("sm80", "sm89")
    assert not library.needs_device


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("auto", r"TensorRT-RTX .*pip install 'speccompile\[tensorrt-rtx\]'$"),
        ("tensorrt_rtx", r"pip install 'speccompile\[tensorrt-rtx\]'$"),
        ("tensorrt", r"pip install 'speccompile\[cuda\]', on a host with an NVIDIA GPU$"),
    ],
)
def test_a_missing_library_says_what_to_install(
    name: LibraryName, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _remove(monkeypatch, "tensorrt", "tensorrt_rtx")

    with pytest.raises(SpeccompileError, match=install):
        open_library(name)


def test_the_name_that_the_wheel_lacks_is_added(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = tmp_path / "libtensorrt_rtx.so.1"
    original.write_bytes(b"library")
    _install(monkeypatch, "tensorrt_rtx", _AnyDevice, str(tmp_path))

    open_library("tensorrt_rtx")
    open_library("tensorrt_rtx")

    alias = tmp_path / "libtensorrt_rtx.so"
    assert alias.readlink() == Path("libtensorrt_rtx.so.1")


def test_a_name_that_is_there_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("libtensorrt_rtx.so.1", "libtensorrt_rtx.so"):
        (tmp_path / name).write_bytes(name.encode())
    _install(monkeypatch, "tensorrt_rtx", _AnyDevice, str(tmp_path))

    open_library("tensorrt_rtx")

    assert (tmp_path / "libtensorrt_rtx.so").read_bytes() == b"libtensorrt_rtx.so"


def test_a_folder_of_others_says_what_its_owner_can_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libtensorrt_rtx.so.1").write_bytes(b"library")
    _install(monkeypatch, "tensorrt_rtx", _AnyDevice, str(tmp_path))

    def refuse(path: Path, target: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    def find_nothing(name: str) -> None:
        raise OSError(f"{name}: not found")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    monkeypatch.setattr(ctypes, "CDLL", find_nothing)  # a plan built before may have loaded it
    link = f"'ln -s libtensorrt_rtx.so.1 {tmp_path}/libtensorrt_rtx.so'"

    with pytest.raises(SpeccompileError, match=rf"\(Permission denied\).*{link}.*LD_LIBRARY_PATH"):
        open_library("tensorrt_rtx")


def test_another_process_may_add_the_name_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libtensorrt_rtx.so.1").write_bytes(b"library")
    _install(monkeypatch, "tensorrt_rtx", _AnyDevice, str(tmp_path))

    def lose(path: Path, target: str) -> None:
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(Path, "symlink_to", lose)

    assert open_library("tensorrt_rtx").name == "tensorrt_rtx"


def test_messages_are_shown_and_collected(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.add(Message("ERROR", "before"))
    with log.collect() as outer:
        log.add(Message("VERBOSE", "chatter"))
        with log.collect() as inner:
            log.add(Message("WARNING", "both"))
        log.add(Message("INTERNAL_ERROR", "outer"))

    assert [message.text for message in inner] == ["both"]
    assert [message.text for message in outer] == ["both", "outer"]
    assert [message.is_error for message in outer] == [False, True]
    shown = "[ERROR] before\n[WARNING] both\n[INTERNAL_ERROR] outer\n"
    assert capsys.readouterr() == ("", shown)


@NEEDS_RTX
def test_the_real_library_says_what_it_can_do() -> None:
    library = open_library("tensorrt_rtx")

    assert {"sm80", "sm86", "sm89", "sm120"} <= set(library.architectures)
    assert library.log is open_library("tensorrt_rtx").log
