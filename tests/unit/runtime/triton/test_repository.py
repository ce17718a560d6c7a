"""The folder of a model repository: whole or not there, and what Triton's own schema takes."""

from __future__ import annotations

import errno
import shutil
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf import text_format

from speccompile.runtime.artifact import list_files, open_artifact
from speccompile.runtime.errors import ArtifactError, RequestError, SpeccompileError
from speccompile.runtime.options import Options
from speccompile.runtime.triton.repository import write_model
from tests.table_artifact import write_artifact


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_artifact(tmp_path / "tiny")


def schema() -> ModuleType:
    """Triton's own, without the gRPC client that is in one package with it."""
    spec = find_spec("tritonclient")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the package tritonclient, which has Triton's schema")
    path = Path(spec.submodule_search_locations[0]) / "grpc/model_config_pb2.py"
    file = spec_from_file_location("model_config_pb2", path)
    assert file is not None
    assert file.loader is not None
    module = module_from_spec(file)
    file.loader.exec_module(module)
    return module


def test_a_version_is_the_artifact_and_the_model(artifact: Path, tmp_path: Path) -> None:
    written = write_model(artifact, tmp_path / "models")
    assert written == tmp_path / "models/tiny/1"
    assert sorted(path.name for path in written.parent.iterdir()) == ["1", "config.pbtxt"]
    assert sorted(path.name for path in written.iterdir()) == ["artifact", "model.py"]
    copy = open_artifact(written / "artifact")
    assert copy.manifest.identity == open_artifact(artifact).manifest.identity
    assert list_files(written / "artifact") == list_files(artifact)


def test_the_config_is_what_tritons_schema_takes(artifact: Path, tmp_path: Path) -> None:
    schema_of_triton = schema()
    written = write_model(artifact, tmp_path / "models", name="chat")
    text = (written.parent / "config.pbtxt").read_text(encoding="utf-8")
    config = text_format.Parse(text, schema_of_triton.ModelConfig())
    assert (config.name, config.backend, config.max_batch_size) == ("chat", "python", 0)
    assert config.model_transaction_policy.decoupled
    required = [tensor.name for tensor in config.input if not tensor.optional]
    assert required == ["text_input"]
    assert [tensor.name for tensor in config.output][:2] == ["text_output", "finish_reason"]
    assert {name: value.string_value for name, value in config.parameters.items()} == {
        "on": "cpu",
        "threads": "0",
    }
    with pytest.raises(text_format.ParseError):
        text_format.Parse(text.replace("optional", "optionnal"), schema_of_triton.ModelConfig())


def test_the_config_offers_what_the_runtime_has(artifact: Path, tmp_path: Path) -> None:
    schema_of_triton = schema()
    written = write_model(artifact, tmp_path / "models")
    text = (written.parent / "config.pbtxt").read_text(encoding="utf-8")
    config = text_format.Parse(text, schema_of_triton.ModelConfig())
    offered = {tensor.name for tensor in config.input} - {"text_input", "raw", "stream"}
    renamed = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
    offered = {renamed.get(name, name) for name in offered}
    # Outputs have no place for these, and a bias by token is no tensor; the rest changes no output.
    left_out = {"logprobs", "n", "logit_bias", "audited", "draft_length", "rule"}
    assert offered == set(vars(Options())) - left_out


def test_a_further_version_keeps_the_users_config(artifact: Path, tmp_path: Path) -> None:
    first = write_model(artifact, tmp_path / "models")
    config = first.parent / "config.pbtxt"
    config.write_text("# mine\n", encoding="utf-8")
    second = write_model(artifact, tmp_path / "models", version=2)
    assert second.name == "2"
    assert config.read_text(encoding="utf-8") == "# mine\n"


def test_a_version_that_is_there_stays(artifact: Path, tmp_path: Path) -> None:
    written = write_model(artifact, tmp_path / "models")
    (written / "model.py").write_text("# mine\n", encoding="utf-8")
    with pytest.raises(RequestError, match="is there already; choose another --version"):
        write_model(artifact, tmp_path / "models")
    assert (written / "model.py").read_text(encoding="utf-8") == "# mine\n"


@pytest.mark.parametrize("name", ["../chat", "a/b", ".hidden", 'a"', "a b"])
def test_a_name_that_is_no_folders_is_refused(name: str, artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="choose one with --name"):
        write_model(artifact, tmp_path / "models", name=name)
    assert not (tmp_path / "models").exists()


def test_a_damaged_artifact_is_not_exported(artifact: Path, tmp_path: Path) -> None:
    (artifact / "engines/target.onnx").write_bytes(b"tarset")
    with pytest.raises(ArtifactError, match=r"'engines/target[.]onnx' changed"):
        write_model(artifact, tmp_path / "models")
    assert not (tmp_path / "models/tiny/1").exists()
    write_artifact(artifact)
    assert write_model(artifact, tmp_path / "models").exists()


def test_a_full_disk_leaves_no_version(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree = shutil.copytree

    def full(source: Path, destination: Path) -> None:
        copytree(source / "tokenizer", destination / "tokenizer")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", full)
        with pytest.raises(SpeccompileError, match="cannot be written: No space left on device"):
            write_model(artifact, tmp_path / "models")
    model = tmp_path / "models/tiny"
    assert not any(path.name.isdecimal() for path in model.iterdir())
    write_model(artifact, tmp_path / "models")
    assert sorted(path.name for path in model.iterdir()) == ["1", "config.pbtxt"]
