"""The plan of a build, and its cache keys."""

from __future__ import annotations

from speccompile.compiler.pipeline import Stage, keys, plan
from speccompile.compiler.recipe import load_recipe


def _engine_stages(role: str, backend: str) -> list[str]:
    return [f"{step} {role} {backend}" for step in ("lower", "compile", "quality")]


def _role_stages(role: str) -> list[str]:
    return [
        f"quantize {role}",
        f"export {role}",
        *_engine_stages(role, "openvino"),
        *_engine_stages(role, "onnxruntime"),
        f"measure {role}",
    ]


def test_the_plan_reads_as_the_build() -> None:
    names = [stage.name for stage in plan(load_recipe("smollm2-135m"))]
    opening = ["load target", "check", "budget", "reference target"]
    assert names == [*opening, *_role_stages("target"), *_role_stages("draft")]


def test_a_draft_of_its_own_is_loaded_and_run_for_reference() -> None:
    stages = {stage.name: stage for stage in plan(load_recipe("smollm2-360m-with-135m"))}
    assert list(stages)[:6] == [
        *("load target", "load draft", "check", "budget"),
        *("reference target", "reference draft"),
    ]
    # The draft is judged by the target's predictions too.
    judged = stages["quality draft onnxruntime"].inputs
    assert judged[3:] == ("load draft", "reference draft", "load target", "reference target")


def test_a_key_follows_settings_and_inputs() -> None:
    first, second = Stage("a", "m:f", settings={"x": 1}), Stage("b", "m:f", ("a",))
    before = keys([first, second])
    after = keys([Stage("a", "m:f", settings={"x": 2}), second])
    assert before["a"] != after["a"]
    assert before["b"] != after["b"]
    assert keys([first, second]) == before


def test_a_precision_changes_only_what_depends_on_it() -> None:
    recipe = load_recipe("smollm2-135m")
    finer = recipe.model_copy(
        update={"target": recipe.target.model_copy(update={"precision": "fp32"})}
    )
    before, after = keys(plan(recipe)), keys(plan(finer))
    same = {name for name, key in before.items() if after[name] == key}
    # The draft is the target's own weights, and shares its cache.
    assert same == {
        "load target",
        "check",
        "reference target",
        "quantize draft",
        "export draft",
    } | {
        f"{step} draft {backend}"
        for step in ("lower", "compile", "quality")
        for backend in ("openvino", "onnxruntime")
    } | {"measure draft"}
