"""The command on a hand-made artifact whose engines are tables: verdicts, exit codes, output."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.cli.main import main
from speccompile.plugins.reference import Verdict
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.manifest import EngineInfo
from tests.table_artifact import write_artifact
from tests.unit.runtime.tables import TableEngine, make_table, near_table

TARGET = make_table(1)
QUICK = ("--limit", "1", "-n", "8", "--draft-lengths", "1,3", "--draws", "600")

Verify = Callable[..., tuple[int, str, str]]


class Keeping(TableEngine):
    """Keeps one row too many whenever it rolls back rejected ones."""

    def rollback(self, length: int) -> None:
        super().rollback(min(length + 1, self.length) if length else 0)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    (tmp_path / "prompts.txt").write_text("w1 w2 w3 w1 w2\nw4 w5\n")
    return write_artifact(tmp_path / "tiny", {})


@pytest.fixture
def verify(
    artifact: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verify:
    def invoke(*arguments: str, target: Engine | None = None) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        engines = {"target": target or TableEngine(TARGET), "draft": draft_engine()}

        def open_engine(info: EngineInfo, graph: Path, **settings: object) -> Engine:
            return engines[info.role]

        monkeypatch.setattr("speccompile.runtime.runner.open_engine", open_engine)
        prompts = str(artifact.parent / "prompts.txt")
        monkeypatch.setattr(
            sys, "argv", ["speccompile", "verify", str(artifact), "--prompts", prompts, *arguments]
        )
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        code = exit_info.value.code
        assert isinstance(code, int)
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return invoke


def draft_engine() -> TableEngine:
    return TableEngine(near_table(TARGET, 2))


def believing(logits: Logits, proposal: Proposal, *_: object) -> Verdict:
    return Verdict(len(proposal.tokens), int(logits[-1].argmax()))


def test_a_lossless_artifact(verify: Verify) -> None:
    code, output, _ = verify(*QUICK)
    lines = output.splitlines()
    assert code == 0
    assert lines[0] == "tiny"
    assert lines[-1] == "LOSSLESS"
    assert max(map(len, lines)) <= 80
    named = [line.split()[1] for line in lines if line.startswith(("ok", "FAIL"))]
    assert named == ["integrity", "rows", "roll-back", "greedy", "sampling"]


def test_the_report_as_json(verify: Verify, tmp_path: Path) -> None:
    code, output, _ = verify(*QUICK, "--json", "-")
    document = json.loads(output)
    assert code == 0
    assert document["lossless"] is True
    assert document["on"] == "cpu"
    assert [check["passed"] for check in document["checks"]] == [True] * 5
    assert document["checks"][3]["details"]["draft_lengths"] == [1, 3]
    file = tmp_path / "report.json"
    verify(*QUICK, "--json", str(file))
    assert json.loads(file.read_text()) == document


def test_a_wrong_verifier(verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speccompile.runtime.session.verify", believing)
    code, output, _ = verify(*QUICK)
    assert code == 1
    assert output.splitlines()[-1] == "NOT LOSSLESS: greedy, sampling"
    assert "logit margin" in " ".join(output.split())


def test_a_wrong_roll_back(verify: Verify) -> None:
    code, output, _ = verify(*QUICK, "--json", "-", target=Keeping(TARGET))
    failed = [check["name"] for check in json.loads(output)["checks"] if not check["passed"]]
    assert code == 1
    assert "roll-back" in failed


def test_a_damaged_artifact(verify: Verify, artifact: Path) -> None:
    (artifact / "engines/target.onnx").write_bytes(b"tarGet")
    code, output, error = verify(*QUICK)
    assert (code, output) == (3, "")
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert "the content of 'engines/target.onnx' changed" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--draft-lengths", "0-3"), "'0-3' is not within 1-32"),
        (("--draft-lengths", "4-2"), "'4-2' is not within 1-32"),
        (("--draft-lengths", "some"), "'some' is no list such as 1-8"),
        (("-n", "1"), "1 is not in the range"),
        (("-n", "64"), "prompt 1 has 5 tokens; it must have 1 to 0"),
        (("--json", "absent/report.json"), "the folder absent does not exist"),
        (("--prompts", "absent.txt"), "absent.txt"),
    ],
)
def test_what_cannot_be_checked(verify: Verify, arguments: tuple[str, ...], message: str) -> None:
    code, _, error = verify(*arguments)
    assert code == 2
    assert message in error
