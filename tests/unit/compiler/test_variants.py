"""The stages that compare precisions: what they share, and what they leave out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.compiler.pipeline import plan
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.compiler.stage import Stage, keys
from speccompile.compiler.variants import (
    MEASURE_STAGE,
    ROLES,
    Role,
    Variant,
    plan_variants,
    variants,
)
from speccompile.runtime.errors import RequestError

Write = Callable[[str], Recipe]


@pytest.fixture
def recipe_of(tmp_path: Path) -> Write:
    """A recipe with these lines after its name."""

    def write(text: str) -> Recipe:
        path = tmp_path / "r.toml"
        path.write_text(f'name = "r"\n{text}', encoding="utf-8")
        return load_recipe(str(path))

    return write


@pytest.fixture
def self_drafted(recipe_of: Write) -> Recipe:
    return recipe_of('[target]\nsource = "a/b"\n[draft]\n')


def stages_of(
    recipe: Recipe, *precisions: str, roles: tuple[Role, ...] = ROLES
) -> tuple[dict[str, Stage], dict[str, str]]:
    stages, names = plan_variants(recipe, variants(recipe, roles, precisions or None))
    return {stage.name: stage for stage in stages}, names


def test_every_precision_is_compared_and_mixed_where_there_are_layers(recipe_of: Write) -> None:
    recipe = recipe_of(
        '[target]\nsource = "a/b"\nprecision = "mixed"\nlayers = {"*" = "fp16"}\n[draft]\n'
    )
    assert [(entry.role, entry.precision) for entry in variants(recipe, ROLES)] == [
        *(("target", name) for name in ("fp32", "fp16", "bf16", "int8", "mixed")),
        *(("draft", name) for name in ("fp32", "fp16", "bf16", "int8")),
    ]
    stages, _ = stages_of(recipe)
    assert stages["quantize target"].settings["layers"] == (("*", "fp16"),)
    assert stages["quantize target int8"].settings["layers"] is None


def test_the_callers_order_counts_and_repetition_does_not(self_drafted: Recipe) -> None:
    found = variants(self_drafted, ("target",), ["int8", "fp32", "int8"])
    assert [entry.precision for entry in found] == ["int8", "fp32"]


@pytest.mark.parametrize(
    ("precision", "message"),
    [("int7", 'precision "int7" does not exist; choose of fp32, '), ("mixed", "table of layers")],
)
def test_what_no_role_can_have_is_refused(
    self_drafted: Recipe, precision: str, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        variants(self_drafted, ROLES, [precision])


def test_the_recipes_own_stages_are_those_of_its_builds(self_drafted: Recipe) -> None:
    built = keys(plan(self_drafted))
    stages, _ = stages_of(self_drafted, "fp16", roles=("target",))
    compared = keys(list(stages.values()))
    assert compared.keys() - built.keys() == {MEASURE_STAGE}
    assert all(built[name] == key for name, key in compared.items() if name != MEASURE_STAGE)
    assert "quality target openvino" in compared


def test_other_precisions_differ_in_nothing_else(recipe_of: Write) -> None:
    """Settings of int8 layers go with the int8 precision, and only with it."""
    recipe = recipe_of('[target]\nsource = "a/b"\nprecision = "int8"\nsmoothing = 0.5\n')
    stages, _ = stages_of(recipe, "fp32", "int8", roles=("target",))
    assert stages["quantize target"].settings["smoothing"] == 0.5
    assert stages["quantize target fp32"].settings["smoothing"] == 0
    changed = recipe_of('[target]\nsource = "a/b"\nprecision = "fp32"\n')
    expected = {stage.name: stage for stage in plan(changed)}
    for step in ("quantize target", "lower target openvino", "compile target openvino"):
        assert stages[f"{step} fp32"].settings == expected[step].settings


def test_a_draft_of_the_targets_weights_shares_its_graphs(self_drafted: Recipe) -> None:
    stages, names = stages_of(self_drafted, "fp16", "int8")
    assert names["lower draft openvino"] == "lower target openvino int8"
    assert names["quantize draft"] == "quantize target int8"
    assert "lower draft openvino" not in stages
    assert "lower target openvino int8" in stages["compile draft openvino"].inputs
    engines = stages[MEASURE_STAGE].settings["engines"]
    assert isinstance(engines, dict)
    assert engines["draft openvino"] == ("lower target openvino int8", "compile draft openvino")
    assert len(engines) == 8


def test_a_draft_with_weights_of_its_own_shares_the_target_only(recipe_of: Write) -> None:
    recipe = recipe_of('[target]\nsource = "a/b"\n[draft]\nsource = "c/d"\n')
    stages, names = stages_of(recipe, "fp16")
    assert all(name == kept for name, kept in names.items())
    assert "load draft" in stages["quantize draft fp16"].inputs


def test_only_what_is_needed_is_run_in_an_order_that_works(recipe_of: Write) -> None:
    recipe = recipe_of('[target]\nsource = "a/b"\n[draft]\nsource = "c/d"\n')
    stages, _ = stages_of(recipe, roles=("target",))
    assert "reference draft" not in stages
    assert not [name for name in stages if name.startswith(("measure target", "quantize draft"))]
    done: set[str] = set()
    for name, stage in stages.items():
        assert done.issuperset(stage.inputs)
        done.add(name)


def test_engines_are_named_after_their_stages(self_drafted: Recipe) -> None:
    assert Variant(self_drafted, "draft", "int8").engines["openvino"] == "draft openvino"
    assert Variant(self_drafted, "draft", "fp32").engines["openvino"] == "draft openvino fp32"


def test_drafts_are_compared_with_all_tokens(recipe_of: Write) -> None:
    recipe = recipe_of('[target]\nsource = "."\n[draft]\nvocabulary = 8192\n')
    stages, _ = plan_variants(recipe, variants(recipe, ["draft"], ["int8", "fp16"]))
    assert not [stage.name for stage in stages if stage.name.startswith("vocabulary")]
    lowered = [stage for stage in stages if stage.name.startswith("lower")]
    assert lowered
    assert all(len(stage.inputs) == 2 for stage in lowered)
