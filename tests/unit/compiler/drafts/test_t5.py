"""A pair that learns to write words as they are spoken, from a dictionary that is easy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tokenizers import Tokenizer

from speccompile.cli.main import cli
from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.drafts.pieces import learn_pieces
from speccompile.compiler.drafts.t5 import PairObserver, Role, TrainedPair, train_pair
from speccompile.compiler.drafts.t5_folder import trained_digest
from speccompile.compiler.drafts.training import Trainer
from speccompile.compiler.drafts.translator import Translator
from speccompile.compiler.pipeline import plan
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.compiler.sources.huggingface import HuggingFaceCheckpoint
from speccompile.compiler.stage import keys
from speccompile.runtime.errors import SpeccompileError
from tests.dictionaries import write_dictionary
from tests.t5_models import TinyT5

RECIPE = """
name = "tiny"
[target]
source = "tiny/target"
[draft]
source = "tiny/draft"
[engine]
cpu = ["onnxruntime"]
[context]
length = 64
[t5]
source = "words.dict"
vocabulary = 96
sentences = 600
answers = 200
[t5.target]
width = 32
inner = 64
encoder_layers = 1
layers = 2
tokens = {tokens}
rate = 5e-3
[t5.draft]
width = 32
inner = 48
tokens = 4_000
rate = 5e-3
"""


def write_recipe(folder: Path, *, tokens: int = 40_000) -> Recipe:
    write_dictionary(folder / "words.dict")
    path = folder / "tiny.toml"
    path.write_text(RECIPE.format(tokens=tokens), encoding="utf-8")
    return load_recipe(str(path))


def train(recipe: Recipe, cache: Path, seconds: float | None = None) -> TrainedPair:
    return train_pair(recipe, cache=cache, seconds=seconds, observer=PairObserver())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t5")


@pytest.fixture(scope="module")
def pair(root: Path) -> TrainedPair:
    return train(write_recipe(root), root / "cache")


def test_both_learn(pair: TrainedPair) -> None:
    """Untaught ones are right once in 96 tokens, as many as there are pieces."""
    training = json.loads((pair.folders["target"] / "training.json").read_text(encoding="utf-8"))
    losses = [point["loss"] for point in training["curve"]]
    assert np.mean(losses[-4:]) < np.mean(losses[:4]) - 1.0
    assert pair.done
    assert pair.tokens > 0.1
    assert pair.acceptance is not None
    assert pair.acceptance.positions[0] > 0.1


def test_folders_are_what_the_compiler_and_transformers_read(pair: TrainedPair) -> None:
    from transformers import T5ForConditionalGeneration

    for role, folder in pair.folders.items():
        checkpoint = HuggingFaceCheckpoint(folder, source=role)
        config = checkpoint.config
        parameters = sum(checkpoint.tensor(name).size for name in tensor_shapes(config))
        assert parameters == pair.parameters[role]
        oracle: Any = T5ForConditionalGeneration.from_pretrained(folder, local_files_only=True)
        oracle.eval()
        nobody: Any = None  # its family is not asked for
        tokenizer = Tokenizer.from_str(checkpoint.tokenizer.tokenizer_json)
        source = tokenizer.encode("bado fike").ids
        assert source[-1] == checkpoint.tokenizer.eos_token_ids[0] == 1
        translator = Translator.over(
            config,
            {name: torch.from_numpy(checkpoint.tensor(name)) for name in tensor_shapes(config)},
        )
        with torch.inference_mode():
            read = translator.model.read(torch.tensor([source]), torch.ones(1, len(source)).bool())
            rows = translator.model.logits(translator.model.answer(torch.tensor([[0, 5, 9]]), read))
        expected = TinyT5(oracle, nobody, config).logits(source, [0, 5, 9])
        assert np.abs(rows[0].numpy() - expected).max() / np.abs(expected).max() < 1e-5


def test_what_is_tested_is_a_list_of_prompts(pair: TrainedPair) -> None:
    lines = pair.prompts.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 200
    assert {len(line.split()) for line in lines} == set(range(4, 9))


def test_the_same_again_is_found_and_gives_the_same(root: Path, pair: TrainedPair) -> None:
    class Watching(PairObserver):
        def training(self, role: Role, trainer: Trainer) -> None:
            raise AssertionError(f"{role} learns again")

    before = {role: trained_digest(folder) for role, folder in pair.folders.items()}
    recipe = write_recipe(root)
    again = train_pair(recipe, cache=root / "cache", seconds=None, observer=Watching())
    assert again == pair
    assert {role: trained_digest(folder) for role, folder in again.folders.items()} == before


def test_the_command_tells_what_came_of_it(root: Path, pair: TrainedPair) -> None:
    write_recipe(root)
    arguments = ["draft", "t5", str(root / "tiny.toml"), "--cache", str(root / "cache")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    for role, folder in pair.folders.items():
        assert f"{folder}: {pair.parameters[role]:,} parameters" in text
    assert f"it writes {pair.words:.0%} right, and of their tokens {pair.tokens:.0%}" in text
    assert pair.acceptance is not None
    assert f"stand {pair.acceptance.positions[0]:.2f} " in text
    assert f"{pair.acceptance.tokens_a_round:.2f} tokens a round of 4 drafted" in text
    assert text.endswith(f"Build it: speccompile build {root / 'tiny.toml'}")


def test_stopped_in_time_there_is_no_draft_and_it_goes_on_to_the_same_curve(
    tmp_path: Path,
) -> None:
    def curve(pair: TrainedPair, role: str) -> list[tuple[int, float]]:
        training = json.loads((pair.folders[role] / "training.json").read_text(encoding="utf-8"))
        return [(point["tokens"], point["loss"]) for point in training["curve"]]

    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = train(write_recipe(tmp_path / "whole", tokens=6_000), tmp_path / "cache")
    # The vocabulary is another one each time it is learned.
    [kept] = (tmp_path / "cache" / "drafts").iterdir()
    other = tmp_path / "other" / "drafts" / kept.name
    other.mkdir(parents=True)
    (other / "tokenizer.json").write_bytes((kept / "tokenizer.json").read_bytes())
    recipe = write_recipe(tmp_path / "parts", tokens=6_000)
    part = train(recipe, tmp_path / "other", seconds=0.0)
    assert not part.done
    assert part.acceptance is None
    assert not part.folders["draft"].exists()
    part = train(recipe, tmp_path / "other")
    assert part.done
    for role in ("target", "draft"):
        assert curve(part, role) == curve(whole, role)


def test_a_build_asks_for_the_training(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    message = (
        r"\A\S+tiny/target: no such folder.*`speccompile draft t5 \S+tiny.toml` trains the pair\Z"
    )
    with pytest.raises(SpeccompileError, match=message):
        plan(recipe)


def test_another_training_is_another_model_to_a_build(root: Path, pair: TrainedPair) -> None:
    recipe = write_recipe(root)
    before = keys(plan(recipe))
    assert keys(plan(recipe)) == before
    weights = pair.folders["draft"] / "model.safetensors"
    content = weights.read_bytes()
    try:
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        after = keys(plan(recipe))
    finally:
        weights.write_bytes(content)
    assert after["load target"] == before["load target"]
    assert after["load draft"] != before["load draft"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"\[t5\].*", "", r"tiny: has no table \[t5\]"),
        ("tiny/draft", "target", "draft.source is target, but the pair"),
        ("tiny/draft", "hf:a/b", "draft.source is hf:a/b, but the pair"),
        ("inner = 64", "heads = 5", "t5.target.heads is 5, which does"),
        (r"words\.dict", "no/words", "no/words: cannot be read"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    write_recipe(tmp_path)
    path = tmp_path / "tiny.toml"
    text = re.sub(old, new, path.read_text(encoding="utf-8"), flags=re.DOTALL)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpeccompileError, match=rf"\A.*{message}.*\Z"):
        train(load_recipe(str(path)), tmp_path)


def test_a_vocabulary_without_room_for_the_characters_is_refused() -> None:
    texts = ["".join(map(chr, range(0x4E00 + at, 0x4E00 + at + 9))) for at in range(0, 900, 9)]
    with pytest.raises(
        SpeccompileError, match=r"\At5.vocabulary is 96, of which no.*all chars.*raise it\Z"
    ):
        learn_pieces(texts, 96)
    assert learn_pieces(["a b ab ba", "ab aab"] * 9, 96).encode("ab").ids[-1] == 1
