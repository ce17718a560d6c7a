"""TensorRT plans, of either library: set up once for a size of call, checked at every call."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from speccompile.runtime.device import Device
from speccompile.runtime.device_memory import DType
from speccompile.runtime.device_model import DeviceModel, Tensor, place_models
from speccompile.runtime.errors import CompatibilityError, EngineError

__all__ = ["PlanContext", "TensorRTPlan", "import_library", "open_plans"]

LibraryName = Literal["tensorrt", "tensorrt_rtx"]

_EXTRAS = {"tensorrt": "cuda", "tensorrt_rtx": "tensorrt-rtx"}
_DTYPES: dict[str, DType] = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT64": "int64",
    "INT32": "int32",
    "BOOL": "bool",
    "UINT8": "uint8",
}


def import_library(name: LibraryName) -> ModuleType:
    """The library that made a plan. Raises CompatibilityError where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise CompatibilityError(
            f"the plans need the package {name}, which does not import ({error}); "
            f"pip install 'speccompile[{_EXTRAS[name]}]'"
        ) from error


def open_plans(
    library: ModuleType,
    device: Device,
    plans: Mapping[str, Path],
    *,
    shares_cache: bool,
    batch: int | None = None,
) -> dict[str, DeviceModel]:
    """Open plans by role, "target" and perhaps "draft", and give them their memory.

    `batch` is how many sequences are to be decoded together: a plan's profiles may allow for more.
    The plugin has to be registered. Raises EngineError for what cannot be opened or does not fit.
    """
    models = {role: TensorRTPlan(library, device, path) for role, path in plans.items()}
    return place_models(device, models, shares_cache=shares_cache, batch=batch)


