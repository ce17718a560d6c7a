"""As much of TensorRT as opens a plan and runs it, noting what it was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["FakeContext", "FakeEngine", "fake_library"]

Shape = tuple[int, ...]

_CACHE: Shape = (-1, 2, 64, 8)
TENSORS: dict[str, tuple[str, str, Shape]] = {
    "input_ids": ("INPUT", "INT64", (-1, -1)),
    "parents": ("INPUT", "INT64", (-1, -1)),
    "lengths": ("INPUT", "INT64", (-1,)),
    "given": ("INPUT", "INT64", (-1,)),
    "key_cache.0": ("INPUT", "HALF", _CACHE),
    "logits": ("OUTPUT", "HALF", (-1, -1, 512)),
    "next_token": ("OUTPUT", "INT64", (-1,)),
    "new_key_cache.0": ("OUTPUT", "HALF", _CACHE),
}


@dataclass
class FakeContext:
    """Refuses the method named `refuses`."""

    refuses: str = ""
    missing: list[str] = field(default_factory=list[str])
    told: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list[tuple[str, Any]])
    capturable: bool = True

    def infer_shapes(self) -> list[str]:
        return self.missing

    def is_stream_capturable(self, stream: int) -> bool:
        return self.capturable and stream > 0

    def of(self, method: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self.told if name == method]

    def __getattr__(self, method: str) -> Callable[..., bool]:
        def call(*arguments: Any) -> bool:  # noqa: ANN401 - whatever the library takes
            self.told.append((method, arguments))
            return method != self.refuses

        return call


@dataclass
class FakeEngine:
    """`profiles` are the least, usual and most of `input_ids`."""

    tensors: dict[str, tuple[str, str, Shape]] = field(default_factory=lambda: dict(TENSORS))
    profiles: list[tuple[Shape, Shape, Shape]] = field(
        default_factory=lambda: [((1, 1), (1, 5), (2, 9)), ((1, 1), (1, 64), (1, 64))]
    )
    aliases: dict[str, str] = field(default_factory=lambda: {"new_key_cache.0": "key_cache.0"})
    context: FakeContext | None = field(default_factory=FakeContext)
    device_memory_size_v2: int = 4096
    strategies: list[str] = field(default_factory=list[str])

    @property
    def num_io_tensors(self) -> int:
        return len(self.tensors)

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.profiles)

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_mode(self, name: str) -> str:
        return self.tensors[name][0]

    def get_tensor_dtype(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=self.tensors[name][1])

    def get_tensor_shape(self, name: str) -> Shape:
        return self.tensors[name][2]

    def get_tensor_profile_shape(self, name: str, index: int) -> tuple[Shape, Shape, Shape]:
        assert name == "input_ids"
        return self.profiles[index]

    def get_aliased_input_tensor(self, name: str) -> str | None:
        return self.aliases.get(name)

    def create_runtime_config(self) -> FakeOptions:
        return FakeOptions()

    def create_execution_context(self, options: str | FakeOptions) -> FakeContext | None:
        if isinstance(options, FakeOptions):
            options = f"{options.memory}, {options.dynamic_shapes_kernel_specialization_strategy}"
        self.strategies.append(options)
        return self.context


class FakeOptions:
    """IRuntimeConfig of TensorRT-RTX."""

    memory = ""
    dynamic_shapes_kernel_specialization_strategy = "LAZY"

    def set_execution_context_allocation_strategy(self, strategy: str) -> None:
        self.memory = strategy


class _Severity(Enum):
    ERROR = 1
    INTERNAL_ERROR = 0
    WARNING = 2


class _Logger:
    ERROR, INTERNAL_ERROR, WARNING = _Severity


def fake_library(engine: FakeEngine | None, says: str = "") -> ModuleType:
    """A module that opens every plan as `engine`; while it does, it logs an error that `says`."""

    class Runtime:
        def __init__(self, logger: Any) -> None:  # noqa: ANN401 - ours, of no public class
            self.logger = logger

        def deserialize_cuda_engine(self, data: object) -> FakeEngine | None:
            assert bytes(data)  # type: ignore[call-overload]
            if says:
                self.logger.log(_Logger.ERROR, f"{says}\n")
                self.logger.log(_Logger.WARNING, "and a warning")
            return engine

    library = ModuleType("tensorrt_rtx")
    library.__dict__.update(
        ILogger=_Logger,
        Runtime=Runtime,
        TensorIOMode=SimpleNamespace(INPUT="INPUT"),
        ExecutionContextAllocationStrategy=SimpleNamespace(USER_MANAGED="USER_MANAGED"),
    )
    return library
