from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.huggingface import HuggingFaceCheckpoint
from tests.families import TINY, Tiny, tiny

Weights = dict[str, NDArray[np.float32]]
WriteFolder = Callable[..., Path]


def open_folder(folder: Path) -> HuggingFaceCheckpoint:
    return HuggingFaceCheckpoint(folder, source="here")


def save(model: Tiny, folder: Path) -> Path:
    model.model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(Tokenizer(BPE()).to_str())
    return folder


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("max_shard_size", ["1GB", "50KB"])
def test_tensors_are_those_saved(
    write_folder: WriteFolder, weights: Weights, dtype: torch.dtype, max_shard_size: str
) -> None:
    folder = write_folder(dtype, max_shard_size)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (max_shard_size == "50KB")
    checkpoint = open_folder(folder)
    for name, expected in weights.items():
        found = checkpoint.tensor(name)
        assert found.dtype == np.float32
        assert found.flags.writeable
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_writing_to_a_tensor_leaves_the_file(write_folder: WriteFolder) -> None:
    folder = write_folder()
    before = (folder / "model.safetensors").read_bytes()
    open_folder(folder).tensor("lm_head.weight")[:] = 0
    assert (folder / "model.safetensors").read_bytes() == before


def test_config(write_folder: WriteFolder, config: DecoderConfig) -> None:
    assert open_folder(write_folder()).config == config


def test_provenance_of_one_file(write_folder: WriteFolder) -> None:
    folder = write_folder()
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# Tiny\n")
    provenance = HuggingFaceCheckpoint(folder, source="hf:a/b", revision="abc").provenance
    expected = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert (provenance.source, provenance.revision) == ("hf:a/b", "abc")
    assert provenance.sha256 == expected
    assert provenance.license == "apache-2.0"


def test_provenance_of_shards(write_folder: WriteFolder) -> None:
    folder = write_folder(max_shard_size="50KB")
    lines = sorted(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in folder.glob("*.safetensors")
    )
    provenance = open_folder(folder).provenance
    assert provenance.sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert provenance.license is None


@pytest.mark.parametrize(
    "card",
    ["# Tiny\nlicense: mit\n", "---\na: b\n---\nlicense: mit\n", "---\nlicense:\n- mit\n---\n"],
)
def test_license_is_only_what_the_card_declares(write_folder: WriteFolder, card: str) -> None:
    folder = write_folder()
    (folder / "README.md").write_text(card)
    assert open_folder(folder).provenance.license is None


def test_wrong_sha256(write_folder: WriteFolder) -> None:
    with pytest.raises(SourceError, match=r"^here: .* but 0{64} is expected"):
        HuggingFaceCheckpoint(write_folder(), source="here", sha256="0" * 64)


def test_not_a_model_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"config\.json: no such file"):
        open_folder(tmp_path)


@pytest.mark.parametrize("contents", ["{", "[]"])
def test_malformed_config(write_folder: WriteFolder, contents: str) -> None:
    folder = write_folder()
    (folder / "config.json").write_text(contents)
    with pytest.raises(SourceError, match=r"config\.json: "):
        open_folder(folder)


def test_code_in_the_folder_is_refused_and_never_run(write_folder: WriteFolder) -> None:
    folder = write_folder()
    code = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()"
    for name in ("modeling.py", "modeling_llama.py", "tokenizer.py", "__init__.py"):
        (folder / name).write_text(code)
    for named in ("modeling.Evil", "modeling_llama.LlamaForCausalLM"):
        change_config(folder, auto_map={"AutoModelForCausalLM": named})
        with pytest.raises(SourceError, match=r"config\.json: auto_map asks to run Python"):
            open_folder(folder)
    change_config(folder, auto_map=None)
    open_folder(folder).tensor("lm_head.weight")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_pickle_under_a_harmless_name_is_refused_and_never_run(
    write_folder: WriteFolder, name: str
) -> None:
    folder = write_folder()
    (folder / name).write_bytes(pickle.dumps(_Touches(folder / "ran")))
    with pytest.raises(SourceError, match=rf"{name}: not readable as "):
        open_folder(folder)
    assert not (folder / "ran").exists()


