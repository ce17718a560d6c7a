from __future__ import annotations

import json
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
    (folder / "draft.gguf").touch()
    (folder / "recipes").mkdir()
    for name in ("prompts", "calibration", "evaluation"):
        (folder / "recipes" / f"{name}.txt").touch()
    (folder / "recipes" / "x.toml").write_text(
        'name = "x"\ntarget.source = "../models/tiny"\ndraft.source = "../draft.gguf"\n'
        'calibrate.text = "calibration.txt"\n'
        'validate = {prompts = "prompts.txt", text = "evaluation.txt"}\n',
        encoding="utf-8",
    )
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    recipe = load_recipe("../recipes/x.toml")
    assert Path(recipe.target.source).samefile(folder / "models" / "tiny")
    assert recipe.draft is not None
    assert Path(recipe.draft.source).samefile(folder / "draft.gguf")
    files = (recipe.validation.prompts, recipe.calibrate.text, recipe.validation.text)
    for file, name in zip(files, ("prompts", "calibration", "evaluation"), strict=True):
        assert file is not None
        assert file.samefile(folder / "recipes" / f"{name}.txt")
    assert recipe.origin is not None
    assert recipe.origin.is_absolute()
    assert recipe.origin.samefile(folder / "recipes" / "x.toml")


@pytest.mark.parametrize(
    "source",
    ["org/model", "org/model@main", "hf:a/b.gguf", "hf:a/b@v1", "~", "pypi:a==1!b/c.gguf"],
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
        '{"artifact":{"keep_onnx":false},"calibrate":{"text":null,"tokens":2048},'
        '"context":{"length":2048},"description":"","draft":null,'
        '"engine":{"batch":1,"capacities":[],"cpu":["openvino","onnxruntime"],'
        '"memory_gb":null,"tensorrt":[],"tensorrt_library":"auto","threads":0},'
        '"figures":[],"name":"x","purpose":"",'
        '"target":{"activations":"dynamic","layers":null,"license":"","outlier_threshold":0.0,'
        '"precision":"fp16","sha256":null,"smoothing":0.0,"source":"org/model"},'
        '"validate":{"evaluate_tokens":2048,"max_perplexity_increase":null,'
        '"min_acceptance":0.0,"prompts":null,"text":null,"tokens":64}}'
    )


def test_canonical_does_not_tell_where_the_recipe_lies(folder: Path) -> None:
    text = (
        'name = "x"\ntarget.source = "./model.gguf"\ndraft.source = "../draft.gguf"\n'
        'validate.prompts = "prompts.txt"\ncalibrate.text = "prompts.txt"'
    )
    recipes: list[Recipe] = []
    for place in (folder / "one", folder / "two" / "deep"):
        place.mkdir(parents=True)
        for file in ("prompts.txt", "model.gguf", "../draft.gguf"):
            (place / file).touch()
        (place / "x.toml").write_text(text, encoding="utf-8")
        recipes.append(load_recipe(str(place / "x.toml")))
    one, two = recipes
    assert one.target.source != two.target.source
    assert one.canonical() == two.canonical()
    tables = json.loads(one.canonical())
    assert tables["target"]["source"] == "model.gguf"
    assert tables["draft"]["source"] == "../draft.gguf"
    assert tables["validate"]["prompts"] == "prompts.txt"
    assert tables["calibrate"]["text"] == "prompts.txt"


def test_canonical_tells_recipes_apart() -> None:
    mixed = MINIMAL + 'target.precision = "mixed"\n[target.layers]\n'
    texts = [
        MINIMAL,
        MINIMAL + "[draft]",
        MINIMAL + "engine.threads = 1",
        mixed + '"*" = "int8"\nlm_head = "fp16"',
        mixed + 'lm_head = "fp16"\n"*" = "int8"',  # which makes everything int8
    ]
    assert len({load(text).canonical() for text in texts}) == len(texts)
    assert len({hash(load(text)) for text in texts}) == len(texts)


