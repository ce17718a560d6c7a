"""Plans opened on a GPU whose driver and library are fakes: in what order, and what is undone."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.device_engines import open_on_gpu
from speccompile.runtime.device_session import DRAFT_LENGTH, DeviceSession
from speccompile.runtime.errors import CompatibilityError, EngineError
from speccompile.runtime.gpus import Gpu, plan_pairs
from speccompile.runtime.placement import Placement
from speccompile.runtime.request import Request
from tests.fake_driver import FakeDriver, Result
from tests.fake_tensorrt import FakeEngine, fake_library
from tests.table_artifact import FOLDER, GPU_ENGINES, TablePlans, write_artifact

GPU = Gpu(1, "NVIDIA L4", "GPU-1", "sm89", 24_000_000_000, mig=False)
PLACEMENT = Placement(FOLDER, GPU_ENGINES, plan_pairs(GPU_ENGINES)[1], GPU, None)


class Registry:
    """Of plugins: one of each name, as in TensorRT."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def register_creator(self, creator: Any, namespace: str) -> bool:  # noqa: ANN401
        if creator.name in self.names:
            return False
        self.names.append(creator.name)
        return True

    def deregister_creator(self, creator: Any) -> None:  # noqa: ANN401
        self.names.remove(creator.name)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return open_artifact(write_artifact(tmp_path / "tiny"))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver(models=("NVIDIA L40", "NVIDIA L4"))
    driver.install(monkeypatch)
    return driver


@pytest.fixture
def registry() -> Registry:
    return Registry()


def install(
    monkeypatch: pytest.MonkeyPatch, registry: Registry, engine: FakeEngine | None, says: str = ""
) -> ModuleType:
    """The library opens every plan as `engine`."""

    class Interface:
        pass

    library = fake_library(engine, says)
    library.__dict__.update(
        get_plugin_registry=lambda: registry,
        IPluginCreatorV3One=Interface,
        PluginFieldType=SimpleNamespace(CHAR=0, INT32=1),
        PluginField=_plugin_field,
        PluginFieldCollection=list,
    )
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", library)
    return library


def _plugin_field(*parts: object) -> tuple[object, ...]:
    return parts


def test_plans_are_opened_on_their_gpu_and_given_back(
    artifact: Artifact, driver: FakeDriver, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, registry, FakeEngine())
    device = open_on_gpu(artifact, PLACEMENT)
    assert driver.arguments("cuDevicePrimaryCtxRetain") == [(1,)]
    [(image,)] = driver.arguments("cuModuleLoadData")
    assert image == artifact.path(GPU_ENGINES.kernels).read_bytes()
    assert sorted(registry.names) == ["SpecVerify", "TreeMask"]
    assert device.shares_cache
    assert {role: model.batch for role, model in device.models.items()} == {"target": 1, "draft": 1}
    assert isinstance(device.session(drafting=True, context=64), DeviceSession)
    assert device.logits_type == "float16"
    assert driver.count("cuMemFree") == 0

    with pytest.raises(EngineError, match="this process has plans open already"):
        open_on_gpu(artifact, PLACEMENT)
    freed, released = driver.count("cuMemFree"), driver.count("cuDevicePrimaryCtxRelease")
    assert (freed, released) == (0, 1)  # the second's own alone

    device.close()
    assert registry.names == []
    assert driver.count("cuMemFree") == driver.count("cuMemAlloc") > 0
    assert driver.count("cuDevicePrimaryCtxRelease") == 2
    open_on_gpu(artifact, PLACEMENT).close()


@pytest.mark.parametrize("failure", ["plan", "memory", "kernels"])
def test_what_fails_is_said_and_undone(
    failure: str,
    artifact: Artifact,
    driver: FakeDriver,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine: FakeEngine | None = FakeEngine()
    said = {
        "plan": r"target-72\.plan: tensorrt_rtx does not open this plan .*: it is of another GPU",
        "memory": "running the models needs",
        "kernels": "does not take the kernels .* build for sm89",
    }
    if failure == "plan":
        engine = None
    elif failure == "memory":
        driver.free = 100
    else:
        driver.fails["cuModuleLoadData"] = Result.CUDA_ERROR_LAUNCH_FAILED
    install(monkeypatch, registry, engine, "it is of another GPU")
    with pytest.raises(EngineError, match=said[failure]):
        open_on_gpu(artifact, PLACEMENT)
    assert registry.names == []
    assert driver.count("cuDevicePrimaryCtxRetain") == driver.count("cuDevicePrimaryCtxRelease")


def test_a_library_that_is_missing_is_said_before_a_gpu_is_taken(
    artifact: Artifact, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    with pytest.raises(CompatibilityError, match=r"pip install 'speccompile\[tensorrt-rtx\]'"):
        open_on_gpu(artifact, PLACEMENT)
    assert driver.calls == []


def test_a_session_proposes_as_its_maker_says(artifact: Artifact) -> None:
    device = TablePlans()(artifact, PLACEMENT)
    for made, proposals in (({}, DRAFT_LENGTH), ({"draft_length": 2}, 2)):
        session = device.session(drafting=True, context=64, **made)
        list(session.generate([1, 2], Request(20)))
        assert len(session.statistics.proposed) == proposals
    plain = device.session(drafting=False, context=64)
    list(plain.generate([1, 2], Request(20)))
    assert plain.statistics.proposed == []
