from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from speccompile.compiler.recipe import Recipe, RecipeError, catalogue, load_recipe

MINIMAL = 'name = "x"\ntarget.source = "org/model"\n'
DIGEST = "ab" * 32


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recipes are written to, and loaded from, the current folder: messages show `x.toml`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(text: str) -> Recipe:
    Path("x.toml").write_text(text, encoding="utf-8")
    return load_recipe("x.toml")


def mistakes(text: str) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        load(text)
    assert caught.value.exit_code == 2
    lines = str(caught.value).splitlines()
    assert all(line.startswith("x.toml: ") for line in lines)
    return [line.removeprefix("x.toml: ") for line in lines]


@pytest.mark.parametrize("name", list(catalogue()))
def test_catalogue_recipe_is_whole_and_named_after_its_file(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description
    assert recipe.license
    assert recipe.origin == catalogue()[name]


def test_catalogue_is_found_as_package_data_of_a_wheel(folder: Path) -> None:
    packaged = folder / "speccompile" / "recipes"
    packaged.mkdir(parents=True)
    (packaged / "b.toml").touch()
    (packaged / "a.toml").touch()
    (packaged / "notes.md").touch()
    program = "from speccompile.compiler.recipe import catalogue; print(*catalogue().items())"
    output = subprocess.check_output(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(folder)}, text=True
    )
    expected = {"a": packaged / "a.toml", "b": packaged / "b.toml"}
    assert output.strip() == " ".join(map(str, expected.items()))


@pytest.mark.parametrize(
    ("asked", "question"),
    [
        ("smolm2-135m", " did you mean smollm2-135m?"),
        ("recipes/smolm2-135m.toml", " did you mean smollm2-135m?"),
        ("zzz", ""),
    ],
)
def test_unknown_recipe_names_the_nearest_and_lists_all(asked: str, question: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(asked)
    listing = ", ".join(catalogue())
    assert str(caught.value) == f"{asked}: no such recipe;{question} the catalogue has {listing}"


def test_minimal_recipe_gets_the_defaults() -> None:
    recipe = load(MINIMAL)
    assert recipe.target.precision == "fp16"
    assert recipe.draft is None
    assert recipe.engine.cpu == ("openvino", "onnxruntime")
    assert recipe.engine.threads == 0
    assert recipe.context.length == 2048
    assert recipe.validation.tokens == 64
    assert recipe.validation.min_acceptance == 0.0


def test_empty_draft_table_is_the_target_in_int8() -> None:
    draft = load(MINIMAL + "[draft]").draft
    assert draft is not None
    assert (draft.source, draft.precision, draft.length) == ("target", "int8", "auto")


def test_recipe_is_frozen_and_hashable() -> None:
    recipe = load(MINIMAL)
    with pytest.raises(ValidationError, match="frozen"):
        recipe.target.precision = "fp32"
    assert hash(recipe) == hash(load(MINIMAL))


def test_paths_are_relative_to_the_recipe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "models" / "tiny").mkdir(parents=True)
    (folder / "prompts.txt").touch()
    Path("x.toml").write_text(
        'name = "x"\ntarget.source = "models/tiny"\ndraft.source = "../draft.gguf"\n'
        'validate.prompts = "prompts.txt"',
        encoding="utf-8",
    )
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    recipe = load_recipe("../x.toml")
    assert Path(recipe.target.source).samefile(folder / "models" / "tiny")
    assert recipe.draft is not None
    assert Path(recipe.draft.source).resolve() == folder.resolve().parent / "draft.gguf"
    assert recipe.validation.prompts is not None
    assert recipe.validation.prompts.samefile(folder / "prompts.txt")
    assert recipe.origin is not None
    assert recipe.origin.is_absolute()
    assert recipe.origin.samefile(folder / "x.toml")


@pytest.mark.parametrize(
    "source", ["org/model", "gpt2", "hf:a/b.gguf", "~/a.gguf", "pypi:a==1!b/c.gguf"]
)
def test_source_that_is_not_relative_stays_as_written(source: str) -> None:
    target = load(f'name = "x"\n[target]\nsource = "{source}"\nsha256 = "{DIGEST.upper()}"').target
    assert (target.source, target.sha256) == (source, DIGEST)


def test_folder_called_target_does_not_change_the_draft(folder: Path) -> None:
    (folder / "target").mkdir()
    draft = load(MINIMAL + "[draft]\nsource = 'target'").draft
    assert draft is not None
    assert draft.source == "target"


