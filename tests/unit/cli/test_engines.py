"""`--engine` as keys of a recipe, and its mistakes."""

from __future__ import annotations

import click
import pytest

from speccompile.cli.engines import engine_keys
from speccompile.compiler.recipe import RecipeError, load_recipe


def test_engines_become_keys_of_the_recipe() -> None:
    assert engine_keys(()) == {}
    assert engine_keys(("openvino",)) == {"cpu": ["openvino"]}
    keys = engine_keys(("tensorrt-rtx:sm89,sm120", "onnxruntime"))
    recipe = load_recipe("smollm2-135m", engine=keys)
    assert recipe.engine.cpu == ("onnxruntime",)
    assert recipe.engine.tensorrt == ("sm89", "sm120")
    assert recipe.engine.tensorrt_library == "tensorrt_rtx"


def test_what_is_not_named_stays_the_recipes() -> None:
    recipe = load_recipe("smollm2-135m", engine=engine_keys(("tensorrt:sm90",)))
    plain = load_recipe("smollm2-135m")
    assert recipe.engine.cpu == plain.engine.cpu
    assert recipe.engine.tensorrt_library == "tensorrt"
    assert plain.engine.tensorrt == ()


@pytest.mark.parametrize(
    ("engines", "message"),
    [
        (("cuda:sm89",), "--engine cuda:sm89: there are openvino, onnxruntime, tensorrt, tensorr"),
        (("tensorrt",), "--engine tensorrt: say for which GPUs, as in tensorrt:sm89"),
        (("openvino:sm89",), "--engine openvino:sm89: there are openvino"),
        (("tensorrt:sm89", "tensorrt-rtx:sm89"), "--engine names TensorRT twice"),
    ],
)
def test_mistakes(engines: tuple[str, ...], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        engine_keys(engines)
    assert caught.value.message.startswith(message)


def test_an_unknown_architecture_is_the_recipes_to_refuse() -> None:
    with pytest.raises(
        RecipeError, match=r"engine\.tensorrt\[1\] is \"sm88\"; did you mean sm89\?"
    ):
        load_recipe("smollm2-135m", engine=engine_keys(("tensorrt:sm89,sm88",)))
