from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.huggingface import HuggingFaceCheckpoint

Weights = dict[str, NDArray[np.float32]]
WriteFolder = Callable[..., Path]


def open_folder(folder: Path) -> HuggingFaceCheckpoint:
    return HuggingFaceCheckpoint(folder, source="here")


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


def test_auto_map(write_folder: WriteFolder) -> None:
    folder = write_folder()
    change_config(folder, auto_map={"AutoModelForCausalLM": "modeling.Evil"})
    (folder / "modeling.py").write_text("raise SystemExit('executed')")
    with pytest.raises(SourceError, match=r"config\.json: auto_map asks to run Python"):
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
    with pytest.raises(SourceError, match=r"lm_head.weight has shape \[261, 64\].*\[300, 64\]"):
        open_folder(folder).tensor("lm_head.weight")


def test_stored_type_without_exact_conversion(write_folder: WriteFolder) -> None:
    folder = write_folder()
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.int8)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(SourceError, match=r"lm_head\.weight is stored as I8.*BF16"):
        open_folder(folder).tensor("lm_head.weight")
