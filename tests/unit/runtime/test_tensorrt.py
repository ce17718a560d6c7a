import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from speccompile.runtime.device_model import Tensor
from speccompile.runtime.engines.tensorrt import TensorRTPlan, import_library, open_plans
from speccompile.runtime.errors import CompatibilityError, EngineError
from tests.fake_tensorrt import TENSORS, FakeContext, FakeEngine, fake_library
from tests.host_device import HostDevice

DEVICE = HostDevice()
ADDRESSES = {name: 4096 * (index + 1) for index, name in enumerate(TENSORS)}


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "target.plan"
    path.write_bytes(b"a plan")
    return path


def opened(plan_file: Path, engine: FakeEngine) -> TensorRTPlan:
    return TensorRTPlan(fake_library(engine), DEVICE, plan_file)


def test_a_plan_tells_its_tensors_sizes_and_memory(plan_file: Path) -> None:
    plan = opened(plan_file, FakeEngine())
    assert plan.tensors["logits"] == Tensor("float16", (-1, -1, 512))
    assert plan.tensors["lengths"] == Tensor("int64", (-1,))
    assert (plan.batch, plan.rows, plan.scratch) == (2, 64, 4096)


def test_a_plan_that_does_not_open_says_what_the_library_said(plan_file: Path) -> None:
    library = fake_library(None, "built for another\n  version")
    message = f"{plan_file}: tensorrt_rtx does not open this plan on the host: built for another v"
    with pytest.raises(EngineError, match=message):
        TensorRTPlan(library, DEVICE, plan_file)


def test_an_empty_plan_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "empty.plan"
    path.write_bytes(b"")
    with pytest.raises(EngineError, match=r"empty\.plan: cannot be read"):
        TensorRTPlan(fake_library(FakeEngine()), DEVICE, path)


def test_a_context_is_set_up_for_its_size_and_addresses(plan_file: Path) -> None:
    engine = FakeEngine()
    opened(plan_file, engine).context(1, 5, ADDRESSES, 512)
    context = engine.context
    assert context is not None
    assert engine.strategies == ["USER_MANAGED"]
    assert context.of("set_device_memory") == [(512, 4096)]
    assert dict(context.of("set_input_shape")) == {
        "input_ids": (1, 5),
        "parents": (1, 5),
        "lengths": (1,),
        "given": (1,),
        "key_cache.0": (1, 2, 64, 8),
    }
    assert dict(context.of("set_tensor_address")) == ADDRESSES
    order = list(dict.fromkeys(name for name, _ in context.told))
    assert order.index("set_optimization_profile_async") < order.index("set_input_shape")


def test_kernels_are_not_compiled_behind_a_captured_graph(tmp_path: Path) -> None:
    """TensorRT-RTX would, and swap them in between two calls."""
    engine, path = FakeEngine(), tmp_path / "a.plan"
    path.write_bytes(b"plan")
    library = fake_library(engine)
    kinds = SimpleNamespace(EAGER="EAGER")
    library.__dict__["DynamicShapesKernelSpecializationStrategy"] = kinds
    plan = TensorRTPlan(library, DEVICE, path)
    plan.context(1, 2, dict.fromkeys(plan.tensors, 256), 512)
    assert engine.strategies == ["USER_MANAGED, EAGER"]


@pytest.mark.parametrize(
    ("batch", "rows", "profile"), [(1, 1, 0), (1, 9, 0), (2, 9, 0), (1, 10, 1), (1, 64, 1)]
)
def test_the_narrowest_profile_is_taken(
    batch: int, rows: int, profile: int, plan_file: Path
) -> None:
    engine = FakeEngine()
    opened(plan_file, engine).context(batch, rows, ADDRESSES, 512)
    assert engine.context is not None
    assert engine.context.of("set_optimization_profile_async") == [(profile, DEVICE.stream)]


