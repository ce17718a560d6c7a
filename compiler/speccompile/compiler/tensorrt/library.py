"""TensorRT as installed: the module ``tensorrt``, or ``tensorrt_rtx``, which has the same API.

``tensorrt_rtx`` builds plans without a GPU and without a driver, for the architectures it names;
``tensorrt`` builds for the GPU at hand. What a library can do is asked of it, never concluded from
its version.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, new_class
from typing import Literal, Protocol, cast

from speccompile.compiler.tensorrt.installed import INSTALL
from speccompile.runtime.errors import SpeccompileError

__all__ = ["Library", "LibraryName", "Log", "Message", "open_library"]

LibraryName = Literal["auto", "tensorrt", "tensorrt_rtx"]

_TITLES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT-RTX"}
_SHOWN = frozenset({"INTERNAL_ERROR", "ERROR", "WARNING", "INFO"})


@dataclass(frozen=True)
class Library:
    """`architectures` are those it builds for anywhere ("sm89"): none, if it needs the GPU."""

    module: ModuleType
    name: str
    version: str
    architectures: tuple[str, ...]
    log: Log

    @property
    def needs_device(self) -> bool:
        return not self.architectures

    @property
    def title(self) -> str:
        """For messages: name and version."""
        return f"{_TITLES[self.name]} {self.version}"


@dataclass(frozen=True)
class Message:
    """`severity` is the name of one of ILogger's."""

    severity: str
    text: str

    @property
    def is_error(self) -> bool:
        return self.severity in {"INTERNAL_ERROR", "ERROR"}


@dataclass
class Log:
    """What the library says: passed on to standard error, and kept while somebody collects it."""

    _collections: list[list[Message]] = field(default_factory=list[list[Message]])

    @contextmanager
    def collect(self) -> Generator[list[Message]]:
        """The messages of the block, VERBOSE ones aside."""
        messages: list[Message] = []
        self._collections.append(messages)
        try:
            yield messages
        finally:
            self._collections.pop()

    def add(self, message: Message) -> None:
        if message.severity in _SHOWN:
            print(f"[{message.severity}] {message.text}", file=sys.stderr)
            for messages in self._collections:
                messages.append(message)


def open_library(name: LibraryName = "auto") -> Library:
    """The library called `name`, or the first that can be imported.

    Raises SpeccompileError where there is none, or where an installed one cannot be used.
    """
    if name != "auto":
        return _open(name)
    try:
        return _open("tensorrt")
    except SpeccompileError:
        return _open("tensorrt_rtx")


class _Severity(Protocol):
    """A member of ILogger.Severity."""

    @property
    def name(self) -> str: ...


def _open(name: str) -> Library:
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        raise SpeccompileError(
            f"{_TITLES[name]} is not installed; install it with: {INSTALL[name]}"
        ) from None
    except (ImportError, OSError) as error:
        raise SpeccompileError(f"{_TITLES[name]} cannot be imported ({error}); reinstall it") from (
            error
        )
    with suppress(ModuleNotFoundError):  # of a TensorRT-RTX that did not come as a wheel
        if name == "tensorrt_rtx":
            _add_missing_alias(Path(str(import_module("tensorrt_rtx_libs").__file__)).parent)
    architectures: tuple[str, ...] = ()
    if hasattr(module.IBuilderConfig, "set_compute_capability"):
        members = module.ComputeCapability.__members__
        architectures = tuple(member.lower() for member in members if member.startswith("SM"))
    return Library(module, name, module.__version__, architectures, _logger(module))


def _add_missing_alias(folder: Path) -> None:
    """The parser opens a name that the wheel of TensorRT-RTX does not have when it meets the first
    plugin, and ends the process if it is not found."""
    alias = folder / "libtensorrt_rtx.so"
    original = folder / "libtensorrt_rtx.so.1"
    if alias.exists() or not original.exists():
        return
    try:
        alias.symlink_to(original.name)
    except FileExistsError:  # another process was faster
        return
    except OSError as error:
        if not _is_found(alias.name):
            raise SpeccompileError(
                f"{folder}: TensorRT-RTX needs {alias.name} here, and it cannot be made "
                f"({os.strerror(error.errno or 0)}); as the folder's owner run "
                f"'ln -s {original.name} {alias}', or set LD_LIBRARY_PATH to a folder with a link "
                f"of that name to {original}"
            ) from None


def _is_found(library: str) -> bool:
    """By the loader, on the paths that were set when this process began."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@cache
def _logger(module: ModuleType) -> Log:
    """A Log that is an ILogger too; one a process, as the library keeps the first that it sees."""
    interface = module.ILogger

    class Logger(Log):
        def __init__(self) -> None:
            interface.__init__(self)
            super().__init__()

        def log(self, severity: _Severity, text: str) -> None:
            self.add(Message(severity.name, text))

    return cast(Log, new_class("TensorRTLogger", (Logger, interface))())
