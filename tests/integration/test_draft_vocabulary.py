"""Builds whose draft computes some tokens only: whole, lossless, and silent about the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from speccompile.compiler.build import Built
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.engine import CacheSharer
from speccompile.runtime.engines.restricted import RestrictedEngine, read_token_ids
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.runner import Runner
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Request, Session
from tests.building import Builder, RecordedDraft

SIZE = 300  # of 512
IDS = "engines/cpu/draft/token_ids.bin"


Pairs = Callable[..., Built]


@pytest.fixture(scope="module")
def pair(build_of: Builder, model_folder: Path) -> Pairs:
    """Builds a pair on one engine, with so many tokens of the draft; each once."""

    @cache
    def build(backend: str, size: int, source: str = "target") -> Built:
        return build_of(
            target={"source": model_folder, "precision": "fp32"},
            draft={"source": source, "vocabulary": size},
            engine={"cpu": [backend]},
        )

    return build


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_a_build_says_which_tokens_its_draft_has(pair: Pairs, backend: str) -> None:
    built = pair(backend, SIZE)
    assert built.measurements.lossless
    opened = open_artifact(built.path)
    engines = opened.manifest.engines
    assert engines["target"].token_ids is None
    assert engines["draft"].token_ids == IDS
    assert engines["draft"].vocab_size == opened.manifest.model.vocab_size == 512
    assert opened.manifest.files[IDS].size == 4 * SIZE
    ids = read_token_ids(opened.path(IDS), 512)
    assert ids.size == SIZE
    assert set(opened.manifest.model.eos_token_ids) <= set(ids.tolist())
    report = json.loads((built.path / "reports/build.json").read_text(encoding="utf-8"))
    qualities = {entry["role"]: entry["quality"] for entry in report["candidates"]}
    assert qualities["draft"]["kl_divergence"] is None
    assert qualities["target"]["kl_divergence"] is not None
    assert "∞" in (built.path / "reports/report.html").read_text(encoding="utf-8")
    passes = {graph["role"]: graph["passes"][0]["name"] for graph in report["graphs"]}
    assert passes == {"target": "fuse_projections", "draft": "restrict_head"}


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_the_logits_of_the_tokens_it_has_are_those_of_the_whole_draft(
    pair: Pairs, backend: str
) -> None:
    runners = [Runner.open(pair(backend, size).path, threads=1) for size in (0, SIZE)]
    tokens = runners[0].encode_raw("def build(recipe):\n")
    whole, restricted = (runner.engine("draft").step(tokens).copy() for runner in runners)
    ids = read_token_ids(runners[1].artifact.path(IDS), 512)
    others = np.setdiff1d(np.arange(512), ids)
    assert np.isneginf(restricted[:, others]).all()
    assert np.isfinite(whole).all()
    tolerance = 1e-4 * np.abs(whole).max()
    np.testing.assert_allclose(restricted[:, ids], whole[:, ids], rtol=0, atol=tolerance)


@pytest.mark.parametrize("shared", [True, False], ids=["shared-cache", "own-cache"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_token_it_lacks_is_never_proposed_and_the_output_is_the_same(
    pair: Pairs, other_model_folder: Path, shared: bool, temperature: float
) -> None:
    """Without the restriction, the same draft proposes others."""
    source = "target" if shared else str(other_model_folder)
    request = Request(
        max_new_tokens=48,
        draft_length=4,
        sampling=Sampling(temperature=temperature, audited=True, seed=7),
    )
    proposed: dict[int, set[int]] = {}
    ids: set[int] = set()
    for size in (SIZE, 0):
        runner = Runner.open(pair("onnxruntime", size, source).path, threads=1)
        # An unlikely text, so that the model, which likes to repeat, goes on with unlikely tokens.
        prompt = [*range(300, 512, 5), *runner.encode_raw("zq"), 511, 509, 507]
        plain = list(Session(runner.engine("target")).generate(prompt, request))
        target, engine = runner.engine("target"), runner.engine("draft")
        if size:
            assert isinstance(engine, RestrictedEngine)
            ids = set(read_token_ids(runner.artifact.path(IDS), 512).tolist())
        assert runner.manifest.engines["draft"].shares_cache == shared
        assert isinstance(engine, CacheSharer)
        draft = SharedCacheDraft(engine, target) if shared else ModelDraft(engine)
        recorded = RecordedDraft(draft)
        assert list(Session(target, recorded).generate(prompt, request)) == plain
        proposed[size] = {token for _, tokens in recorded.proposals for token in tokens}
    assert proposed[SIZE]
    assert proposed[SIZE] <= ids
    assert proposed[0] - ids


def test_the_runner_drafts_with_it_in_the_targets_cache(pair: Pairs) -> None:
    runner = Runner.open(pair("openvino", SIZE).path, threads=1)
    prompt, request = runner.encode_raw("def build(recipe):"), Request(max_new_tokens=32)
    plain = list(Session(runner.engine("target")).generate(prompt, request))
    draft = runner.draft("model")
    assert isinstance(draft, SharedCacheDraft)
    session = Session(runner.engine("target"), draft)
    assert list(session.generate(prompt, request)) == plain
    assert sum(session.statistics.accepted) > 0


def test_all_but_the_draft_is_what_it_is_without_it(pair: Pairs) -> None:
    whole, restricted = (pair("onnxruntime", size).manifest for size in (0, SIZE))
    assert whole.engines["draft"].token_ids is None
    assert restricted.files.keys() - whole.files.keys() == {IDS}
    changed = {path for path, entry in whole.files.items() if restricted.files[path] != entry}
    assert changed == {"engines/cpu/draft/model.onnx", "engines/cpu/draft/model.onnx.data"}
    assert whole.engines["target"] == restricted.engines["target"]


def test_too_many_tokens_stop_the_build(pair: Pairs) -> None:
    with pytest.raises(SpeccompileError, match=r"draft\.vocabulary is 512, but .* only 512 tokens"):
        pair("onnxruntime", 512)
