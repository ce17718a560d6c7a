"""The models of an artifact on a device, open: what sessions and engines are made of there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Protocol

from speccompile.plugins.driver import CubinKernels
from speccompile.plugins.launches import LogitsType
from speccompile.plugins.tensorrt_plugin import register
from speccompile.runtime.artifact import Artifact
from speccompile.runtime.device import Device
from speccompile.runtime.device_model import DeviceModel
from speccompile.runtime.device_session import DRAFT_LENGTH, DeviceSession
from speccompile.runtime.devices.cuda import CudaDevice
from speccompile.runtime.engines.device_engine import DeviceEngine
from speccompile.runtime.engines.tensorrt import import_library, open_plans
from speccompile.runtime.errors import EngineError
from speccompile.runtime.placement import Placement
from speccompile.runtime.rounds import Rounds

__all__ = ["DeviceEngines", "OpenPlans", "open_on_gpu"]


class DeviceEngines:
    """A target, and perhaps a draft, on a device: sessions and engines share their caches.

    One is used at a time, and what is handed out begins with nothing in them.
    """

    def __init__(
        self,
        device: Device,
        models: Mapping[str, DeviceModel],
        *,
        shares_cache: bool,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`models` are by role; `close` gives back what they stand on, behind themselves."""
        self.device = device
        self.models = models
        self.shares_cache = shares_cache
        self._close = close
        self._rounds = Rounds(
            device, models["target"], models.get("draft"), shares_cache=shares_cache
        )
        self._engines: dict[str, DeviceEngine] = {}

    def close(self) -> None:
        """Give everything back, graphs and models ahead of the device."""
        self._rounds.close()
        for model in self.models.values():
            model.close()
        self._close()

    @property
    def logits_type(self) -> LogitsType:
        """Of the target's plan."""
        return self._rounds.logits_type

    def session(
        self, *, drafting: bool, context: int, draft_length: int = DRAFT_LENGTH
    ) -> DeviceSession:
        """A new sequence of up to `context` tokens, with the model draft or plain."""
        self._rounds.cached.drop(0)
        return DeviceSession(
            self._rounds, context=context, drafting=drafting, draft_length=draft_length
        )

    def engine(self, role: str) -> DeviceEngine:
        """The model of a role as an engine, whose logits come to the host."""
        self._rounds.cached.drop(0)
        if role not in self._engines:
            self._engines[role] = DeviceEngine(self.device, self.models[role])
        engine = self._engines[role]
        engine.rollback(0)
        return engine


class OpenPlans(Protocol):
    """A function that opens the plans of a placement, such as `open_on_gpu`."""

    def __call__(self, artifact: Artifact, placement: Placement) -> DeviceEngines: ...


def open_on_gpu(artifact: Artifact, placement: Placement) -> DeviceEngines:
    """Open plans on their GPU; a process can have those of one placement at a time.

    Raises CompatibilityError where a library is missing, EngineError for what does not open or fit.
    """
    resources = ExitStack()
    try:
        return _open(artifact, placement, resources)
    except BaseException:
        resources.close()
        raise


def _open(artifact: Artifact, placement: Placement, resources: ExitStack) -> DeviceEngines:
    engines, pair = placement.engines, placement.pair
    library = import_library(engines.library)
    device = CudaDevice(str(placement.gpu.index))
    resources.callback(device.close)
    kernels = CubinKernels(artifact.path(engines.kernels).read_bytes)
    device.load(kernels)
    try:
        registration = register(library, kernels)
    except RuntimeError as error:
        raise EngineError(
            f"{artifact.root}: this process has plans open already; close them first"
        ) from error
    resources.callback(registration.close)
    shares_cache = pair.draft is not None and pair.draft.shares_cache
    models = open_plans(
        library,
        device,
        {plan.role: artifact.path(plan.plan) for plan in pair.plans},
        shares_cache=shares_cache,
        batch=pair.target.batch,
    )
    return DeviceEngines(device, models, shares_cache=shares_cache, close=resources.close)