class _Touches:
    """Unpickled, it would create a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self._path,)


def test_code_that_published_phi3_models_name_is_not_needed(tmp_path: Path) -> None:
    folder = save(tiny("phi3"), tmp_path)
    named = {
        "AutoConfig": "configuration_phi3.Phi3Config",
        "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
        "AutoTokenizer": "Xenova/gpt-4o",
    }
    change_config(folder, auto_map=named)
    assert open_folder(folder).config == tiny("phi3").config
    change_config(folder, auto_map=named | {"AutoModelForCausalLM": "modeling_phi3.Phi3Other"})
    with pytest.raises(SourceError, match="auto_map asks to run Python"):
        open_folder(folder)


@pytest.mark.parametrize("name", TINY)
def test_every_family(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    checkpoint = open_folder(save(model, tmp_path))
    assert checkpoint.config == model.config
    for tensor in tensor_shapes(model.config):
        np.testing.assert_array_equal(checkpoint.tensor(tensor), model.read(tensor), tensor)


def test_the_first_files_of_gpt2(tmp_path: Path) -> None:
    """Its names lack their first part, and its causal masks are stored too."""
    model = tiny("gpt2")
    folder = save(model, tmp_path)
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 96, 96)
    save_file(tensors, path)
    checkpoint = open_folder(folder)
    for tensor in tensor_shapes(model.config):
        np.testing.assert_array_equal(checkpoint.tensor(tensor), model.read(tensor), tensor)


def test_a_tensor_that_would_be_ignored(write_folder: WriteFolder) -> None:
    folder = write_folder()
    path = folder / "model.safetensors"
    bias = {"model.layers.0.self_attn.q_proj.bias": torch.ones(64)}
    save_file(load_file(path) | bias, path)
    with pytest.raises(SourceError, match=r"q_proj\.bias has no place in the llama architecture"):
        open_folder(folder)


def test_a_fused_matrix_of_another_shape(tmp_path: Path) -> None:
    folder = save(tiny("phi3"), tmp_path)
    change_config(folder, num_key_value_heads=1)
    with pytest.raises(SourceError, match=r"qkv_proj\.weight has 128 rows, but .* implies 96"):
        open_folder(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights(write_folder: WriteFolder, name: str) -> None:
    folder = write_folder()
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(SourceError, match=f"{name} is a pickle"):
        open_folder(folder)


def test_no_weights(write_folder: WriteFolder) -> None:
    folder = write_folder()
    (folder / "model.safetensors").unlink()
    with pytest.raises(SourceError, match=r"has no model\.safetensors"):
        open_folder(folder)


def test_missing_shard(write_folder: WriteFolder) -> None:
    folder = write_folder(max_shard_size="50KB")
    shard = min(folder.glob("*.safetensors"))
    shard.unlink()
    with pytest.raises(SourceError, match=f"names {shard.name}, which is not in the folder"):
        open_folder(folder)


def test_shard_outside_the_folder(write_folder: WriteFolder) -> None:
    folder = write_folder(max_shard_size="50KB")
    outside = folder.parent / "outside.safetensors"
    min(folder.glob("*.safetensors")).rename(outside)
    index = {"weight_map": {"lm_head.weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(SourceError, match=r"names \.\./outside"):
        open_folder(folder)


def test_corrupt_weights(write_folder: WriteFolder) -> None:
    folder = write_folder()
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(SourceError, match=r"model\.safetensors: not readable as safetensors"):
        open_folder(folder)


def test_missing_tensor(write_folder: WriteFolder) -> None:
    folder = write_folder()
    change_config(folder, num_hidden_layers=3)
    with pytest.raises(SourceError, match=r"tiny: has no tensor model\.layers\.2\.mlp\.up_proj"):
        open_folder(folder).tensor("model.layers.2.mlp.up_proj.weight")


def test_tensor_of_another_shape(write_folder: WriteFolder) -> None:
    folder = write_folder()
    change_config(folder, vocab_size=300)
    with pytest.raises(SourceError, match=r"lm_head.weight has shape \[512, 64\].*\[300, 64\]"):
        open_folder(folder).tensor("lm_head.weight")


def test_stored_type_without_exact_conversion(write_folder: WriteFolder) -> None:
    folder = write_folder()
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.int8)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(SourceError, match=r"lm_head\.weight is stored as I8.*BF16"):
        open_folder(folder).tensor("lm_head.weight")
