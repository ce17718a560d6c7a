from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.compiler.tune import costs
from speccompile.compiler.tune.costs import best_tree, defaults, measure_costs
from speccompile.runtime.manifest import EngineInfo, Manifest
from speccompile.runtime.measurements import Defaults
from speccompile.runtime.runner import Runner
from tests.table_artifact import give_tables, write_artifact

TARGET = {1: 20.0, 4: 21.0, 8: 40.0, 16: 80.0}
DRAFT = {1: 2.0}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    give_tables(monkeypatch)
    return Runner.open(write_artifact(tmp_path / "tiny", {}), on="cpu")


def test_padded_steps_have_the_cost_of_what_they_are_padded_to(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_rows(engines: object, context: list[int], rows: list[int]) -> object:
        assert len(context) + rows[-1] <= runner.context
        return {role: {count: float(count) for count in rows} for role in ("target", "draft")}

    monkeypatch.setattr(costs, "time_rows", time_rows)
    engines = dict(runner.manifest.engines)
    engines["target"] = replace(engines["target"], min_rows=5)
    runner.manifest = replace(runner.manifest, engines=engines)
    measured = measure_costs(runner)
    assert measured["target"] == {1: 5, 2: 5, 3: 5, 4: 5, 5: 5, 6: 6, 8: 8, 12: 12, 16: 16, 32: 32}
    assert measured["draft"][1] == 1


def test_the_length_follows_from_the_costs_unless_the_recipe_says_it(runner: Runner) -> None:
    manifest, before = runner.manifest, Defaults("model", 7)
    table = {"target": TARGET, "draft": DRAFT}

    def told(manifest: Manifest, share: float, *, tuned: bool = False) -> Defaults:
        return defaults(manifest, table, {"draft": (share,)}, before, tuned=tuned)

    assert told(manifest, 0.9) == Defaults("hedge", 3)
    assert told(manifest, 0.9, tuned=True) == Defaults("model", 3)
    assert told(manifest, 0.01) == Defaults("none", 0)
    fixed = replace(manifest, provenance={"recipe": {"draft": {"length": 7}}})
    assert told(fixed, 0.01) == Defaults("hedge", 7)
    assert told(fixed, 0.01, tuned=True) == Defaults("model", 7)
    experts = {"code": manifest.engines["draft"], **manifest.engines}
    several = _with(fixed, experts)
    figures = {"draft": (0.01,), "code": (0.9,)}
    dear = {**table, "code": DRAFT}
    assert defaults(several, dear, figures, before, tuned=True) == Defaults("code", 3)
    alone: dict[str, EngineInfo] = {"target": manifest.engines["target"]}
    lookup = Defaults("ngram", 4)
    costs = {"target": TARGET}
    found = defaults(_with(manifest, alone), costs, {"draft": (0.9,)}, lookup, tuned=False)
    assert found == lookup


def test_a_tree_is_no_larger_than_costs_were_measured() -> None:
    profile = [[0.6, 0.2, 0.1]] * 8
    free = dict.fromkeys(range(1, 9), 10.0)
    assert len(best_tree(profile, free, {}, shares_cache=True).parents) == 7
    shape = best_tree(profile, TARGET, DRAFT, shares_cache=True)
    assert len(shape.parents) == 3  # the fifth row is dear
    # A draft with a cache of its own reads two rows at first.
    apart = best_tree(profile, TARGET, {1: 2.0, 2: 9.0}, shares_cache=False)
    assert apart.milliseconds == pytest.approx(21.0 + 9.0 + 2.0 * (_depth(apart.parents) - 1))


def _depth(parents: list[int]) -> int:
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    return max(depths)


def _with(manifest: Manifest, engines: dict[str, EngineInfo]) -> Manifest:
    return replace(manifest, engines=engines)