MISTAKES = {
    # unknown keys
    "targt = 1": "targt is unknown; did you mean target?",
    "Draft = 1": "Draft is unknown; did you mean draft?",
    "validation.tokens = 1": "validation is unknown; did you mean validate?",
    "zzz = 1": "zzz is unknown; a recipe takes name, description, purpose, target, draft, "
    "engine, context, calibrate, validate, artifact, distil, shared, t5, figures",
    "license = 'MIT'": "license is unknown; did you mean target.license or draft.license?",
    "context.threads = 1": "context.threads is unknown; did you mean engine.threads?",
    "calibrate.token = 1": "calibrate.token is unknown; did you mean tokens?",
    "artifact.keep_onxx = true": "artifact.keep_onxx is unknown; did you mean keep_onnx?",
    "target.precison = 'fp16'": "target.precison is unknown; did you mean precision?",
    "draft.lenght = 1": "draft.lenght is unknown; did you mean length?",
    "engine.thread = 1": "engine.thread is unknown; did you mean threads?",
    "engine.zzz = 1": "engine.zzz is unknown; engine takes cpu, tensorrt, tensorrt_library, "
    "capacities, batch, threads, memory_gb",
    "context.size = 1": "context.size is unknown; context takes length",
    "validate.promts = 1": "validate.promts is unknown; did you mean prompts?",
    # choices
    "target.precision = 'fp61'": 'target.precision is "fp61"; did you mean fp16?',
    "target.precision = []": 'target.precision is []; it should be "fp32", "fp16", "bf16", "int8" '
    'or "mixed"',
    "target.activations = 'statc'": 'target.activations is "statc"; did you mean static?',
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
    "engine.cpu = ['openvino', 'openvino']": "engine.cpu repeats openvino; name each once",
    "engine.tensorrt = ['sm89', 'sm89']": "engine.tensorrt repeats sm89; name each once",
    "engine.tensorrt = ['sm88']": 'engine.tensorrt[0] is "sm88"; did you mean sm89?',
    "engine.capacities = [2048]": "context holds 2048 tokens, but engine.capacities has 2048; "
    "a plan for the whole context is always built",
    "engine.capacities = [100]": "engine.capacities[0] is 100; it should be a multiple of 32",
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
    "calibrate.text = 3": "calibrate.text is 3; it should be a path in quotes",
    "artifact.keep_onnx = 1": "artifact.keep_onnx is 1; it should be a valid boolean",
    "engine.memory_gb = true": "engine.memory_gb is true; it should be a valid number",
    "target.smoothing = '0.5'": 'target.smoothing is "0.5"; it should be a valid number',
    'purpose = "a\\nb"': "purpose has several lines; write one",
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
    "validate.max_perplexity_increase = -0.1": "validate.max_perplexity_increase is -0.1; it "
    "should be greater than or equal to 0",
    "validate.evaluate_tokens = 255": "validate.evaluate_tokens is 255; it should be greater than "
    "or equal to 256",
    "calibrate.tokens = 65537": "calibrate.tokens is 65537; it should be less than or equal to "
    "65536",
    "engine.memory_gb = 0": "engine.memory_gb is 0; it should be greater than 0",
    "draft.outlier_threshold = -1.0": "draft.outlier_threshold is -1.0; it should be greater "
    "than or equal to 0",
    "draft.smoothing = 1.5": "draft.smoothing is 1.5; it should be less than or equal to 1",
    "target.sha256 = 'a'": "target.sha256 is \"a\"; it should match pattern '^[0-9a-fA-F]{64}$'",
    # experts
    "draft.experts = [{name = 'code'}]": "draft.experts[0].source is missing; an expert needs name "
    "and source",
    "draft.experts = [{name = 'code', source = 'a/b', lenght = 2}]": "draft.experts[0].lenght is "
    "unknown; did you mean length?",
    "draft.experts = [{name = 'ngram', source = 'a/b'}]": "draft.experts[0].name is 'ngram', which "
    "means something already (model, ngram, suffix, union, hedge, none, target, draft); choose "
    "another name",
    "draft.experts = [{name = 'draft', source = 'a/b'}]": "draft.experts[0].name is 'draft', which "
    "means something already (model, ngram, suffix, union, hedge, none, target, draft); choose "
    "another name",
    "draft.experts = [{name = '../x', source = 'a/b'}]": "draft.experts[0].name is '../x'; use "
    "lower case letters, digits, _ and -, 32 at most",
    "draft.experts = [{name = 'code', source = 'a/b'}, {name = 'code', source = 'a/c'}]": (
        "draft.experts repeats code; name each once"
    ),
    # keys that contradict each other
    f"draft.sha256 = '{DIGEST}'": 'draft.sha256 pins nothing when the source is "target"; '
    "set target.sha256",
    "draft.source = 'pypi:a==1!b'": "draft.sha256 is missing; a pypi: source must be pinned by "
    "its file's SHA-256",
    "target.outlier_threshold = 6.0": "target.outlier_threshold works on INT8 layers, but "
    'precision is "fp16"; leave it out, or choose "int8" or "mixed"',
    "draft = {precision = 'bf16', smoothing = 0.5}": "draft.smoothing works on INT8 layers, but "
    'precision is "bf16"; leave it out, or choose "int8" or "mixed"',
    "target.activations = 'static'": "target.activations works on INT8 layers, but precision is "
    '"fp16"; leave it out, or choose "int8" or "mixed"',
    "context.length = 64\nvalidate.tokens = 65": "validate generates 65 tokens, but context.length "
    "is 64; lower validate.tokens or raise context.length",
}


@pytest.mark.parametrize("addition", MISTAKES)
def test_mistake_is_named_with_its_way_out(addition: str) -> None:
    assert mistakes(MINIMAL + addition) == [MISTAKES[addition]]


