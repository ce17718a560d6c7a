from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.cuda import FakeGpu, give_gpus
from tests.gpu.check import check, main
from tests.gpu.sections import SECTIONS, Outcome


def test_a_host_without_a_gpu_is_told_so_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.gpu.check", "--report", str(file)]
    process = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"CUDA_VISIBLE_DEVICES": ""}
    )
    assert process.returncode == 4
    [line] = process.stdout.splitlines()
    assert line.startswith("gpu-check: no GPU: ")
    assert not process.stderr
    assert not file.exists()


def test_the_report_says_where_it_was_made_and_what_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give_gpus(monkeypatch, FakeGpu("NVIDIA H200", (9, 0)))
    outcomes = {
        "kernels": Outcome("ok", figures={"trees": 5}),
        "graphs": Outcome("failed", "it differs", 1.5),
        "tensorrt": Outcome("skipped", "not installed"),
    }
    file = tmp_path / "report.json"
    names = ",".join(outcomes)

    def run(name: str, seconds: float, artifact: Path | None) -> Outcome:
        return outcomes[name]

    code = main(["--only", names, "--report", str(file)], run)
    assert code == 1
    report = json.loads(file.read_text())
    assert report["gpu"]["architecture"] == "sm90"
    assert report["gpu"]["uuid"].startswith("GPU-")
    assert report["driver"] == {"version": "580.95.05", "cuda": "13.1"}
    assert len(report["kernels"]) == 64
    assert "numpy" in report["packages"]
    assert report["sections"] == {name: asdict(outcome) for name, outcome in outcomes.items()}
    printed = capsys.readouterr().out
    assert "graphs: failed: it differs (1.5 s)" in printed


def test_nothing_failed_is_a_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_gpus(monkeypatch, FakeGpu())

    def run(name: str, seconds: float, artifact: Path | None) -> Outcome:
        return Outcome("skipped")

    assert main(["--report", str(tmp_path / "report.json")], run) == 0


def test_sections_share_the_time_and_leave_the_rest_to_others() -> None:
    limits: list[float] = []

    def run(name: str, limit: float, artifact: Path | None) -> Outcome:
        assert artifact == Path("somewhere")
        limits.append(limit)
        return Outcome("ok")

    check(list(SECTIONS), 220.0, Path("somewhere"), run)
    shares = [section.share for section in SECTIONS.values()]
    assert limits[0] == pytest.approx(220.0 * shares[0] / sum(shares), abs=0.5)
    assert limits[-1] == pytest.approx(220.0, abs=0.5)  # the others took none


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "kernels,graph"], "there is no section 'graph', only kernels, bandwidth"),
        (["--seconds", "600"], "600 is not from 0 to 350"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert said in capsys.readouterr().err
