"""A tiny model on disk and the artifact built of it, by the same path as a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from speccompile.compiler.build import build
from speccompile.compiler.execute import Observer
from speccompile.compiler.recipe import load_recipe
from tests.building import Builder

_RECIPE = """
name = "tiny"
[target]
source = "{source}"
[draft]
precision = "int8"
[context]
length = 256
[validate]
tokens = 12
"""

_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_model(tmp_path_factory.mktemp("model"), seed=0, tied=True)


@pytest.fixture(scope="session")
def other_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the same tokenizer that agrees with the first only by chance.

    Its head is its own: one tied to random embeddings mostly repeats the last token, as the first
    model does.
    """
    return _write_model(tmp_path_factory.mktemp("other"), seed=1, tied=False)


@pytest.fixture(scope="session")
def recipe_file(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(_RECIPE.format(source=model_folder), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def artifact(recipe_file: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built artifact; not to be changed: copy it first."""
    destination = tmp_path_factory.mktemp("artifacts") / "tiny"
    return build(load_recipe(str(recipe_file)), destination, cache=cache, observer=Observer()).path


@pytest.fixture(scope="session")
def build_of(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Builds recipes given as tables, in seconds; see `Builder`."""
    return Builder(tmp_path_factory.mktemp("builds"))


def _write_model(folder: Path, *, seed: int, tied: bool) -> Path:
    """A Hugging Face folder: a random Llama of 2 layers and a byte-level tokenizer of 512."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([Path(__file__).read_text(encoding="utf-8")] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}', encoding="utf-8")
    (folder / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")
    return folder