def test_canonical_writes_defaults_and_not_the_order_or_notation_of_the_file() -> None:
    plain = load(MINIMAL).canonical()
    spelled = load(
        "validate.min_acceptance = 0\ncontext = {length = 2_048} # a comment\n"
        'target = {precision = "fp16", source = "org/model"}\nname = \'x\''
    ).canonical()
    assert plain == spelled
    assert plain == (
        '{"context":{"length":2048},"description":"","draft":null,'
        '"engine":{"cpu":["openvino","onnxruntime"],"threads":0},"license":"","name":"x",'
        '"target":{"precision":"fp16","sha256":null,"source":"org/model"},'
        '"validate":{"min_acceptance":0.0,"prompts":null,"tokens":64}}'
    )


def test_canonical_does_not_tell_where_the_recipe_lies(folder: Path) -> None:
    text = (
        'name = "x"\ntarget.source = "./model.gguf"\ndraft.source = "../draft.gguf"\n'
        'validate.prompts = "prompts.txt"'
    )
    recipes: list[Recipe] = []
    for place in (folder / "one", folder / "two" / "deep"):
        place.mkdir(parents=True)
        (place / "prompts.txt").touch()
        (place / "x.toml").write_text(text, encoding="utf-8")
        recipes.append(load_recipe(str(place / "x.toml")))
    one, two = recipes
    assert one.target.source != two.target.source
    assert one.canonical() == two.canonical()
    tables = json.loads(one.canonical())
    assert tables["target"]["source"] == "model.gguf"
    assert tables["draft"]["source"] == "../draft.gguf"
    assert tables["validate"]["prompts"] == "prompts.txt"


def test_canonical_tells_recipes_apart() -> None:
    texts = [MINIMAL, MINIMAL + "[draft]", MINIMAL + "engine.threads = 1"]
    assert len({load(text).canonical() for text in texts}) == 3


MISTAKES = {
    # unknown keys
    "targt = 1": "targt is unknown; did you mean target?",
    "Draft = 1": "Draft is unknown; did you mean draft?",
    "validation.tokens = 1": "validation is unknown; did you mean validate?",
    "zzz = 1": "zzz is unknown; a recipe takes name, description, license, target, draft, "
    "engine, context, validate",
    "target.precison = 'fp16'": "target.precison is unknown; did you mean precision?",
    "draft.lenght = 1": "draft.lenght is unknown; did you mean length?",
    "engine.thread = 1": "engine.thread is unknown; did you mean threads?",
    "engine.zzz = 1": "engine.zzz is unknown; engine takes cpu, threads",
    "context.size = 1": "context.size is unknown; context takes length",
    "validate.promts = 1": "validate.promts is unknown; did you mean prompts?",
    # choices
    "target.precision = 'fp61'": 'target.precision is "fp61"; did you mean fp16?',
    "target.precision = 'int8'": 'target.precision is "int8"; it should be "fp32" or "fp16"',
    "target.precision = []": 'target.precision is []; it should be "fp32" or "fp16"',
    "draft.precision = 'INT-8'": 'draft.precision is "INT-8"; did you mean int8?',
    "draft.length = 'atuo'": 'draft.length is "atuo"; did you mean auto?',
    "draft.length = 0": 'draft.length is 0; it should be 1 to 8, or "auto"',
    "draft.length = 9": 'draft.length is 9; it should be 1 to 8, or "auto"',
    "draft.length = 1.0": 'draft.length is 1.0; it should be 1 to 8, or "auto"',
    "draft.length = true": 'draft.length is true; it should be 1 to 8, or "auto"',
    "draft.length = '5'": 'draft.length is "5"; it should be 1 to 8, or "auto"',
    "engine.cpu = ['OpenVINO']": 'engine.cpu[0] is "OpenVINO"; did you mean openvino?',
    "engine.cpu = ['tensorrt']": 'engine.cpu[0] is "tensorrt"; it should be "openvino" or '
    '"onnxruntime"',
    "engine.cpu = ['openvino', 'openvino']": "engine.cpu repeats an engine; name each once",
    "engine.cpu = []": "engine.cpu is empty; name an engine, or leave the key out for all of them",
    # types
    "engine.threads = '5'": 'engine.threads is "5"; it should be a valid integer',
    "engine.threads = 5.0": "engine.threads is 5.0; it should be a valid integer",
    "engine.threads = true": "engine.threads is true; it should be a valid integer",
    "description = 5": "description is 5; it should be a valid string",
    "description = 2026-01-31": 'description is "2026-01-31"; it should be a valid string',
    "validate.min_acceptance = '0'": 'validate.min_acceptance is "0"; it should be a valid number',
    "engine.cpu = 'openvino'": 'engine.cpu is "openvino"; it should be a list',
    "draft = 'target'": 'draft is "target"; it should be a table',
    "validate.prompts = 3": "validate.prompts is 3; it should be a path in quotes",
    # ranges
    "engine.threads = -1": "engine.threads is -1; it should be greater than or equal to 0",
    "context.length = 32": "context.length is 32; it should be greater than or equal to 64",
    "context.length = 131104": "context.length is 131104; it should be less than or equal to "
    "131072",
    "context.length = 100": "context.length is 100; it should be a multiple of 32",
    "validate.tokens = 0": "validate.tokens is 0; it should be greater than or equal to 1",
    "validate.tokens = 4097": "validate.tokens is 4097; it should be less than or equal to 4096",
    "validate.min_acceptance = 1.1": "validate.min_acceptance is 1.1; it should be less than or "
    "equal to 1",
    "validate.min_acceptance = nan": "validate.min_acceptance is NaN; it should be a finite number",
    "target.sha256 = 'a'": "target.sha256 is \"a\"; it should match pattern '^[0-9a-fA-F]{64}$'",
    # keys that contradict each other
    f"draft.sha256 = '{DIGEST}'": 'draft.sha256 pins nothing when the source is "target"; '
    "set target.sha256",
    "draft.source = 'pypi:a==1!b'": "draft.sha256 is missing; a pypi: source must be pinned by "
    "its file's SHA-256",
    "context.length = 64\nvalidate.tokens = 65": "validate generates 65 tokens, but context.length "
    "is 64; lower validate.tokens or raise context.length",
}


