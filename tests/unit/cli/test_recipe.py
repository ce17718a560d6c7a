"""`recipe new` on a model that transformers saved, and `recipes`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from speccompile.cli import recipe, recipes
from speccompile.compiler.recipe import RecipeError, catalogue, load_recipe
from speccompile.compiler.sources.checkpoint import SourceError
from tests.families import Tiny, tiny

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
}


@pytest.fixture(scope="module")
def model() -> Tiny:
    return tiny("llama-tied")


@pytest.fixture
def model_folder(model: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as users have it, beside which the commands run."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "Tiny-Model"
    model.model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"eos_token": "b"}', encoding="utf-8")
    return folder


def new(*arguments: object) -> str:
    """Call `recipe new`; returns what it prints. Errors come as they are raised."""
    result = CliRunner().invoke(
        recipe.command, ["new", *map(str, arguments)], catch_exceptions=False, standalone_mode=False
    )
    return result.output


def test_new_writes_a_recipe_that_loads(model_folder: Path) -> None:
    output = new("Tiny-Model")
    assert output == "wrote tiny-model.toml; build it with:  speccompile build tiny-model.toml\n"
    written = load_recipe("tiny-model.toml")
    assert written.name == "tiny-model"
    assert Path(written.target.source).samefile(model_folder)
    assert written.target.sha256 is not None
    assert written.context.length == 96
    assert written.draft is not None
    assert written.draft.source == "target"


def test_new_takes_a_draft_and_an_absolute_path(model_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "pair.toml"
    file.parent.mkdir()
    new(model_folder, "./Tiny-Model", "-o", file)
    written = load_recipe(str(file))
    assert written.target.source == str(model_folder)
    assert written.draft is not None
    assert Path(written.draft.source).samefile(model_folder)
    assert written.draft.sha256 == written.target.sha256


def test_new_replaces_a_file_only_by_force(model_folder: Path) -> None:
    file = Path("tiny-model.toml")
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(RecipeError, match="is already there; choose another with -o, or pass"):
        new(model_folder)
    assert file.read_text(encoding="utf-8") == "mine"
    new(model_folder, "--force")
    assert load_recipe("tiny-model.toml").name == "tiny-model"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no/such.gguf",), "no such file or folder"),
        (("pypi:a==1!b.gguf",), "must be pinned"),
    ],
)
def test_model_that_cannot_be_opened_writes_nothing(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=message):
        new(*arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "message"),
    [("x.json", "ends in .toml"), ("none/x.toml", "there is no folder none; create it first")],
)
def test_bad_output_is_refused_before_a_model_is_opened(file: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        new("no/such.gguf", "-o", file)


def test_recipes_lists_what_one_chooses_by() -> None:
    output = CliRunner().invoke(recipes.command).output
    entries = json.loads(CliRunner().invoke(recipes.command, ["--json"]).output)
    assert [entry["name"] for entry in entries] == list(catalogue())
    assert set(entries[0]) == {"name", "target", "draft", "purpose", "license"}
    for entry in entries:
        assert all(value in output for value in entry.values())
    (gpt2,) = (entry for entry in entries if entry["name"].startswith("gpt2"))
    assert gpt2["license"] == "MIT, Apache-2.0"