MIXED = "[draft]\nprecision = 'mixed'\n"
ALL = MIXED + "[draft.layers]\n'*' = 'int8'\n"
LAYERS = {
    "[draft.layers]\n'*' = 'int8'": 'draft.layers needs precision = "mixed", but it is "int8"; '
    "remove one of them",
    MIXED: 'draft.layers is missing; precision = "mixed" takes it from this table',
    MIXED + "layers = 'int8'": 'draft.layers is "int8"; it should be a table',
    MIXED + "[draft.layers]\nlm_head = 'int8'": 'draft.layers has no pattern "*"; begin with it, '
    "for what no other pattern matches",
    MIXED + "[draft.layers]\n'*' = 'mixed'": 'draft.layers."*" is "mixed"; it should be "fp32", '
    '"fp16", "bf16" or "int8"',
    MIXED
    + "smoothing = 0.5\n[draft.layers]\n'*' = 'fp16'": "draft.smoothing works on INT8 layers, "
    "but no pattern in layers is int8; leave it out",
    ALL + "'a.*' = 'int-8'": 'draft.layers."a.*" is "int-8"; did you mean int8?',
    ALL + "model.norm = 'fp16'": "draft.layers.model is a table; put a pattern with dots in quotes",
    ALL + "'lm_head.weight' = 'fp16'": 'draft.layers."lm_head.weight" ends in .weight, which '
    "patterns leave out",
}


@pytest.mark.parametrize("addition", LAYERS)
def test_layers_belong_to_mixed_precision_and_cover_everything(addition: str) -> None:
    assert mistakes(MINIMAL + addition) == [LAYERS[addition]]


def test_all_mistakes_of_a_table_of_layers_are_reported_at_once() -> None:
    table = "'a.weight' = 'fp16'\nmodel.norm = 'fp16'\nlm_head = 'int4'\n"
    assert [line.split()[0] for line in mistakes(MINIMAL + ALL + table)] == [
        'draft.layers."a.weight"',
        "draft.layers.model",
        "draft.layers.lm_head",
    ]


def test_layers_keep_the_order_of_the_file() -> None:
    recipe = load(
        MINIMAL + "[draft]\nprecision = 'mixed'\noutlier_threshold = 6\nactivations = 'static'\n"
        "[draft.layers]\n'*' = 'int8'\nlm_head = 'bf16'\n'*.mlp.down_proj' = 'fp32'\n"
    )
    assert recipe.draft is not None
    assert recipe.draft.layers == (("*", "int8"), ("lm_head", "bf16"), ("*.mlp.down_proj", "fp32"))
    assert recipe.draft.outlier_threshold == 6.0
    assert recipe.draft.activations == "static"


FIGURE = "[[figures]]\nname = 'speed-up'\nvalue = 2\nunit = 'x'\nkind = "
FIGURES = {
    FIGURE
    + "'measured'": "figures[0].command is missing; a measured figure needs the command that "
    "measured it",
    FIGURE + "'guessed'": 'figures[0].kind is "guessed"; it should be "measured" or "expected"',
    FIGURE + "'expected'\nnotes = ''": "figures[0].notes is unknown; did you mean note?",
    FIGURE + "'expected'\nvalu = ''": "figures[0].valu is unknown; did you mean value?",
    "[[figures]]\nname = 'a'\nunit = ''\nkind = 'expected'": "figures[0].value is missing; a "
    "figure needs name, value, unit and kind",
    "[figures]\na = 1": 'figures is {"a": 1}; it should be a list',
}


@pytest.mark.parametrize("addition", FIGURES)
def test_figure_is_whole_and_a_measured_one_says_how(addition: str) -> None:
    assert mistakes(MINIMAL + addition) == [FIGURES[addition]]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (
            "./smol.gguf",
            "names {folder}/smol.gguf, which is no file or folder; did you mean smoll.gguf?",
        ),
        (
            "smol.gguf",
            "names {folder}/smol.gguf, which is no file or folder; did you mean smoll.gguf?",
        ),
        ("gpt2", "names {folder}/gpt2, which is no file or folder; a hub id has the form ORG/NAME"),
        (
            "../none/x",
            "names {folder}/../none/x, which is no file or folder; a hub id has the form ORG/NAME",
        ),
        ("/none/x", "names /none/x, which is no file or folder; a hub id has the form ORG/NAME"),
        ("hf:gpt2", "is hf:gpt2; it should be hf:ORG/NAME or hf:ORG/NAME@REVISION"),
        ("pypi:a!b", "is pypi:a!b; it should be pypi:NAME==VERSION!path/in/wheel.gguf"),
    ],
)
def test_unknown_model_is_named_with_the_nearest(source: str, complaint: str, folder: Path) -> None:
    (folder / "smoll.gguf").touch()
    (line,) = mistakes(f'name = "x"\ntarget.source = "{source}"')
    assert line == f"target.source {complaint.format(folder=folder)}"


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


def test_a_key_two_values_and_a_model_are_reported_at_once(folder: Path) -> None:
    lines = mistakes(
        'name = "x"\n[target]\nsource = "./none.gguf"\nprecison = "fp16"\n'
        '[draft]\nprecision = "int4"\n[context]\nlength = 100\n'
    )
    assert lines == [
        f"target.source names {folder / 'none.gguf'}, which is no file or folder; a hub id has the "
        "form ORG/NAME",
        "target.precison is unknown; did you mean precision?",
        'draft.precision is "int4"; did you mean int8?',
        "context.length is 100; it should be a multiple of 32",
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
