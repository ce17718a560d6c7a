"""Models that do not fit together, or not the recipe, are refused before they cost time."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from speccompile.compiler.decoder import DecoderConfig, LayerKind
from speccompile.compiler.pairing import PairError
from speccompile.compiler.stages import budget
from speccompile.compiler.stages.check import Checked, run
from speccompile.runtime.errors import SpeccompileError

CONFIG = DecoderConfig(
    vocab_size=6,
    hidden_size=8,
    intermediate_size=8,
    heads=1,
    kv_heads=1,
    head_dim=8,
    context_length=512,
    kinds=(LayerKind(None),),
    layer_kinds=(0,),
    tied_embeddings=True,
    norm_epsilon=1e-5,
    attention_scale=1.0,
)
WEIGHTS = 4 * (6 * 8 + 2 * 8 + 4 * 64 + 3 * 64 + 8)  # bytes of fp32


def _loaded(folder: Path, *, vocabulary: str = "abcd", **parts: Any) -> Path:  # noqa: ANN401
    tokenizer = Tokenizer(BPE({text: number for number, text in enumerate(vocabulary)}, []))
    ids = {"bos_token": None, "eos_token": None, "chat_template": None}
    content = {
        "config": asdict(replace(CONFIG, **parts)),
        "tokenizer": {"tokenizer_json": tokenizer.to_str(), **ids},
        "provenance": {"source": folder.name},
        "open": {},
    }
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def _check(folder: Path, target: Path, draft: Path | None = None) -> Checked:
    inputs = {"load target": target} | ({"load draft": draft} if draft else {})
    run(folder, inputs, {"context": 256, "spare_rows": 8, "draft_of": {}})
    return Checked(target, folder)


def _stored(*, shares_cache: bool) -> dict[str, object]:
    return {"precision": "fp32", "layers": None, "vocabulary": 0, "shares_cache": shares_cache}


def test_a_pair_is_compiled_without_padding(tmp_path: Path) -> None:
    target = _loaded(tmp_path / "t")
    draft = _loaded(tmp_path / "d", vocab_size=9, context_length=100)
    checked = _check(tmp_path, target, draft)
    assert checked.loaded.config == CONFIG
    assert checked.config == replace(CONFIG, vocab_size=4)
    assert checked.capacity == 256 + 8
    assert Checked(draft, tmp_path).config.vocab_size == 4
    assert Checked(draft, tmp_path).capacity == 100  # it stops proposing there


def test_the_first_differing_token_is_named(tmp_path: Path) -> None:
    target = _loaded(tmp_path / "t")
    draft = _loaded(tmp_path / "d", vocabulary="abxy")
    with pytest.raises(PairError, match=r"token 2 is 'c' to the target and 'x' to the draft"):
        _check(tmp_path, target, draft)


def test_a_context_beyond_the_target_is_refused(tmp_path: Path) -> None:
    target = _loaded(tmp_path / "t", context_length=128)
    with pytest.raises(PairError, match=r"is 256, but the target \(t\) was trained for 128"):
        _check(tmp_path, target)


def test_a_budget_is_kept(tmp_path: Path) -> None:
    target, cache = _loaded(tmp_path / "t"), 2 * 264 * 8 * 4
    needed = 2 * (WEIGHTS - 2 * 8 * 4) + cache  # the draft works in the target's cache
    _check(tmp_path, target)
    inputs = {"check": tmp_path, "load target": target}
    settings = {
        "roles": {"target": _stored(shares_cache=False), "draft": _stored(shares_cache=True)},
        "engines": ["openvino"],
    }
    budget.run(tmp_path, inputs, {**settings, "memory_gb": needed / 1e9})
    with pytest.raises(SpeccompileError, match=r"engine\.memory_gb is .*, but the artifact takes"):
        budget.run(tmp_path, inputs, {**settings, "memory_gb": (needed - 1) / 1e9})


def test_a_draft_of_layers_in_the_targets_cache_needs_none(tmp_path: Path) -> None:
    target, draft = _loaded(tmp_path / "t"), _loaded(tmp_path / "d")
    _check(tmp_path, target, draft)
    inputs = {"check": tmp_path, "load target": target, "load draft": draft}
    caches: list[set[str]] = []
    for shares in (True, False):
        roles = {"target": _stored(shares_cache=False), "draft": _stored(shares_cache=shares)}
        settings = {"roles": roles, "engines": ["openvino"], "memory_gb": None}
        budget.run(tmp_path, inputs, settings)
        parts = json.loads((tmp_path / "budget.json").read_text(encoding="utf-8"))
        caches.append({name for name in parts if name.endswith("cache")})
    assert caches == [{"target cache"}, {"target cache", "draft cache"}]
