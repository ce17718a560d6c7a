"""The verdict: figures worked out by hand, and a sentence that says the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speccompile.compiler.default_draft import LONGEST_DRAFT
from speccompile.compiler.report.verdict import judge
from speccompile.runtime.manifest import EngineInfo, Manifest, ModelInfo, Requirements
from speccompile.runtime.measurements import Defaults, Measurements

_TARGET = EngineInfo(
    role="target",
    backend="openvino",
    graph="g",
    precision="fp16",
    arithmetic="fp32",
    layers=1,
    kv_heads=1,
    heads=1,
    head_dim=8,
    capacity=96,
    vocab_size=16,
    min_rows=1,
    shares_cache=False,
)
_DRAFT = replace(_TARGET, role="draft", shares_cache=True)
_MANIFEST = Manifest(
    schema=1,
    name="tiny",
    compiler_version="0",
    model=ModelInfo(16, 64, 1, 1, 8, None, (0,)),
    engines={"target": _TARGET, "draft": _DRAFT},
    requires=Requirements("x86_64", (), {}),
    provenance={},
    files={},
)


def _measured(acceptance: tuple[float, ...], draft_ms: float, length: int) -> Measurements:
    """A target whose steps cost 10 ms whatever their rows."""
    rows = range(1, LONGEST_DRAFT + 2)
    costs = {"target": dict.fromkeys(rows, 10.0), "draft": dict.fromkeys(rows, draft_ms)}
    return Measurements(1, "m", costs, acceptance, True, Defaults("model", length), {})


def test_a_pair_that_pays() -> None:
    verdict = judge(_MANIFEST, _measured((0.8, 0.5), draft_ms=2.0, length=2))
    # tokens of a round over its milliseconds, by plain decoding's 0.1 a millisecond
    assert verdict.predicted_speedup[0] == 1.0
    assert verdict.predicted_speedup[1] == pytest.approx(1.8 * 10 / 12)
    assert verdict.predicted_speedup[2] == pytest.approx(2.2 * 10 / 14, abs=1e-3)
    assert list(verdict.predicted_speedup) == list(range(LONGEST_DRAFT + 1))
    assert (verdict.worth, verdict.best_length, verdict.cost_ratio) == (True, 2, 0.2)
    assert verdict.sentence == (
        "worth speculating: first proposal accepted 0.80, a draft step costs 0.20 of a target "
        "step, best draft length 2, predicted 1.57x"
    )


def test_a_length_that_the_recipe_fixes_is_judged_too() -> None:
    verdict = judge(_MANIFEST, _measured((0.8, 0.5), draft_ms=2.0, length=1))
    assert verdict.sentence.endswith("predicted 1.57x; the recipe's length 1, 1.50x")


def test_a_pair_that_does_not_pay() -> None:
    verdict = judge(_MANIFEST, _measured((0.1,), draft_ms=9.0, length=0))
    assert (verdict.worth, verdict.best_length) == (False, 0)
    assert verdict.sentence == (
        "not worth speculating: first proposal accepted 0.10, a draft step costs 0.90 of a target "
        "step, even draft length 1 is predicted 0.58x"
    )


def test_a_draft_that_was_never_tried_is_not_worth_it() -> None:
    assert judge(_MANIFEST, _measured((), draft_ms=1.0, length=0)).worth is False


def test_without_a_draft_model_there_is_nothing_to_judge() -> None:
    manifest = replace(_MANIFEST, engines={"target": _TARGET})
    verdict = judge(manifest, _measured((0.3,), draft_ms=1.0, length=4))
    assert (verdict.worth, verdict.cost_ratio, verdict.predicted_speedup) == (None, None, {})
    assert "first proposal accepted 0.30" in verdict.sentence
