"""The plan of a build, its cache keys, and the process of a stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from speccompile.compiler.execute import Observer, run_stages
from speccompile.compiler.pipeline import Stage, keys, plan
from speccompile.compiler.recipe import load_recipe
from speccompile.runtime.errors import EngineError, SpeccompileError

_MODULE = """
import os
from speccompile.runtime.errors import SpeccompileError

def work(folder, inputs, settings):
    settings["report"]("working")
    print("noise on standard output")
    (folder / "result").write_text(settings["text"])

def follow(folder, inputs, settings):
    (path,) = inputs.values()
    (folder / "result").write_text((path / "result").read_text() + "!")

def refuse(folder, inputs, settings):
    raise SpeccompileError("this model is not supported; take another")

def crash(folder, inputs, settings):
    os.abort()
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stage_functions.py").write_text(_MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


class Recorder(Observer):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def reported(self, text: str) -> None:
        self.texts.append(text)


def test_the_plan_reads_as_the_build() -> None:
    names = [stage.name for stage in plan(load_recipe("smollm2-135m"))]
    assert names == [
        "load target",
        "check",
        "quantize target",
        "export target",
        "lower target openvino",
        "compile target openvino",
        "lower target onnxruntime",
        "compile target onnxruntime",
        "measure target",
        "quantize draft",
        "export draft",
        "lower draft openvino",
        "compile draft openvino",
        "lower draft onnxruntime",
        "compile draft onnxruntime",
        "measure draft",
    ]


def test_a_key_follows_settings_and_inputs() -> None:
    first, second = Stage("a", "m:f", settings={"x": 1}), Stage("b", "m:f", ("a",))
    before = keys([first, second])
    after = keys([Stage("a", "m:f", settings={"x": 2}), second])
    assert before["a"] != after["a"]
    assert before["b"] != after["b"]
    assert keys([first, second]) == before


def test_a_stage_runs_once_and_its_result_is_found_again(tmp_path: Path) -> None:
    stages = [
        Stage("work", "stage_functions:work", settings={"text": "done"}),
        Stage("follow", "stage_functions:follow", ("work",)),
    ]
    recorder = Recorder()
    results = run_stages(stages, tmp_path / "cache", recorder)
    assert (results["follow"].folder / "result").read_text() == "done!"
    assert recorder.texts == ["working"]
    again = run_stages(stages, tmp_path / "cache", Observer())
    assert all(result.cached for result in again.values())


def test_a_refusal_is_its_own_message(tmp_path: Path) -> None:
    with pytest.raises(SpeccompileError, match=r"^this model is not supported; take another$"):
        run_stages([Stage("bad", "stage_functions:refuse")], tmp_path / "cache", Observer())
    assert list((tmp_path / "cache" / "stages").iterdir()) == []


def test_a_crash_names_the_signal_and_keeps_the_log(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"stage 'bad' died \(signal SIGABRT\)") as failure:
        run_stages([Stage("bad", "stage_functions:crash")], tmp_path / "cache", Observer())
    log = Path(str(failure.value).rpartition(" ")[2])
    assert log.is_file()


def test_a_stage_that_was_killed_is_run_again_and_its_leftovers_go(tmp_path: Path) -> None:
    """A scratch folder is no result: only a finished stage has its name."""
    stage = Stage("work", "stage_functions:work", settings={"text": "done"})
    stages = tmp_path / "cache" / "stages"
    dead, running = (
        stages / f"work-{keys([stage])['work']}.{process}.part" for process in (2**22 + 1, 1)
    )
    dead.mkdir(parents=True)
    running.mkdir()
    results = run_stages([stage], tmp_path / "cache", Observer())
    assert not results["work"].cached
    assert not dead.exists()
    assert running.exists()
