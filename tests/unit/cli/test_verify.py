"""The command on a hand-made artifact whose engines are tables: verdicts, exit codes, output."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from speccompile.cli.chitchat import chitchat_prompts
from speccompile.cli.main import main
from speccompile.runtime.engine import Engine
from speccompile.runtime.errors import RequestError
from speccompile.runtime.manifest import EngineInfo
from tests.table_artifact import write_artifact
from tests.unit.runtime.proof.sessions import VERIFY, Keeping, believing
from tests.unit.runtime.tables import TableEngine, make_table, near_table

TARGET = make_table(1)
QUICK = (
    *("--limit", "1", "-n", "8", "--draft-lengths", "1,3", "--draws", "300"),
    *("--tokens-pit", "600"),
)
CHECKS = ["integrity", "rows", "roll-back", "exact", "sampling", "seeded", "greedy", "stream"]

Verify = Callable[..., tuple[int, str, str]]


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


def test_a_lossless_artifact(verify: Verify) -> None:
    code, output, _ = verify(*QUICK)
    lines = output.splitlines()
    assert code == 0
    assert lines[0] == "tiny"
    assert lines[-1] == "LOSSLESS"
    assert max(map(len, lines)) <= 80
    named = [line.split() for line in lines if line.startswith(("ok", "FAIL"))]
    assert [words[2] if words[1].startswith("L") else words[1] for words in named] == CHECKS


def test_the_report_as_json(verify: Verify, tmp_path: Path) -> None:
    code, output, _ = verify(*QUICK, "--json", "-")
    document = json.loads(output)
    assert code == 0
    assert document["lossless"] is True
    assert document["on"] == "cpu"
    assert [check["name"] for check in document["checks"]] == CHECKS
    assert [check["level"] for check in document["checks"]] == [None] * 3 + [0, 1, 2, 3, 4]
    assert all(check["passed"] for check in document["checks"])
    assert document["checks"][6]["details"]["draft_lengths"] == [1, 3]
    file = tmp_path / "report.json"
    verify(*QUICK, "--json", str(file))
    assert json.loads(file.read_text()) == document


def test_a_wrong_verifier(verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VERIFY, believing)
    monkeypatch.setattr("speccompile.runtime.verify.verify", believing)
    code, output, _ = verify(*QUICK)
    assert code == 1
    assert output.splitlines()[-1] == "NOT LOSSLESS: exact, sampling, seeded, greedy, stream"
    assert "logit margin" in " ".join(output.split())


def test_some_levels_alone(verify: Verify) -> None:
    code, output, _ = verify(*QUICK, "--levels", "2-3")
    lines = output.splitlines()
    assert code == 0
    assert lines[-1] == "LOSSLESS, as far as level 2-3 tells"
    assert not [line for line in lines if "L4" in line or "L0" in line]


def test_what_is_done_is_not_done_again(
    verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (*QUICK, "--levels", "1-3", "--resume", str(tmp_path / "state.json"))
    _, first, _ = verify(*arguments)
    target = TableEngine(TARGET)
    code, again, _ = verify(*arguments, target=target)
    assert (code, again) == (0, first)
    assert not target.steps
    code, _, error = verify(*arguments, "--levels", "1")
    assert code == 2
    assert "is of a proof with another levels" in error


def test_the_report_as_a_page(verify: Verify, tmp_path: Path) -> None:
    page = tmp_path / "proof.html"
    code, _, _ = verify(*QUICK, "--levels", "0,4", "--html", str(page))
    text = page.read_text()
    assert code == 0
    assert text.count("<svg") == 2
    for part in ("Lossless", "outcomes, in fp64", "Every token against its own law", "L4"):
        assert part in text
    assert "http" not in text.replace("http://www.w3.org", "")
    code, _, _ = verify(*QUICK, "--levels", "2", "--html", str(page), target=Keeping(TARGET))
    assert code == 1
    assert "Not lossless" in page.read_text()


def test_prompts_of_people(monkeypatch: pytest.MonkeyPatch) -> None:
    conversations = [["w1 w2", "w3"], [], ["  "], ["w1 w2"], ["w3 " * 999], ["w4 w5"]]
    package = SimpleNamespace(ConversationDataset=lambda: map(iter, conversations))
    monkeypatch.setitem(sys.modules, "chitchat_dataset", package)
    assert chitchat_prompts() == ["w1 w2", "w4 w5"]
    monkeypatch.setitem(sys.modules, "chitchat_dataset", None)
    with pytest.raises(RequestError, match="pip install chitchat-dataset"):
        chitchat_prompts()


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
        (("--levels", "3-5"), "'3-5' is not within 0-4"),
        (("--chitchat",), "are two lists; give one"),
        (("--resume", "absent/state.json"), "the folder absent does not exist"),
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
