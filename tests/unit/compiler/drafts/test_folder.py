from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, is_norm, of_layers, tensor_shapes
from speccompile.compiler.drafts.folder import (
    TABLES,
    DraftCheckpoint,
    in_int8,
    shared_layers,
    write_draft,
)
from speccompile.compiler.quantize import TensorReader, write_weights
from speccompile.compiler.sources.checkpoint import (
    Checkpoint,
    Provenance,
    SourceError,
    TokenizerFiles,
)
from speccompile.compiler.weights import SCALE_SUFFIX, Weights
from speccompile.runtime.errors import SpeccompileError
from tests.families import tiny

MODEL = tiny("llama")
PROVENANCE = Provenance("pypi:some==1!model.gguf", None, "0" * 64, "MIT")
COUNTS = np.arange(512, dtype=np.int64)
FILES = ["draft.json", "weights.safetensors"]


class Target:
    """What a draft takes of its target."""

    config = MODEL.config
    provenance = PROVENANCE
    tokenizer = TokenizerFiles("{}", None, 1, (2,), "<s>", "</s>")

    def tensor(self, name: str) -> NDArray[np.float32]:
        assert name in TABLES
        return MODEL.read(name)


def write(
    folder: Path,
    *,
    int8: bool = True,
    read: TensorReader = MODEL.read,
    source: str = PROVENANCE.source,
    config: DecoderConfig = MODEL.config,
    layers: Sequence[int] = (),
) -> None:
    write_draft(
        folder,
        config=config,
        read=read,
        int8=int8,
        target=replace(PROVENANCE, source=source),
        token_counts=COUNTS,
        training={"tokens": 7},
        kind="distilled",
        layers=layers,
    )


def reopen(
    folder: Path, *, sha256: str | None = None, opened: list[str] | None = None
) -> DraftCheckpoint:
    def open_target(source: str, sha256: str) -> Checkpoint:
        assert sha256 == PROVENANCE.sha256
        if opened is not None:
            opened.append(source)
        return Target()

    return DraftCheckpoint(folder, source="drafts/x", sha256=sha256, open_target=open_target)


def edit(folder: Path, **changes: object) -> None:
    file = folder / "draft.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("int8", [True, False])
def test_a_draft_is_read_as_it_was_written(tmp_path: Path, int8: bool) -> None:
    write(tmp_path, int8=int8)
    draft = reopen(tmp_path)
    assert draft.config == MODEL.config
    assert draft.training == {"tokens": 7}
    assert draft.tokenizer == Target.tokenizer
    assert (draft.provenance.source, draft.provenance.license) == ("drafts/x", "MIT")
    assert draft.token_counts.tolist() == COUNTS.tolist()
    for name in tensor_shapes(MODEL.config):
        found, expected = draft.tensor(name), MODEL.read(name)
        near = 0.0 if name in TABLES or expected.ndim == 1 else 0.01 if int8 else 1e-3
        assert np.abs(found - expected).max() <= near * np.abs(expected).max()


def test_what_int8_makes_of_a_tensor_is_known_before(tmp_path: Path) -> None:
    write(tmp_path)
    draft = reopen(tmp_path)
    for name in tensor_shapes(MODEL.config):
        if name not in TABLES:
            np.testing.assert_array_equal(draft.tensor(name), in_int8(MODEL.read(name)))


def test_the_tables_are_not_in_the_file(tmp_path: Path) -> None:
    write(tmp_path)
    own = sum(int(np.prod(s)) for n, s in tensor_shapes(MODEL.config).items() if n not in TABLES)
    assert (tmp_path / "weights.safetensors").stat().st_size < 1.6 * own


