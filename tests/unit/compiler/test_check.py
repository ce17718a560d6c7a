"""Models that do not fit together are refused before they cost time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speccompile.compiler.stages.check import PairError, run


def _loaded(folder: Path, *, vocabulary: list[str], context: int = 512, size: int = 4) -> Path:
    tokens = {text: identifier for identifier, text in enumerate(vocabulary)}
    config = {
        "vocab_size": size,
        "hidden_size": 8,
        "intermediate_size": 8,
        "layers": 1,
        "heads": 1,
        "kv_heads": 1,
        "head_dim": 8,
        "context_length": context,
        "rope_theta": 1e4,
        "rms_norm_eps": 1e-5,
        "tied_embeddings": True,
    }
    content = {
        "config": config,
        "tokenizer": {"tokenizer_json": json.dumps({"model": {"vocab": tokens}})},
        "provenance": {"source": "somewhere"},
        "open": {},
    }
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def _check(tmp_path: Path, target: Path, draft: Path | None = None) -> None:
    inputs = {"load target": target} | ({"load draft": draft} if draft else {})
    run(tmp_path, inputs, {"context": 256})


def test_a_pair_with_one_tokenizer_passes(tmp_path: Path) -> None:
    target = _loaded(tmp_path / "t", vocabulary=["a", "b", "c", "d"])
    draft = _loaded(tmp_path / "d", vocabulary=["a", "b", "c", "d"])
    _check(tmp_path, target)
    _check(tmp_path, target, draft)


def test_the_first_differing_token_is_named(tmp_path: Path) -> None:
    target = _loaded(tmp_path / "t", vocabulary=["a", "b", "c", "d"])
    draft = _loaded(tmp_path / "d", vocabulary=["a", "b", "x", "y"])
    with pytest.raises(PairError, match="token 2 is 'c' to the target and 'x' to the draft"):
        _check(tmp_path, target, draft)


def test_vocabularies_of_different_size_are_refused(tmp_path: Path) -> None:
    target = _loaded(tmp_path / "t", vocabulary=["a", "b", "c", "d"])
    draft = _loaded(tmp_path / "d", vocabulary=["a", "b", "c", "d"], size=5)
    with pytest.raises(PairError, match="the target has 4 token ids and the draft 5"):
        _check(tmp_path, target, draft)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_context_beyond_a_model_is_refused(tmp_path: Path, role: str) -> None:
    contexts = {"target": 512, "draft": 512, role: 128}
    vocabulary = ["a", "b", "c", "d"]
    target, draft = (
        _loaded(tmp_path / name, vocabulary=vocabulary, context=contexts[name])
        for name in ("target", "draft")
    )
    with pytest.raises(PairError, match=f"the {role} .* was trained for 128"):
        _check(tmp_path, target, draft)
