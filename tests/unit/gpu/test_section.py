from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import section
from tests.gpu.section import run_command
from tests.gpu.sections import SECTIONS, Outcome, Section, Skip, Task, run_here

HERE = __name__

START = """
import os, signal, sys, time
from pathlib import Path
from tests.gpu.sections import Outcome, Task
task = Task(60.0, into=Path(sys.argv[1]))
task.note("trees", 5)
"""
END = "task.outcome().write(Path(sys.argv[1]))\n"


def run(code: str, seconds: float = 30.0) -> Outcome:
    return run_command([sys.executable, "-c", START + code], seconds)


def test_a_section_that_ends_well() -> None:
    outcome = run(END)
    assert (outcome.status, outcome.reason, outcome.figures) == ("ok", "", {"trees": 5})


def test_a_section_whose_process_is_killed_leaves_its_figures() -> None:
    outcome = run("print('a library says', file=sys.stderr, flush=True); os.abort()")
    assert outcome.status == "failed"
    assert outcome.reason == "the process ended by SIGABRT; it did not come to its end"
    assert outcome.figures == {"trees": 5}
    assert "a library says" in outcome.trace


def test_a_section_that_hangs_is_ended() -> None:
    outcome = run("time.sleep(60)", seconds=1.0)
    assert outcome.status == "failed"
    assert outcome.reason.startswith("the process was ended after 1 s; ")


def test_what_was_different_before_the_end_is_told() -> None:
    outcome = run("task.wrong('row 3 differs'); sys.exit(3)")
    expected = "the process ended with 3; it did not come to its end; row 3 differs"
    assert outcome.reason == expected


def test_a_crash_behind_the_last_result_is_told_and_spoils_nothing() -> None:
    outcome = run(END + "os.kill(os.getpid(), signal.SIGSEGV)")
    assert (outcome.status, outcome.reason) == ("ok", "the process ended by SIGSEGV")


def test_a_command_that_brings_nothing_has_failed() -> None:
    outcome = run_command([sys.executable, "-c", "raise SystemExit(1)"], 30.0)
    assert (outcome.status, outcome.reason) == (
        "failed",
        "the process ended with 1; it brought nothing",
    )


def test_the_process_of_a_section_runs_it(tmp_path: Path) -> None:
    """The section that is nothing without an artifact."""
    file = tmp_path / "outcome.json"
    section.main("artifact", "30", str(file))
    assert Outcome.read(file).reason == "none was given; --artifact DIR"
    assert Outcome.read(file).finished


def differing(task: Task) -> None:
    assert task.compare("first", 1, 1)
    for number in range(7):
        assert not task.compare(f"token {number}", number, -1)


def failing(task: Task) -> None:
    task.note("before", 1)
    raise RuntimeError("out of memory")


def skipping(task: Task) -> None:
    raise Skip("no such GPU")


@pytest.mark.parametrize(
    ("section", "status", "reason"),
    [
        (Section(f"{HERE}:differing", 1), "failed", "token 0: 0 instead of -1; token 1: "),
        (Section(f"{HERE}:failing", 1), "failed", "RuntimeError: out of memory"),
        (Section(f"{HERE}:skipping", 1), "skipped", "no such GPU"),
        (Section(f"{HERE}:failing", 1, ("sys", "no_such_module")), "skipped", "no_such_module is"),
    ],
)
def test_whatever_a_section_does_is_its_outcome(section: Section, status: str, reason: str) -> None:
    sys.modules.setdefault(HERE, sys.modules[differing.__module__])
    outcome = run_here(section, Task(10.0))
    assert outcome.status == status
    assert outcome.reason.startswith(reason)


def test_the_reason_names_some_differences_and_counts_the_others() -> None:
    task = Task(10.0)
    differing(task)
    assert task.outcome().reason.endswith("token 4: 4 instead of -1; 2 more")


BARE = """
import sys
from importlib.abc import MetaPathFinder

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ImportError(f"{name} is not needed here")

sys.meta_path.insert(0, Refuse())
for name in sys.argv[2:]:
    __import__(f"tests.gpu.{name}")
"""


def test_kernels_and_graphs_need_little() -> None:
    """A host with torch, the CUDA packages and numpy, and nothing else of ours, runs them."""
    absent = "pytest,onnx,onnx_ir,onnxruntime,openvino,pydantic,click,rich,tokenizers,ml_dtypes"
    names = ["check", "section", "kernels", "bandwidth", "graphs", "peer"]
    command = [sys.executable, "-c", BARE, absent, *names]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    command = [*command[:3], f"{absent},torch,transformers", *names[:4]]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_every_section_is_there() -> None:
    for name, each in SECTIONS.items():
        module, _, function = each.run.partition(":")
        assert hasattr(pytest.importorskip(module), function), name
