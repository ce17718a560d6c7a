"""A draft made of a target by the command, and the artifact that it drafts in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from speccompile.cli.main import cli
from speccompile.compiler.drafts.folder import DRAFT_FILE
from speccompile.compiler.recipe import load_recipe
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.engines.restricted import read_token_ids
from tests.building import build_here

_DISTIL = """
[distil]
layers = [1]
prompts = 24
length = 12
tokens = 4000
vocabulary = 400
"""


@pytest.fixture(scope="module")
def draft(recipe_file: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distil(recipe_file, tmp_path_factory.mktemp("drafts"), cache)


def distil(recipe_file: Path, folder: Path, cache: Path, more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    recipe, output = folder / "tiny.toml", folder / "tiny"
    recipe.write_text(recipe_file.read_text("utf-8") + _DISTIL + more, encoding="utf-8")
    how = ["draft", "distil", str(recipe), "-o", str(output), "--cache", str(cache)]
    stopped = CliRunner().invoke(cli, [*how, "--minutes", "0"])
    assert "Not all is learned yet" in stopped.stdout
    done = CliRunner().invoke(cli, how)
    assert done.exit_code == 0, done.output
    printed = done.stdout.replace("\n", "")  # long paths are wrapped
    assert "layers 1, after" in printed
    assert "tokens a round" in done.stdout
    assert f'draft.source = "{output}"' in printed
    return output


def test_it_says_how_it_was_trained(draft: Path) -> None:
    training = json.loads((draft / DRAFT_FILE).read_text("utf-8"))["training"]
    assert training["layers"] == [1]
    assert training["tokens"] >= 4000
    assert training["responses"] == 24
    assert {*training["held_out"]} == {*training["held_out_int8"]} == {"chat", "code"}
    assert training["curve"][-1]["tokens"] >= training["curve"][0]["tokens"]


@pytest.mark.parametrize("works_in", ["target", "own"])
def test_it_drafts_for_its_target(
    works_in: str, draft: Path, recipe_file: Path, cache: Path, tmp_path: Path
) -> None:
    if works_in == "own":
        draft = distil(recipe_file, tmp_path / "own", cache, f'cache = "{works_in}"\n')
    text = recipe_file.read_text("utf-8")
    text = text.replace("[draft]", f'[draft]\nsource = "{draft}"\nvocabulary = 400')
    recipe = tmp_path / "drafted.toml"
    recipe.write_text(text, encoding="utf-8")
    built = build_here(load_recipe(str(recipe)), tmp_path / "drafted", cache=cache)
    artifact = open_artifact(built.path)  # a build proves that it is lossless
    engine = artifact.manifest.engines["draft"]
    assert engine.shares_cache == (works_in == "target")
    assert engine.token_ids is not None
    assert len(read_token_ids(artifact.path(engine.token_ids), 512)) == 400


def test_it_is_evaluated_beside_a_built_one(
    draft: Path, artifact: Path, cache: Path, tmp_path: Path
) -> None:
    """The artifact's draft is its target in INT8; the distilled one knows little."""
    prompts, figures = tmp_path / "mine.jsonl", tmp_path / "figures.json"
    texts = [{"prompt": f"Say {word}.", "category": word} for word in ("one", "two", "one", "two")]
    prompts.write_text("\n".join(map(json.dumps, texts)), encoding="utf-8")
    how = ["draft", "evaluate", str(draft), str(artifact), "--prompts", str(prompts)]
    options = ["-n", "16", "--cache", str(cache), "--json", str(figures)]
    done = CliRunner().invoke(cli, [*how, *options])
    assert done.exit_code == 0, done.output
    assert "predicted by weights" in done.stdout
    document = json.loads(figures.read_text("utf-8"))
    distilled, built = document["drafts"]
    assert set(distilled["domains"]) == set(built["domains"]) == {"one", "two", "all"}
    assert distilled["training"]["held_out_int8"]
    assert distilled["measured"] is None
    assert built["domains"]["all"]["positions"][0] > 0.8
    assert built["domains"]["all"]["overlap"] > 0.9
    assert built["measured"]["speedups"]["all"]["median"] > 0
    again = CliRunner().invoke(cli, [*how, *options])  # of answers that are kept
    assert json.loads(figures.read_text("utf-8"))["drafts"][0] == distilled, again.output


