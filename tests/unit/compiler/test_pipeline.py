"""The plan of a build, and its cache keys."""

from __future__ import annotations

import pytest

from speccompile.compiler import pipeline, stage
from speccompile.compiler.pipeline import plan
from speccompile.compiler.recipe import ExpertTable, Recipe, load_recipe
from speccompile.compiler.stage import Stage, keys
from speccompile.compiler.tensorrt import installed
from speccompile.compiler.tensorrt.installed import Installed
from speccompile.runtime.errors import SpeccompileError


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


def test_a_draft_of_fewer_tokens_has_them_chosen_and_the_target_is_as_before() -> None:
    recipe = load_recipe("smollm2-135m")
    assert recipe.draft is not None
    table = recipe.draft.model_copy(update={"vocabulary": 8192})
    restricted = plan(recipe.model_copy(update={"draft": table}))
    stages = {stage.name: stage for stage in restricted}
    assert stages["vocabulary draft"].settings["size"] == 8192
    assert stages["vocabulary draft"].inputs == ("load target", "check")
    for backend in ("openvino", "onnxruntime"):
        assert stages[f"lower draft {backend}"].inputs[2:] == ("vocabulary draft",)
        assert stages[f"lower target {backend}"].inputs[2:] == ()
    before, after = keys(plan(recipe)), keys(restricted)
    changed = {name for name, key in after.items() if before.get(name) != key}
    assert {name.split()[0] for name in changed if name.endswith("target")} == set()
    assert {name.rpartition(" draft")[0] or name.split()[0] for name in changed} <= {
        *("budget", "vocabulary", "lower", "compile", "quality", "measure"),
    }
    assert "export draft" not in changed


def test_a_draft_of_its_own_may_have_counted_its_tokens() -> None:
    recipe = load_recipe("smollm2-360m-with-135m")
    assert recipe.draft is not None
    table = recipe.draft.model_copy(update={"vocabulary": 8192})
    stages = {stage.name: stage for stage in plan(recipe.model_copy(update={"draft": table}))}
    assert stages["vocabulary draft"].inputs == ("load target", "check", "load draft")


def _with_experts(recipe: Recipe, **sources: str) -> Recipe:
    assert recipe.draft is not None
    experts = tuple(ExpertTable(name=name, source=source) for name, source in sources.items())
    return recipe.model_copy(update={"draft": recipe.draft.model_copy(update={"experts": experts})})


def test_experts_are_built_as_the_draft_is() -> None:
    recipe = load_recipe("smollm2-360m-with-135m")
    alone = [stage.name for stage in plan(recipe)]
    names = [stage.name for stage in plan(_with_experts(recipe, code="hf:a/b"))]
    added = [name for name in names if name not in alone]
    assert added == ["load code", "reference code", *_role_stages("code")]
    stages = {stage.name: stage for stage in plan(_with_experts(recipe, code="hf:a/b"))}
    assert stages["check"].inputs == ("load target", "load draft", "load code")
    assert stages["quality code onnxruntime"].inputs[3:] == (
        *("load code", "reference code", "load target", "reference target"),
    )
    assert stages["compile code onnxruntime"].settings["role"] == "draft"


def test_one_draft_may_work_in_the_targets_cache() -> None:
    recipe = load_recipe("smollm2-135m")  # whose draft is the target itself
    with pytest.raises(
        SpeccompileError, match="smollm2-135m: draft and code would work in the target's cache, wh"
    ):
        plan(_with_experts(recipe, code="target"))
    assert plan(_with_experts(recipe, code="hf:a/b", chat="hf:a/c"))


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


def test_plans_are_asked_for_first_and_rehearsed_before_they_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages = {stage.name: stage for stage in plan(_with_plans(monkeypatch))}
    names = list(stages)
    assert names[:6] == [
        *("library", "load target", "check", "budget"),
        *("kernels sm89", "kernels sm120"),
    ]
    assert stages["library"].settings["architectures"] == ["sm89", "sm120"]
    for role in ("target", "draft"):
        first = names.index(f"lower {role} tensorrt")
        assert names[first : first + 7] == [
            f"lower {role} tensorrt",
            f"rehearse {role} tensorrt",
            f"plan {role} sm89",
            f"plan {role} sm120",
            f"lower {role} tensorrt-1024",
            f"plan {role} sm89-1024",
            f"plan {role} sm120-1024",
        ]
    assert stages["rehearse draft tensorrt"].inputs[-1] == "lower draft tensorrt"
    assert stages["plan draft sm120-1024"].inputs == ("lower draft tensorrt-1024", "kernels sm120")
    rules = {
        role: stages[f"lower {role} tensorrt"].settings["rule"] for role in ("target", "draft")
    }
    assert rules == {"target": "traversal", "draft": "walk"}


def test_plans_change_nothing_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = keys(plan(_with_plans(monkeypatch)))
    alone = keys(plan(load_recipe("smollm2-135m")))
    assert alone == {name: beside[name] for name in alone}


def test_another_library_is_another_plan_of_the_same_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = keys(plan(_with_plans(monkeypatch)))
    after = keys(plan(_with_plans(monkeypatch, library="1.8.0")))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"library"} | {name for name in before if name.startswith("plan ")}


def test_without_tensorrt_there_is_no_plan_of_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "library_version", dict[str, str]().get)
    recipe = load_recipe("smollm2-135m", engine={"tensorrt": ["sm89"]})
    needed = r"\Aengine.tensorrt needs tensorrt_rtx, which is not installed: pip install '[^\n]*\Z"
    with pytest.raises(SpeccompileError, match=needed):
        plan(recipe)


def _with_plans(monkeypatch: pytest.MonkeyPatch, library: str = "1.7.1") -> Recipe:
    """A recipe for two GPUs and a shorter capacity, where all that it needs is installed."""

    def installed_library(_: str) -> Installed:
        return Installed("tensorrt_rtx", library)

    def version(_: str) -> str:
        return "1.0"

    monkeypatch.setattr(pipeline, "installed_library", installed_library)
    monkeypatch.setattr(stage, "version", version)
    engine = {"tensorrt": ["sm89", "sm120"], "capacities": [1024]}
    return load_recipe("smollm2-135m", engine=engine)
