"""The process of a stage: what it hands back, what is left of one that fails, who dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.compiler.cache import StageCache
from speccompile.compiler.execute import Observer, StageResult, run_stages
from speccompile.compiler.stage import Stage, keys
from speccompile.runtime.errors import EngineError, SpeccompileError

_MODULE = """
import errno, os, signal, time
from pathlib import Path
from speccompile.runtime.errors import SpeccompileError

def work(folder, inputs, settings):
    settings["report"]("working")
    print("noise on standard output")
    (folder / "result").write_text(settings["text"])

def follow(folder, inputs, settings):
    (path,) = inputs.values()
    (folder / "result").write_text((path / "result").read_text() + "!")

def meet(folder, inputs, settings):
    (Path(settings["meeting"]) / str(os.getpid())).touch()
    while len(list(Path(settings["meeting"]).iterdir())) < 2:
        time.sleep(0.01)
    (folder / "result").write_text(str(os.getpid()))

def grow(folder, inputs, settings):
    time.sleep(0.2)
    block = b"x" * 200_000_000
    (folder / "result").write_text(str(len(block)))

def wait(folder, inputs, settings):
    (folder / "half").touch()
    settings["report"](f"process {os.getpid()}")
    time.sleep(60)

def refuse(folder, inputs, settings):
    raise SpeccompileError("this model is not supported; take another")

def tell(folder, inputs, settings):
    (folder / "result").write_text(f"{os.getpid()} {os.getppid()}")

def mark(folder, inputs, settings):
    os.environ["MARKS"] = os.environ.get("MARKS", "") + "1"
    (folder / "result").write_text(os.environ["MARKS"])

def crash(folder, inputs, settings):
    os.abort()

def leave(folder, inputs, settings):
    print("gone", flush=True)
    os._exit(0)

def fill(folder, inputs, settings):
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError as error:
        raise RuntimeError("the library could not write") from error

def fill_in_native_code(folder, inputs, settings):
    print("terminate called: No space left on device", flush=True)
    os.abort()

def lack(folder, inputs, settings):
    raise ModuleNotFoundError("No module named 'onnx_ir'", name="onnx_ir")
"""

_BUILD = """
import sys
from pathlib import Path
from speccompile.compiler.cache import StageCache
from speccompile.compiler.execute import Observer, run_stages
from speccompile.compiler.stage import Stage

class Loud(Observer):
    def reported(self, text):
        print(text, flush=True)

with StageCache(Path(sys.argv[1]), 0) as cache:
    run_stages([Stage("wait", "stage_functions:wait")], cache, Loud())
"""

WORK = Stage("work", "stage_functions:work", settings={"text": "done"})
Run = Callable[..., dict[str, StageResult]]


class Recorder(Observer):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def reported(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "stage_functions.py").write_text(_MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run stages in a build of their own, with a cache that all have in common."""

    def build(*stages: Stage, observer: Observer | None = None) -> dict[str, StageResult]:
        with StageCache(tmp_path / "cache", 10**9) as cache:
            return run_stages(stages, cache, observer or Observer())

    return build


@pytest.fixture
def stages_folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "stages"


def test_a_stage_runs_once_and_its_result_is_found_again(run: Run) -> None:
    follow = Stage("follow", "stage_functions:follow", ("work",))
    recorder = Recorder()
    results = run(WORK, follow, observer=recorder)
    assert (results["follow"].folder / "result").read_text() == "done!"
    assert not any(result.cached for result in results.values())
    assert recorder.texts == ["working"]
    assert all(result.cached for result in run(WORK, follow).values())


def test_a_result_tells_what_it_took_and_one_from_the_cache_too(run: Run) -> None:
    grow = Stage("grow", "stage_functions:grow")
    made = run(grow)["grow"]
    assert made.usage.seconds >= 0.2
    assert made.usage.peak_memory_bytes >= 200_000_000
    found = run(grow)["grow"]
    assert (found.cached, found.usage) == (True, made.usage)


def test_the_memory_of_a_stage_is_not_that_of_its_build(run: Run) -> None:
    block = b"x" * 500_000_000
    assert run(WORK)["work"].usage.peak_memory_bytes < len(block)


def test_stages_of_a_build_are_forked_from_one_process_and_of_two_from_two(
    run: Run,
) -> None:
    first, second = (Stage(name, "stage_functions:tell") for name in ("first", "second"))
    results = [*run(first, second).values(), *run(Stage("third", "stage_functions:tell")).values()]
    told = [(result.folder / "result").read_text().split() for result in results]
    processes, parents = zip(*told, strict=True)
    assert len(set(processes)) == 3
    assert parents[0] == parents[1] != parents[2]