@pytest.mark.parametrize("addition", MISTAKES)
def test_mistake_is_named_with_its_way_out(addition: str) -> None:
    assert mistakes(MINIMAL + addition) == [MISTAKES[addition]]


@pytest.mark.parametrize("name", ["", "A", "-a", "a b", "../a", "a/b"])
def test_name_must_be_a_slug(name: str) -> None:
    (line,) = mistakes(f'name = "{name}"\ntarget.source = "org/model"')
    assert line == f"name is \"{name}\"; it should match pattern '^[a-z0-9][a-z0-9._-]*$'"


def test_missing_keys_are_named() -> None:
    hint = "is missing; a recipe needs at least name and target.source"
    assert mistakes("") == [f"name {hint}", f"target {hint}"]
    assert mistakes("[target]") == [f"name {hint}", f"target.source {hint}"]


def test_prompts_must_be_a_file(folder: Path) -> None:
    assert mistakes(MINIMAL + 'validate.prompts = "none.txt"') == [
        f"validate.prompts names {folder / 'none.txt'}, which is not a file; "
        "paths are relative to the recipe"
    ]


def test_all_mistakes_are_reported_at_once() -> None:
    additions = [
        "draft.sha256 = 'a'",
        "draft.length = 9",
        "engine.cpu = ['OpenVINO']",
        "engine.threads = '5'",
        "context.length = 64\nvalidate.tokens = 65",
        "targt = 1",
    ]
    lines = mistakes("target = {source = 'pypi:a==1!b', precison = ''}\n" + "\n".join(additions))
    assert lines == [
        "name is missing; a recipe needs at least name and target.source",
        "target.sha256 is missing; a pypi: source must be pinned by its file's SHA-256",
        "target.precison is unknown; did you mean precision?",
        "draft.sha256 is \"a\"; it should match pattern '^[0-9a-fA-F]{64}$'",
        *(MISTAKES[addition] for addition in additions[1:]),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 'x'\ntarget.source =\n", "x.toml:2: Invalid value"),
        ("name = 'x'\nname = 'y'\n", "x.toml:2: Cannot overwrite a value"),
        ("\n\nname = '''x", "x.toml:3: "),
    ],
)
def test_syntax_error_names_the_line(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load(text)
    assert str(caught.value).startswith(message)
    assert "(at " not in str(caught.value)


def test_file_that_cannot_be_read_is_no_traceback() -> None:
    Path("x.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(RecipeError, match=r"^x.toml: not UTF-8 at byte 8; save it as UTF-8$"):
        load_recipe("x.toml")
    Path("folder.toml").mkdir()
    with pytest.raises(RecipeError, match=r"^folder.toml: cannot read folder.toml: Is a directory"):
        load_recipe("folder.toml")