@pytest.mark.parametrize(("batch", "rows"), [(3, 1), (1, 65), (2, 10)])
def test_a_size_beyond_all_profiles_is_refused(batch: int, rows: int, plan_file: Path) -> None:
    plan = opened(plan_file, FakeEngine())
    with pytest.raises(EngineError, match=f"has no profile for {batch} x {rows} rows"):
        plan.context(batch, rows, ADDRESSES, 512)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("set_optimization_profile_async", "refuses the profile for 1 x 5 rows"),
        ("set_input_shape", "refuses 1 x 5 rows of input_ids"),
        ("set_tensor_address", "refuses the address of input_ids"),
    ],
)
def test_whatever_a_context_refuses_is_an_error(method: str, message: str, plan_file: Path) -> None:
    plan = opened(plan_file, FakeEngine(context=FakeContext(method)))
    with pytest.raises(EngineError, match=rf"target\.plan: tensorrt_rtx {message}$"):
        plan.context(1, 5, ADDRESSES, 512)


def test_a_context_that_cannot_be_made_or_lacks_shapes_is_an_error(plan_file: Path) -> None:
    with pytest.raises(EngineError, match="makes no context for 1 x 5 rows"):
        opened(plan_file, FakeEngine(context=None)).context(1, 5, ADDRESSES, 512)
    lacking = FakeEngine(context=FakeContext(missing=["parents"]))
    with pytest.raises(EngineError, match="lacks the shapes of parents"):
        opened(plan_file, lacking).context(1, 5, ADDRESSES, 512)


def test_a_call_that_returns_false_is_an_error(plan_file: Path) -> None:
    fine = opened(plan_file, FakeEngine()).context(1, 5, ADDRESSES, 512)
    fine.enqueue()
    refusing = FakeEngine(context=FakeContext("execute_async_v3"))
    context = opened(plan_file, refusing).context(1, 5, ADDRESSES, 512)
    with pytest.raises(EngineError, match="tensorrt_rtx fails on 1 x 5 rows"):
        context.enqueue()


def test_whether_a_call_can_be_captured_is_asked_where_it_can_be(plan_file: Path) -> None:
    for capturable in (True, False):
        engine = FakeEngine(context=FakeContext(capturable=capturable))
        context = opened(plan_file, engine).context(1, 5, ADDRESSES, 512)
        assert context.capturable is capturable


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (FakeEngine(aliases={}), r"copies key_cache\.0 instead of updating it in place"),
        (
            FakeEngine(tensors={**TENSORS, "new_key_cache.1": ("OUTPUT", "HALF", (1, 2, 3, 4))}),
            r"has new_key_cache\.1, but no key_cache\.1",
        ),
        (
            FakeEngine(tensors={**TENSORS, "odd": ("OUTPUT", "FP8", (1,))}),
            "has odd of a type that is not known here",
        ),
        (FakeEngine(profiles=[]), "has no optimization profile"),
    ],
)
def test_a_plan_that_cannot_work_here_is_refused(
    engine: FakeEngine, message: str, plan_file: Path
) -> None:
    with pytest.raises(EngineError, match=message):
        opened(plan_file, engine)


def test_plans_are_placed_together(plan_file: Path) -> None:
    device = HostDevice()
    plans = {"target": plan_file, "draft": plan_file}
    placed = open_plans(fake_library(FakeEngine()), device, plans, shares_cache=True)
    target, draft = (placed[role].addresses(3) for role in ("target", "draft"))
    assert device.kinds("allocate") == ["allocate"]
    assert target["new_key_cache.0"] == draft["key_cache.0"]
    assert target["logits"] != draft["logits"]
    assert (placed["target"].capacity, placed["target"].vocabulary) == (64, 512)
    assert placed["target"].batch == 2


def test_a_plan_that_could_decode_two_sequences_is_placed_for_the_one_that_it_is_for(
    plan_file: Path,
) -> None:
    sizes: list[object] = []
    for batch in (1, None):
        device = HostDevice()
        library = fake_library(FakeEngine())
        placed = open_plans(library, device, {"target": plan_file}, shares_cache=False, batch=batch)
        assert placed["target"].batch == (batch or 2)
        sizes += [each.detail for each in device.operations if each.kind == "allocate"]
    one, two = sizes
    assert isinstance(one, int)
    assert isinstance(two, int)
    assert one < two


def test_a_missing_library_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(CompatibilityError, match=r"pip install 'speccompile\[cuda\]'"):
        import_library("tensorrt")


def test_the_real_library_refuses_nonsense(plan_file: Path) -> None:
    if find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt_rtx is not installed")
    library = import_library("tensorrt_rtx")
    with pytest.raises(EngineError, match=r"tensorrt_rtx does not open this plan on the host: \S"):
        TensorRTPlan(library, DEVICE, plan_file)
