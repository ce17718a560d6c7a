"""Precisions of the tiny model compared, beside a build of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from speccompile.compiler.compare import compare
from speccompile.compiler.execute import Observer, StageResult
from speccompile.compiler.recipe import Recipe, load_recipe


class Recorder(Observer):
    def __init__(self) -> None:
        self.run: list[str] = []

    def finished(self, result: StageResult) -> None:
        if not result.cached:
            self.run.append(result.name)


@pytest.fixture(scope="module")
def recipe(recipe_file: Path) -> Recipe:
    return load_recipe(str(recipe_file))


@pytest.fixture
def built(artifact: Path, cache: Path) -> Path:
    """The cache, after the recipe was built."""
    return cache


def test_what_the_recipe_asks_for_is_shared_with_its_build(recipe: Recipe, built: Path) -> None:
    recorder = Recorder()
    found = compare(recipe, ["int8"], ["draft"], built, recorder)
    assert recorder.run == ["measure precisions"]
    assert found.target == ()
    [row] = found.draft
    assert row.chosen
    assert row.kl_divergence > 0
    assert 0.9 < row.acceptance <= row.full_acceptance == 1.0
    assert row.predicted_speedup >= 1.0
    assert found.verified_by.endswith("fp16")


def test_targets_against_full_precision(recipe: Recipe, built: Path) -> None:
    recorder = Recorder()
    found = compare(recipe, ["fp32", "fp16"], ["target"], built, recorder)
    assert "quantize target fp32" in recorder.run
    assert "quantize target" not in recorder.run
    full, half = found.target
    assert (full.speedup, full.chosen, half.chosen) == (1.0, False, True)
    assert full.kl_divergence < half.kl_divergence < 1e-5
    assert full.bytes > 1.5 * half.bytes
    assert found.draft == ()
