from pathlib import Path

import pytest

from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.proof.check import Check
from speccompile.runtime.proof.ledger import Ledger

SUBJECT = {"identity": "abc", "levels": (0, 1)}
CHECK = Check("rows", True, "all equal", {"count": 3})


def test_what_is_done_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    ledger = Ledger(path, SUBJECT)
    assert ledger.finished("rows") is None
    ledger.note("rows", {"prompts": 1})
    assert Ledger(path, SUBJECT).known("rows") == {"prompts": 1}
    ledger.finish(CHECK)
    again = Ledger(path, SUBJECT)
    assert again.finished("rows") == CHECK
    assert again.known("rows") is None
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_without_a_path_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger()
    ledger.finish(CHECK)
    assert ledger.finished("rows") == CHECK
    assert not [*tmp_path.iterdir()]


def test_another_proof_is_refused_by_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    Ledger(path, SUBJECT).finish(CHECK)
    with pytest.raises(RequestError, match=r"another levels \(\[0, 1\], now \[0, 2\]\)"):
        Ledger(path, {**SUBJECT, "levels": (0, 2)})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"subject": {}, "checks": [{}], "parts": {}}'])
def test_what_is_no_state_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(RequestError, match="is no state of a proof; remove it"):
        Ledger(path, SUBJECT)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpeccompileError, match="No such file or directory"):
        Ledger(tmp_path / "absent" / "state.json", SUBJECT).finish(CHECK)
