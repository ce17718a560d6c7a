"""Whose counts choose the tokens of a draft's head."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from speccompile.compiler.drafts.folder import write_draft
from speccompile.compiler.sources.opening import open_checkpoint
from speccompile.compiler.stages import check, load, vocabulary
from tests.families import tiny

_TOKENS = ["中", "文", "字", "日", "本", "語"]  # none of them a byte, which have to be kept
_VOCABULARY = {token: number for number, token in enumerate(_TOKENS)}
_TOKENIZER = {"version": "1.0", "model": {"type": "BPE", "vocab": _VOCABULARY, "merges": []}}
_TEXT = "語語語本本日"


@pytest.fixture
def choose(tmp_path: Path) -> Callable[[Path | None], list[int]]:
    """The three tokens chosen for a draft, of which number 2 ends a text; None is the target."""
    folder = tmp_path / "target"
    tiny("llama").model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "字"}))
    (folder / "generation_config.json").unlink(missing_ok=True)

    def run(draft: Path | None) -> list[int]:
        models = {"target": folder, **({"draft": draft} if draft else {})}
        loads = {f"load {name}": _stage(tmp_path, f"load-{name}") for name in models}
        for output, source in zip(loads.values(), models.values(), strict=True):
            settings = {"source": str(source), "sha256": None, "cache": str(tmp_path)}
            load.run(output, {}, {**settings, "report": print})
        checked, chosen = _stage(tmp_path, "check"), _stage(tmp_path, "vocabulary")
        check.run(checked, loads, {"context": 64, "spare_rows": 0, "draft_of": {}})
        target, *own = loads.items()
        inputs = dict([target, ("check", checked), *own])
        vocabulary.run(chosen, inputs, {"size": 3, "text": _TEXT})
        ids = np.frombuffer((chosen / vocabulary.TOKEN_IDS_FILE).read_bytes(), "<i4")
        return [int(token) for token in ids]

    return run


def _stage(root: Path, name: str) -> Path:
    folder = root / "stages" / name
    folder.mkdir(parents=True)
    return folder


def test_of_the_targets_weights_those_of_the_text(
    choose: Callable[[Path | None], list[int]],
) -> None:
    assert choose(None) == [2, 4, 5]


def test_of_another_model_too(choose: Callable[[Path | None], list[int]], tmp_path: Path) -> None:
    assert choose(tmp_path / "target") == [2, 4, 5]


def test_of_a_distilled_draft_those_that_it_was_trained_on(
    choose: Callable[[Path | None], list[int]], tmp_path: Path
) -> None:
    target = open_checkpoint(str(tmp_path / "target"), sha256=None, cache=tmp_path)
    counts = np.zeros(target.config.vocab_size, np.int64)
    counts[[0, 1, 5, 300]] = 8, 9, 1, 99  # 300 is padding
    write_draft(
        tmp_path / "draft",
        config=target.config,
        read=target.tensor,
        int8=False,
        target=target.provenance,
        token_counts=counts,
        training={},
        kind="distilled",
    )
    assert choose(tmp_path / "draft") == [0, 1, 2]
