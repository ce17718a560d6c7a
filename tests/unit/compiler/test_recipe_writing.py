"""A written recipe loads without mistakes, wherever it and its models lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.recipe import Recipe, RecipeError, load_recipe
from speccompile.compiler.recipes.writing import recipe_name, recipe_text
from speccompile.compiler.sources.checkpoint import Provenance, TokenizerFiles
from tests.families import tiny

DIGEST = "ab" * 32
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Model:
    """A checkpoint whose weights nobody reads."""

    config: DecoderConfig
    provenance: Provenance

    @property
    def tokenizer(self) -> TokenizerFiles:
        raise AssertionError("read the tokenizer")

    def tensor(self, name: str) -> NDArray[np.float32]:
        raise AssertionError(f"read {name}")


@pytest.fixture(scope="module")
def model() -> Model:
    config = replace(tiny("llama-tied").config, context_length=100)
    return Model(config, Provenance("pypi:a==1!b/My Model.Q8_0.gguf", None, DIGEST, "mit"))


def moved(
    model: Model, source: str, revision: str | None = None, license: str | None = "mit"
) -> Model:
    return replace(model, provenance=Provenance(source, revision, DIGEST, license))


def written(file: Path, target: Model, draft: Model | None = None) -> Recipe:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(recipe_text(target, draft, file), encoding="utf-8")
    return load_recipe(str(file))


def test_self_draft_of_a_wheel_is_pinned(model: Model, tmp_path: Path) -> None:
    recipe = written(tmp_path / "x.toml", model)
    assert recipe.name == "my-model.q8_0"
    assert recipe.target.source == model.provenance.source
    assert (recipe.target.sha256, recipe.target.license) == (DIGEST, "mit")
    assert recipe.target.precision == "fp16"
    assert recipe.draft is not None
    assert (recipe.draft.source, recipe.draft.sha256) == ("target", None)
    assert recipe.draft.precision == "int8"


def test_context_is_what_both_models_hold_in_whole_steps(model: Model, tmp_path: Path) -> None:
    long = replace(model, config=replace(model.config, context_length=131072))
    assert written(tmp_path / "a.toml", model).context.length == 96
    assert written(tmp_path / "b.toml", long, model).context.length == 96
    assert written(tmp_path / "c.toml", long).context.length == 2048


def test_context_too_short_for_any_recipe_is_refused(model: Model, tmp_path: Path) -> None:
    short = replace(model, config=replace(model.config, context_length=63))
    with pytest.raises(RecipeError, match="holds 63 tokens, but a recipe needs at least 64"):
        recipe_text(short, None, tmp_path / "x.toml")


def test_hub_model_is_pinned_by_its_commit(model: Model, tmp_path: Path) -> None:
    target = moved(model, "org/Model-1", revision=COMMIT, license=None)
    draft = moved(model, "hf:org/Model-2@main", revision=COMMIT)
    recipe = written(tmp_path / "x.toml", target, draft)
    assert recipe.name == "model-1"
    assert recipe.target.source == f"hf:org/Model-1@{COMMIT}"
    assert (recipe.target.sha256, recipe.target.license) == (None, "")
    assert recipe.draft is not None
    assert recipe.draft.source == f"hf:org/Model-2@{COMMIT}"
    assert "Model-1 in FP16, drafted by Model-2 in INT8" in recipe.description


@pytest.mark.parametrize(
    "given", ["models/tiny.gguf", "./models/tiny.gguf", "{here}/models/tiny.gguf"]
)
@pytest.mark.parametrize("file", ["x.toml", "recipes/deep/x.toml", "models/x.toml", "link/x.toml"])
def test_path_is_found_again_from_the_recipe(
    given: str, file: str, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "models" / "tiny.gguf"
    weights.parent.mkdir()
    weights.touch()
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    monkeypatch.chdir(tmp_path)
    recipe = written(Path(file), moved(model, given.format(here=tmp_path)))
    assert recipe.name == "tiny"
    assert Path(recipe.target.source).samefile(weights)
    assert recipe.target.sha256 == DIGEST
    absolute = str(tmp_path) in Path(file).read_text(encoding="utf-8")
    assert absolute == given.startswith("{here}")


def test_memory_is_estimated_from_the_dimensions(model: Model, tmp_path: Path) -> None:
    big = replace(model, config=replace(model.config, vocab_size=10_000_000))
    text = recipe_text(big, None, tmp_path / "x.toml")
    # 640 M embeddings of 64 numbers; the layers are nothing to them.
    assert "10000000 token ids: 640.1 M parameters, about 1.3 GB in FP16" in text
    assert "640.1 M parameters, about 0.64 GB in INT8" in text
    assert "take about 3.2 GB at run time" in text


def test_odd_names_are_written_as_they_are(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = Path('a "b" \\ {c} é.gguf')
    odd.touch()
    recipe = written(Path("x.toml"), moved(model, str(odd), license='"MIT"\nand more'))
    assert Path(recipe.target.source).samefile(odd)
    assert recipe.target.license == '"MIT" and more'
    assert recipe.name == "a-b-c"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("org/Model-1.5B", "model-1.5b"),
        ("hf:org/Model@main", "model"),
        ("a/b/tiny.Q4_1.gguf", "tiny.q4_1"),
        ("pypi:a==1!b/c.gguf", "c"),
    ],
)
def test_name_is_the_models_own(source: str, name: str) -> None:
    assert recipe_name(source) == name


def test_folder_named_by_a_dot_gives_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "Tiny" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    assert [recipe_name("."), recipe_name("..")] == ["inner", "tiny"]


def test_source_without_a_name_is_refused() -> None:
    with pytest.raises(RecipeError, match="holds nothing to name a recipe after"):
        recipe_name("/")