def test_int8_again_is_the_same_int8(tmp_path: Path) -> None:
    """The draft's role in a build, of `precision = "int8"`, is what was trained."""
    draft, built = tmp_path / "draft", tmp_path / "built"
    built.mkdir()
    write(draft)
    write_weights(MODEL.config, reopen(draft).tensor, "int8", built)
    first, again = Weights(draft), Weights(built)
    matrices = [name.removesuffix(SCALE_SUFFIX) for name in first if name.endswith(SCALE_SUFFIX)]
    assert len(matrices) == 7 * MODEL.config.layers
    for name in matrices:
        np.testing.assert_array_equal(first.array(name), again.array(name))
        scale = name + SCALE_SUFFIX
        np.testing.assert_allclose(first.dense(scale), again.dense(scale), rtol=1e-6)


def test_what_fp16_cannot_hold_stays_fp32(tmp_path: Path) -> None:
    write(tmp_path, int8=False, read=lambda name: MODEL.read(name) * np.float32(1e6))
    name = "model.layers.0.mlp.up_proj.weight"
    np.testing.assert_array_equal(reopen(tmp_path).tensor(name), MODEL.read(name) * np.float32(1e6))


def test_what_is_read_can_be_written_to(tmp_path: Path) -> None:
    write(tmp_path)
    draft = reopen(tmp_path)
    for name in ("model.norm.weight", "model.layers.1.mlp.up_proj.weight"):
        draft.tensor(name)[:] = 0.0
        assert draft.tensor(name).any()


def test_it_names_what_it_borrows(tmp_path: Path) -> None:
    write(tmp_path)
    description = json.loads((tmp_path / "draft.json").read_text())
    assert description["kind"] == "distilled"
    assert description["borrowed"] == ["model.embed_tokens.weight", "lm_head.weight"]


def test_a_new_one_replaces_the_old_and_no_other_file(tmp_path: Path) -> None:
    write(tmp_path, int8=False)
    (tmp_path / "README.md").write_text("a card")
    write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", *FILES]
    reopen(tmp_path)


def test_the_old_one_stays_where_the_new_one_fails(tmp_path: Path) -> None:
    write(tmp_path)
    before = [(tmp_path / name).read_bytes() for name in FILES]

    def diverged(name: str) -> NDArray[np.float32]:
        return MODEL.read(name) * np.float32(np.nan if "layers.1" in name else 1)

    with pytest.raises(SpeccompileError, match=r"layers\.1\..* not finite; train the draft again"):
        write(tmp_path, read=diverged)
    assert [(tmp_path / name).read_bytes() for name in FILES] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(
        SpeccompileError, match=r"file: the draft cannot be written \(File exists\)"
    ):
        write(file)


def test_draft_and_target_can_be_moved_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "models").mkdir(parents=True)
    (here / "models/x.gguf").touch()
    monkeypatch.chdir(here)
    for source in ("models/x.gguf", str(here / "models/x.gguf")):
        write(here / "drafts/x", source=source)
        opened: list[str] = []
        shutil.copytree(here, there, dirs_exist_ok=True)
        reopen(there / "drafts/x", opened=opened)
        assert [Path(path).resolve() for path in opened] == [there / "models/x.gguf"]


@pytest.mark.parametrize("source", [PROVENANCE.source, "hf:org/name@v1", "org/name", "~/x.gguf"])
def test_other_sources_stay_as_they_are(tmp_path: Path, source: str) -> None:
    write(tmp_path, source=source)
    opened: list[str] = []
    reopen(tmp_path, opened=opened)
    assert opened == [source]


def test_a_target_that_cannot_be_opened_is_named_with_the_draft(tmp_path: Path) -> None:
    write(tmp_path)

    def changed(source: str, sha256: str) -> Checkpoint:
        raise SourceError(f"{source}: has changed")

    with pytest.raises(SourceError, match=r"draft\.json: the draft's target .*!model\.gguf: has c"):
        DraftCheckpoint(tmp_path, source="drafts/x", open_target=changed)


def test_weights_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    weights = tmp_path / "weights.safetensors"
    content = weights.read_bytes()
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-1], content[:4], b""):
        weights.write_bytes(damaged)
        with pytest.raises(SourceError, match=r"has SHA-256 .* copy the folder again"):
            reopen(tmp_path)
    weights.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        reopen(tmp_path)


