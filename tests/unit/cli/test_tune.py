"""The command on an artifact of tables: what it stores, restores and refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speccompile.cli.main import main
from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.tuned import PREDICTOR_FILE, read_predictor
from tests.table_artifact import give_tables, write_artifact

PROMPTS = ["w1 w2 w3", "w4 w5", "w6 w7 w1", "w2 w2", "w5 w1 w7"]

Tune = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    give_tables(monkeypatch)
    return write_artifact(tmp_path / "tiny", {})


@pytest.fixture
def tune(
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Tune:
    """Run the command; returns exit code, output and error output."""
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")

    def run(*options: str, prompts: bool = True, root: Path = root) -> tuple[int, str, str]:
        given = ["--prompts", str(tmp_path / "prompts.txt"), "--raw"] if prompts else []
        monkeypatch.setattr(sys, "argv", ["speccompile", "tune", str(root), *given, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), " ".join(captured.out.split()), captured.err

    return run


def survey_of(artifact: Artifact) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(artifact.path("reports/tune.json").read_bytes())
    return document


def test_costs_and_acceptance_are_stored_and_a_predictor_of_few_tokens_is_not(
    root: Path, tune: Tune
) -> None:
    code, output, _ = tune("-n", "12")
    assert code == 0
    assert "Not stored: only" in output
    assert "Best static tree:" in output
    tuned = open_artifact(root)
    assert read_predictor(tuned) is None
    assert set(tuned.measurements.cost_ms) == {"target", "draft"}
    assert 0.0 < tuned.measurements.acceptance[0] < 1.0
    found = survey_of(tuned)["survey"]
    assert (found["prompts"], found["draft"], found["stored"]) == (5, "model", False)
    assert found["fit"]["misses"]


def test_force_stores_it_and_reset_takes_it_back(root: Path, tune: Tune) -> None:
    before = (root / "measurements.json").read_bytes()
    code, output, _ = tune("-n", "12", "--force", "--temperature", "1", "--seed", "5")
    assert code == 0
    assert "Stored though" in output
    assert read_predictor(open_artifact(root))
    code, output, _ = tune("--costs-only", prompts=False)
    assert code == 0
    tuned = open_artifact(root)
    assert read_predictor(tuned)  # costs have nothing to do with it
    assert survey_of(tuned)["survey"]["fit"]
    assert survey_of(tuned)["costs"]["command"].endswith("--costs-only")
    assert "is as it was built" in tune("--reset", prompts=False)[1]
    assert (root / "measurements.json").read_bytes() == before
    assert not (root / PREDICTOR_FILE).exists()
    assert "was never tuned" in tune("--reset", prompts=False)[1]


def test_a_seed_gives_the_same_predictor(root: Path, tune: Tune) -> None:
    weights: list[object] = []
    for _ in range(2):
        assert tune("-n", "12", "--force", "--limit", "3")[0] == 0
        weights.append(read_predictor(open_artifact(root)))
    assert weights[0] == weights[1]


def test_a_lookup_has_no_predictor_and_leaves_the_acceptance_of_the_model(
    root: Path, tune: Tune
) -> None:
    code, output, _ = tune("-n", "12", "--draft", "ngram")
    assert code == 0
    assert "No predictor: only the draft `model` gets one, not ngram" in output
    tuned = open_artifact(root)
    assert tuned.measurements.acceptance == ()
    assert survey_of(tuned)["survey"]["draft"] == "ngram"


@pytest.mark.parametrize("option", ["--reset", "--costs-only"])
def test_what_takes_no_prompts_refuses_them(tune: Tune, option: str) -> None:
    code, _, error = tune(option)
    assert code == 2
    assert f"{option} takes no prompts" in error


def test_mistakes_are_one_line(tune: Tune, tmp_path: Path, root: Path) -> None:
    before = (root / "measurements.json").read_bytes()
    for option, value, words in (
        ("--limit", "1", "give at least 2"),
        ("--prompts", str(tmp_path / "none.txt"), "No such file"),
    ):
        found, _, error = tune("-n", "12", option, value)
        assert (found, error.count("\n")) == (2, 1)
        assert error.startswith("error: ")
        assert words in error
    for reset in (False, True):
        option = "--reset" if reset else "--force"
        found, _, error = tune(option, prompts=not reset, root=tmp_path / "nowhere")
        assert (found, error.count("\n")) == (3, 1)
        assert "does not exist; build it with" in error
    assert (root / "measurements.json").read_bytes() == before


def test_a_prompt_that_is_too_long_is_refused_by_number(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("w1\n" + "w1 " * 80, encoding="utf-8")
    code, _, error = tune("--prompts", str(tmp_path / "long.txt"))
    assert code == 2
    assert "prompt 2 has 80 tokens" in error


def test_stopping_it_leaves_the_artifact_whole(
    root: Path, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def survey(*arguments: object) -> None:
        raise KeyboardInterrupt

    before = (root / "measurements.json").read_bytes()
    monkeypatch.setattr("speccompile.compiler.tune.tune.survey", survey)
    code, _, error = tune("-n", "12")
    assert code == 1
    assert "Aborted" in error
    assert (root / "measurements.json").read_bytes() == before
    assert open_artifact(root)
