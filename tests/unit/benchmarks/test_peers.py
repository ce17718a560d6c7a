"""The comparison with peers: what its rounds come to, and what it does with a peer that fails."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import chosen
from benchmarks.peers.cells import BITS_16, INT8, PLAIN, Cell
from benchmarks.peers.peer import OURS, PEERS, Peer, PeerError
from benchmarks.peers.rounds import Sample, run_rounds
from benchmarks.peers.summary import document, summarize
from benchmarks.peers.view import draw
from speccompile.runtime.errors import SpeccompileError

PEER = Peer("other", "other.py", ("other==1",))


def cell(peer: Peer, mode: str = PLAIN, weights: str = BITS_16) -> Cell:
    return Cell(peer, weights, mode, {})


def samples(
    of: Cell, seconds: Iterable[float], tokens: tuple[int, ...] = (1, 2, 3)
) -> list[Sample]:
    """Two prompts a round."""
    return [
        Sample(of.name, index // 2, index % 2, tokens, 0.5, rest, memory=index)
        for index, rest in enumerate(seconds)
    ]


def test_a_ratio_is_that_to_ours_of_the_same_prompt_and_round() -> None:
    ours, theirs = cell(OURS), cell(PEER)
    # The machine halves its speed for the second round, and both are as fast as one another.
    rows = summarize([ours, theirs], samples(ours, (1, 2, 2, 4)) + samples(theirs, (1, 2, 2, 4)))
    assert [row.ratio for row in rows] == [1, 1]
    assert [row.ratio_p10 for row in rows] == [1, 1]
    assert [row.tokens_per_second for row in rows] == [1, 1]  # of 2, 1, 1, and 0.5


def test_the_fastest_of_a_class_is_first() -> None:
    cells = [cell(OURS), cell(OURS, weights=INT8), cell(PEER), cell(PEER, "draft")]
    found = [
        sample
        for of, seconds in zip(cells, (2, 1, 4, 1), strict=True)
        for sample in samples(of, [seconds] * 2)
    ]
    rows = summarize(cells, found)
    assert [(row.peer, row.weights, row.mode) for row in rows] == [
        ("other", BITS_16, "draft"),
        ("speccompile", BITS_16, PLAIN),
        ("other", BITS_16, PLAIN),
        ("speccompile", INT8, PLAIN),
    ]
    assert [row.ratio for row in rows] == [2, 1, 0.5, 1]


def test_texts_are_compared_with_plain_decoding() -> None:
    ours, plain, draft = cells = [cell(OURS), cell(PEER), cell(PEER, "draft")]
    found = [
        *samples(ours, (1, 1, 1, 1), (1, 2, 3, 4)),
        *samples(plain, (1, 1, 1, 1), (1, 2, 9, 9)),
        *samples(draft, (1, 1, 1), (1, 2, 9, 9)),
        Sample(draft.name, 1, 1, (1, 2, 9, 8), 0.5, 1, memory=7),
    ]
    rows = {(row.peer, row.mode): row for row in summarize(cells, found)}
    assert rows["speccompile", PLAIN].as_ours == 2
    assert rows["other", PLAIN].as_ours == 0
    assert rows["other", PLAIN].begins_as_ours == 0.5
    assert rows["other", "draft"].as_its_plain == 1  # the other prompt differs in one round
    assert rows["other", "draft"].memory == 7


def test_everything_is_in_the_document_and_drawn(tmp_path: Path) -> None:
    ours = cell(OURS)
    found = samples(ours, (1, 2))
    rows = summarize([ours], found)
    content = json.loads(json.dumps(document(rows, found, {"threads": 2})))
    assert content["threads"] == 2
    assert [row["ratio"] for row in content["rows"]] == [1]
    assert len(content["samples"]) == 2
    draw(rows, tmp_path / "peers.svg", "a <title>")
    assert "16-bit weights" in (tmp_path / "peers.svg").read_text("utf-8")


def test_the_worker_of_a_peer_that_fails_is_quoted(tmp_path: Path) -> None:
    """This interpreter has no llama.cpp."""
    broken = Cell(Peer("llama.cpp", "llama_cpp.py"), BITS_16, PLAIN, {})
    quoted = r"(?s)llama\.cpp, 16-bit weights, plain: .*No module named"
    with pytest.raises(PeerError, match=quoted):
        run_rounds([broken], [[1]], tokens=2, rounds=1, home=tmp_path, report=print)


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path) -> None:
    missing = str(tmp_path / "absent.whl")
    with pytest.raises(PeerError, match=r"other: cannot be installed: .*absent\.whl"):
        Peer("other", "other.py", (missing,)).prepare(tmp_path)
    assert not list(tmp_path.rglob("installed.txt"))


def test_of_peers_those_that_are_named() -> None:
    assert chosen("transformers, llama.cpp") == [PEERS[3], PEERS[0]]
    with pytest.raises(SpeccompileError, match="'vllm' is none of llama"):
        chosen("vllm")


def test_ours_runs_in_the_interpreter_of_the_project(tmp_path: Path) -> None:
    assert OURS.interpreter(tmp_path) == Path(sys.executable)
    assert PEERS[0].interpreter(tmp_path) == tmp_path / "venvs/llama.cpp/bin/python"