def test_a_pin_is_kept(tmp_path: Path) -> None:
    write(tmp_path)
    reopen(tmp_path, sha256=reopen(tmp_path).provenance.sha256)
    with pytest.raises(SourceError, match=rf"^drafts/x: .* but {'1' * 64} is expected"):
        reopen(tmp_path, sha256="1" * 64)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": 2}, "schema: Input should be 1"),
        ({"kind": "pruned"}, "kind: Input should be 'distilled' or 'shared'"),
        ({"kind": "shared", "layers": [0]}, "Value error, 1 of the target's layers"),
        ({"config": None}, "config: "),
        ({"target": {"source": "x"}}, r"target\."),
    ],
)
def test_a_description_of_another_form_is_refused(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    write(tmp_path)
    edit(tmp_path, **changes)
    with pytest.raises(SourceError, match=rf"draft\.json: no draft .*\({reason}.*; train it again"):
        reopen(tmp_path)


def test_a_description_that_is_cut_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    file = tmp_path / "draft.json"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(SourceError, match=r"draft\.json: no draft .*EOF.*; train it again"):
        reopen(tmp_path)


def test_a_shared_draft_has_norms_alone_and_says_whose_layers_it_has(tmp_path: Path) -> None:
    layers, norm = (1, 0, 1), "model.layers.{}.input_layernorm.weight"
    config = replace(MODEL.config, layer_kinds=(0,) * 3)

    class Whole(Target):
        def tensor(self, name: str) -> NDArray[np.float32]:
            return MODEL.read(name)

    write_draft(
        tmp_path,
        config=config,
        read=lambda name: MODEL.read(of_layers(name, layers)) + 1,
        int8=False,
        target=PROVENANCE,
        token_counts=COUNTS,
        training={},
        kind="shared",
        layers=layers,
    )
    draft = DraftCheckpoint(tmp_path, source="x", open_target=lambda source, sha256: Whole())
    for name in tensor_shapes(config):
        own = float(is_norm(name))
        np.testing.assert_array_equal(
            draft.tensor(name), MODEL.read(of_layers(name, layers)) + np.float32(own)
        )
    np.testing.assert_array_equal(draft.tensor(norm.format(2)), MODEL.read(norm.format(1)) + 1)
    own_bytes = 4 * 64 * (2 * 3 + 1) + 8 * 512  # norms and counts
    assert (tmp_path / "weights.safetensors").stat().st_size < own_bytes + 6_000
    assert shared_layers(str(tmp_path)) == (layers, PROVENANCE.sha256)
    write(tmp_path)
    assert shared_layers(str(tmp_path)) is None
    assert shared_layers("org/name") is None


def test_a_distilled_draft_may_work_in_its_targets_cache(tmp_path: Path) -> None:
    write(tmp_path, layers=(3, 5))
    assert shared_layers(str(tmp_path)) == ((3, 5), PROVENANCE.sha256)
    assert reopen(tmp_path).layers == (3, 5)
    edit(tmp_path, layers=[3])
    with pytest.raises(SourceError, match="1 of the target's layers, but not as many here"):
        reopen(tmp_path)


def test_tensors_of_another_model_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    draft = reopen(tmp_path)
    with pytest.raises(SourceError, match=r"has no tensor model\.layers\.2\.mlp"):
        draft.tensor("model.layers.2.mlp.up_proj.weight")
    content = json.loads((tmp_path / "draft.json").read_text())["config"]
    edit(tmp_path, config=content | {"vocab_size": 500, "intermediate_size": 90})
    draft = reopen(tmp_path)
    with pytest.raises(SourceError, match=r"lm_head.* \[512, 64\], .*implies \[500, 64\]"):
        draft.tensor("lm_head.weight")
    with pytest.raises(SourceError, match=r"up_proj.* \[96, 64\], .*implies \[90, 64\]"):
        draft.tensor("model.layers.0.mlp.up_proj.weight")