def test_what_does_not_fit_is_refused(draft: Path, artifact: Path, cache: Path) -> None:
    for path in (draft, artifact):
        how = ["draft", "evaluate", str(path), "--cache", str(cache), "-n", "9999"]
        failed = CliRunner().invoke(cli, how)
        assert "prompt 1 has" in str(failed.exception)
        assert "lower --tokens" in str(failed.exception)


def test_a_search_tells_which_shape_it_should_have(
    recipe_file: Path, artifact: Path, cache: Path, tmp_path: Path
) -> None:
    recipe, figures = tmp_path / "tiny.toml", tmp_path / "found.json"
    recipe.write_text(recipe_file.read_text("utf-8") + _DISTIL, encoding="utf-8")
    how = ["draft", "search", str(recipe), "--cache", str(cache), "--tokens", "1000"]
    how += ["--count", "1", "--count", "2", "--vocabulary", "400", "--json", str(figures)]
    stopped = CliRunner().invoke(cli, [*how, "--minutes", "0"])
    assert "Not all is tried yet" in stopped.stdout, stopped.output
    assert json.loads(figures.read_text("utf-8"))["best"] is None
    done = CliRunner().invoke(cli, how)
    assert done.exit_code == 0, done.output
    assert "by the weights it reads" in " ".join(done.stdout.split())
    document = json.loads(figures.read_text("utf-8"))
    [rung] = document["rungs"]
    shapes = [trial["shape"] for trial in rung["trials"]]
    assert sorted(shape["layers"] for shape in shapes) == [[0], [0, 1], [1]]
    assert document["best"]["shape"] == shapes[0]
    lines = done.stdout.split("For the recipe:")[1].strip()
    assert lines == f"[distil]\nlayers = {shapes[0]['layers']}\nvocabulary = 400"
    again = CliRunner().invoke(cli, [*how, "--measured", str(artifact)])
    measured = json.loads(figures.read_text("utf-8"))["rungs"][0]["trials"]
    assert "in proportion to a measured one" in " ".join(again.stdout.split()), again.output
    assert all(trial["prediction"]["tokens_per_second"] > 0 for trial in measured)
    for trial in measured:  # what was learned is known
        assert trial["acceptance"] in [each["acceptance"] for each in rung["trials"]]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--layers", "2"), "--layers has 2, but the target's are 0 to 1"),
        (("--count", "3"), "--count is 3, but the target has 2 layers"),
        (("--vocabulary", "9"), "vocabulary is 9, but"),
    ],
)
def test_a_space_that_does_not_fit_the_target_is_refused_before_it_is_asked(
    option: tuple[str, str], message: str, recipe_file: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(recipe_file.read_text("utf-8") + _DISTIL, encoding="utf-8")
    how = ["draft", "search", str(recipe), "--cache", str(tmp_path), *option]
    refused = CliRunner().invoke(cli, how)
    assert refused.exit_code != 0
    assert message in str(refused.exception)
    assert not (tmp_path / "drafts").exists()


def test_a_layer_that_the_target_lacks_is_refused(recipe_file: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.toml"
    text = recipe_file.read_text("utf-8") + _DISTIL.replace("layers = [1]", "layers = [2]")
    recipe.write_text(text, encoding="utf-8")
    how = ["draft", "distil", str(recipe), "-o", str(tmp_path / "x"), "--cache", str(tmp_path)]
    refused = CliRunner().invoke(cli, how)
    assert "distil.layers has 2, but the target's are 0 to 1" in str(refused.exception)