def test_what_a_dead_stage_changed_another_does_not_see(run: Run) -> None:
    with pytest.raises(EngineError, match="SIGABRT"):
        run(Stage("bad", "stage_functions:crash"))
    results = run(Stage("one", "stage_functions:mark"), Stage("two", "stage_functions:mark"))
    assert [(each.folder / "result").read_text() for each in results.values()] == ["1", "1"]


def test_a_result_leaves_neither_log_nor_scratch(run: Run, stages_folder: Path) -> None:
    assert [path.name for path in stages_folder.parent.rglob("*")] == []
    result = run(WORK)["work"]
    assert list(stages_folder.iterdir()) == [result.folder]


def test_a_refusal_is_its_own_message(run: Run, stages_folder: Path) -> None:
    with pytest.raises(SpeccompileError, match=r"^this model is not supported; take another$"):
        run(Stage("bad", "stage_functions:refuse"))
    assert list(stages_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "cause"), [("crash", "signal SIGABRT"), ("leave", "exit code 0")]
)
def test_a_death_names_its_cause_and_keeps_the_log(
    run: Run, stages_folder: Path, function: str, cause: str
) -> None:
    with pytest.raises(EngineError, match=rf"stage 'bad' died \({cause}\)") as failure:
        run(Stage("bad", f"stage_functions:{function}"))
    log = Path(str(failure.value).rpartition(" ")[2])
    assert list(stages_folder.iterdir()) == [log]
    run(WORK)
    assert log.is_file()


@pytest.mark.parametrize("function", ["fill", "fill_in_native_code"])
def test_a_full_disk_says_the_way_out(run: Run, stages_folder: Path, function: str) -> None:
    with pytest.raises(SpeccompileError, match="No space left on device; free some") as failure:
        run(Stage("bad", f"stage_functions:{function}"))
    assert "speccompile cache clear" in str(failure.value)
    assert "\n" not in str(failure.value)
    assert list(stages_folder.iterdir()) == []


def test_a_package_that_a_stage_lacks_is_named(run: Run) -> None:
    with pytest.raises(SpeccompileError, match=r"onnx_ir; install it with: pip install"):
        run(Stage("bad", "stage_functions:lack"))


def test_what_a_killed_build_left_goes_but_not_what_a_running_one_needs(
    run: Run, tmp_path: Path, stages_folder: Path
) -> None:
    name = f"work-{keys([WORK])['work']}"
    dead = stages_folder / f"{name}.0a1b2c3d.part"
    other = stages_folder / f"export-0123.{os.getpid()}.part"  # our id, given out again
    for folder in (dead, other):
        folder.mkdir(parents=True)
        (folder / "half").touch()
        folder.with_suffix(".log").touch()
    with StageCache(tmp_path / "cache", 0) as cache, cache.scratch(name) as running:
        assert list(stages_folder.iterdir()) == [running]
        running.with_suffix(".log").touch()
        result = run(WORK)["work"]
        assert not result.cached
        assert sorted(stages_folder.iterdir()) == sorted(
            [running, running.with_suffix(".log"), result.folder]
        )


def test_two_builds_may_run_the_same_stage_at_once(run: Run, tmp_path: Path) -> None:
    """Both work, as neither waits; the slower one takes the faster one's result."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    stage = Stage("meet", "stage_functions:meet", settings={"meeting": str(meeting)})
    found: list[tuple[Path, str]] = []

    def build() -> None:
        folder = run(stage)["meet"].folder
        found.append((folder, (folder / "result").read_text()))

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(list(meeting.iterdir())) == 2
    assert len(found) == 2
    assert found[0] == found[1]
    assert list(found[0][0].parent.iterdir()) == [found[0][0]]


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGTERM])
def test_a_stage_dies_with_its_build(
    run: Run, tmp_path: Path, stages_folder: Path, killer: signal.Signals
) -> None:
    command = [sys.executable, "-c", _BUILD, str(tmp_path / "cache")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as build:
        worker = int((build.stdout.readline() if build.stdout else "").removeprefix("process "))
        assert _is_running(worker)
        build.send_signal(killer)
    assert _ends(worker)
    assert len(list(stages_folder.iterdir())) == 2  # scratch and log
    run(WORK)
    assert [path.name.partition("-")[0] for path in stages_folder.iterdir()] == ["work"]


def test_an_interrupted_build_ends_its_stage_and_leaves_nothing(
    run: Run, stages_folder: Path
) -> None:
    class Interrupting(Observer):
        def reported(self, text: str) -> None:
            self.worker = int(text.removeprefix("process "))
            raise KeyboardInterrupt

    observer = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        run(Stage("wait", "stage_functions:wait"), observer=observer)
    assert _ends(observer.worker)
    assert list(stages_folder.iterdir()) == []


def _ends(process: int) -> bool:
    """Within a few seconds."""
    deadline = time.monotonic() + 10
    while _is_running(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _is_running(process)


def _is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # dead, and only its new parent has not looked yet
