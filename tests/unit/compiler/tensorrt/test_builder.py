"""What is refused before TensorRT sees it; what it builds, the integration tests say."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from speccompile.compiler.tensorrt.builder import PlanSpec, Profile, build_plan
from speccompile.compiler.tensorrt.library import Library, Log
from speccompile.runtime.errors import CompatibilityError, SpeccompileError
from tests.cuda import FakeGpu, give_gpus
from tests.plans import ATTENTION, NEEDS_RTX, NoKernels, build, model

_TENSORRT = Library(ModuleType("tensorrt"), "tensorrt", "11.4", (), Log())
_RTX = Library(ModuleType("tensorrt_rtx"), "tensorrt_rtx", "1.7", ("sm80", "sm89"), Log())


def _refuse(library: Library, architecture: str, tmp_path: Path) -> str:
    """What an attempt to build for `architecture` is answered."""
    spec = PlanSpec(tmp_path / "none.onnx", architecture, ())
    with pytest.raises(CompatibilityError) as error:
        build_plan(spec, library, NoKernels(), tmp_path / "none.plan")
    return str(error.value)


@pytest.mark.parametrize("architecture", ["sm89", "current"])
def test_tensorrt_builds_only_on_a_gpu(
    architecture: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    give_gpus(monkeypatch)

    message = _refuse(_TENSORRT, architecture, tmp_path)

    assert message.startswith(
        "TensorRT 11.4 builds on the GPU that a plan is for, and here is none"
    )
    assert message.endswith("--engine tensorrt-rtx:sm89")


def test_tensorrt_builds_only_for_its_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_gpus(monkeypatch, FakeGpu(capability=(9, 0)))

    message = _refuse(_TENSORRT, "sm89", tmp_path)

    assert "builds for the GPU at hand, sm90, not for sm89" in message


@pytest.mark.parametrize("architecture", ["sm90", "sm100"])
def test_tensorrt_rtx_does_not_build_for_the_data_centre(architecture: str, tmp_path: Path) -> None:
    message = _refuse(_RTX, architecture, tmp_path)

    assert f"TensorRT-RTX 1.7 does not build for {architecture}, only for sm80, sm89" in message
    assert message.endswith("with TensorRT: pip install 'speccompile[cuda]'")


def test_the_gpu_at_hand_has_to_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_gpus(monkeypatch)

    message = _refuse(_RTX, "current", tmp_path)

    assert "name the architecture of another: sm80, sm89" in message


@NEEDS_RTX
def test_the_gpu_at_hand_can_be_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_gpus(monkeypatch, FakeGpu(capability=(8, 6)))

    assert build(model(ATTENTION), tmp_path, architecture="current").architecture == "sm86"


@NEEDS_RTX
@pytest.mark.parametrize(
    ("profiles", "reason"),
    [
        ((), "its shapes vary; name a profile for them"),
        ((Profile((2, 1, 4), (1, 1, 1)),), "batch are least, usual and most, of at least 1, not 2"),
        ((Profile((1, 1, 1), (0, 1, 4)),), "rows are least, usual and most, of at least 1, not 0"),
    ],
)
def test_profiles_have_to_fit(profiles: tuple[Profile, ...], reason: str, tmp_path: Path) -> None:
    with pytest.raises(SpeccompileError, match=reason):
        build(model(ATTENTION), tmp_path, profiles=profiles)


@NEEDS_RTX
def test_only_sequences_and_rows_vary(tmp_path: Path) -> None:
    graph = ATTENTION.replace("int64[B] lengths", "int64[Q] lengths")

    with pytest.raises(SpeccompileError, match="input lengths varies in Q; only B"):
        build(model(graph), tmp_path)


@NEEDS_RTX
def test_fixed_shapes_need_no_profile(tmp_path: Path) -> None:
    fixed = re.sub(r"\[B\b", "[1", ATTENTION).replace(",N,", ",5,")

    assert build(model(fixed), tmp_path, profiles=()).bytes > 0


@NEEDS_RTX
def test_an_unknown_flag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpeccompileError, match=r"has no builder flag FP16; it has .*STRICT_NANS"):
        build(model(ATTENTION), tmp_path, flags=("FP16",))


@NEEDS_RTX
def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpeccompileError, match=r"step\.onnx: "):
        build(onnx.ModelProto(), tmp_path)