class TensorRTPlan:
    """A plan, open; see `CompiledModel`."""

    def __init__(self, library: ModuleType, device: Device, plan: Path) -> None:
        """Raises EngineError for a plan of another version or GPU, or that copies its caches."""
        self._library, self._device, self._path = library, device, plan
        self._log = _log(library)
        self._options: list[Any] = []
        self._runtime: Any = library.Runtime(self._log)
        self._engine: Any = self._open()
        engine, inputs = self._engine, library.TensorIOMode.INPUT
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self.tensors = {name: self._tensor(name) for name in names}
        self._inputs = [name for name in names if engine.get_tensor_mode(name) == inputs]
        self._check_caches()
        profiles = range(engine.num_optimization_profiles)
        self._profiles = [engine.get_tensor_profile_shape("input_ids", index) for index in profiles]
        if not self._profiles:
            raise EngineError(f"{plan}: has no optimization profile; build it again")
        self.batch = max(int(most[0]) for _, _, most in self._profiles)
        self.rows = max(int(most[1]) for _, _, most in self._profiles)
        self.scratch = int(engine.device_memory_size_v2)

    def context(
        self, batch: int, rows: int, addresses: Mapping[str, int], scratch: int
    ) -> PlanContext:
        """Set up for calls of one size. The scratch memory may be that of other contexts too, as
        long as all of them run on the device's one stream."""
        context: Any = self._engine.create_execution_context(self._context_options())
        what = f"{batch} x {rows} rows"
        if context is None:
            raise self._failed(f"makes no context for {what}")
        context.set_device_memory(scratch, self.scratch)
        stream = self._device.stream
        if not context.set_optimization_profile_async(self._profile(batch, rows), stream):
            raise self._failed(f"refuses the profile for {what}")
        for name in self._inputs:
            if not context.set_input_shape(name, self._call_shape(name, batch, rows)):
                raise self._failed(f"refuses {what} of {name}")
        try:
            missing = context.infer_shapes()
        except RuntimeError as error:
            raise self._failed(f"finds no shapes for {what} ({error})") from error
        if missing:
            raise self._failed(f"lacks the shapes of {', '.join(missing)}")
        for name in self.tensors:
            if not context.set_tensor_address(name, addresses[name]):
                raise self._failed(f"refuses the address of {name}")
        return PlanContext(context, stream, lambda: self._failed(f"fails on {what}"))

    def _context_options(self) -> Any:  # noqa: ANN401 - the library has no types
        """Memory of ours, and kernels that stay what they are.

        Left to itself, TensorRT-RTX runs fallback kernels for sizes that vary until it has compiled
        better ones in the background: a graph captured before would replay what is gone, and a row
        change its bits from one call to the next. So they are compiled before the first call.
        """
        memory = self._library.ExecutionContextAllocationStrategy.USER_MANAGED
        kernels = getattr(self._library, "DynamicShapesKernelSpecializationStrategy", None)
        if kernels is None:
            return memory
        options = self._engine.create_runtime_config()
        options.set_execution_context_allocation_strategy(memory)
        options.dynamic_shapes_kernel_specialization_strategy = kernels.EAGER
        self._options.append(options)  # for as long as the contexts
        return options

    def _open(self) -> Any:  # noqa: ANN401 - the library has no types
        try:
            with self._path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # a ValueError: it is empty
            raise EngineError(f"{self._path}: cannot be read: {error}") from error
        with data:
            engine = self._runtime.deserialize_cuda_engine(data)
        if engine is None:
            raise self._failed(f"does not open this plan on {self._device.name}")
        return engine

    def _tensor(self, name: str) -> Tensor:
        dtype = _DTYPES.get(self._engine.get_tensor_dtype(name).name)
        if dtype is None:
            raise self._failed(f"has {name} of a type that is not known here")
        return Tensor(dtype, tuple(int(size) for size in self._engine.get_tensor_shape(name)))

    def _check_caches(self) -> None:
        """Every new cache has to be the old one: with two buffers, half of the rows would miss."""
        for name in self.tensors:
            if name.startswith("new_"):
                source = name.removeprefix("new_")
                if source not in self.tensors:
                    raise self._failed(f"has {name}, but no {source}")
                aliased = getattr(self._engine, "get_aliased_input_tensor", None)
                if aliased is not None and aliased(name) != source:
                    raise self._failed(f"copies {source} instead of updating it in place")

    def _profile(self, batch: int, rows: int) -> int:
        """The narrowest optimization profile for a size of call."""
        fitting = [
            (int(most[1]), int(most[0]), index)
            for index, (least, _, most) in enumerate(self._profiles)
            if least[0] <= batch <= most[0] and least[1] <= rows <= most[1]
        ]
        if not fitting:
            raise EngineError(
                f"{self._path}: has no profile for {batch} x {rows} rows; build again, with more"
            )
        return min(fitting)[2]

    def _call_shape(self, name: str, batch: int, rows: int) -> tuple[int, ...]:
        shape = self.tensors[name].shape
        sizes = (batch if axis == 0 else rows for axis in range(len(shape)))
        return tuple(size if fixed < 0 else fixed for size, fixed in zip(sizes, shape, strict=True))

    def _failed(self, what: str) -> EngineError:
        said = self._log.take()
        reason = f": {said}" if said else ""
        return EngineError(f"{self._path}: {self._library.__name__} {what}{reason}")


class PlanContext:
    """See `Context`."""

    def __init__(
        self,
        context: Any,  # noqa: ANN401 - the library has no types
        stream: int,
        failed: Callable[[], EngineError],
    ) -> None:
        self._context, self._stream, self._failed = context, stream, failed

    @property
    def capturable(self) -> bool:
        """TensorRT-RTX tells; TensorRT takes part in any capture, and says so when it cannot."""
        tell = getattr(self._context, "is_stream_capturable", None)
        return tell is None or bool(tell(self._stream))

    def enqueue(self) -> None:
        # False leaves old outputs where new ones are looked for.
        if not self._context.execute_async_v3(self._stream):
            raise self._failed()


@cache
def _log(library: ModuleType) -> Any:  # noqa: ANN401 - a class that the library derives
    """Keeps what the library says last; a process has one logger, whatever is opened later."""

    class Log(library.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            library.ILogger.__init__(self)
            self._said = ""

        def log(self, severity: Any, message: str) -> None:  # noqa: ANN401
            if severity in (library.ILogger.ERROR, library.ILogger.INTERNAL_ERROR):
                self._said = " ".join(message.split())

        def take(self) -> str:
            """The last error since it was asked before."""
            said, self._said = self._said, ""
            return said

    return Log()
