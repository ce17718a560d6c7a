import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from speccompile.runtime import host
from speccompile.runtime.artifact import hash_files, list_files, open_artifact
from speccompile.runtime.errors import ArtifactError, CompatibilityError
from speccompile.runtime.manifest import (
    MAX_MANIFEST_BYTES,
    Defaults,
    EngineInfo,
    FileEntry,
    Manifest,
    ModelInfo,
    Requirements,
)

CONTENTS = {
    "engines/cpu/target.xml": b"<net/>",
    "engines/cpu/target.bin": bytes(range(256)),
    "tokenizer/tokenizer.json": b"{}",
    "reports/empty": b"",
}
MANIFEST = Manifest(
    schema=1,
    name="tiny",
    compiler_version="0.1.0",
    model=ModelInfo(512, 64, 2, 2, 16, 1, (2,)),
    engines={
        "target": EngineInfo(
            *("target", "openvino", "engines/cpu/target.xml", "fp16", "fp32"),
            *(2, 2, 4, 16, 64, 512),
            min_rows=1,
            shares_cache=False,
            cost_ms={1: 1.0},
        )
    },
    defaults=Defaults("ngram", 4),
    requires=Requirements(host.describe().architecture, (), {}),
    provenance={},
    acceptance=(),
    lossless=True,
    files={
        path: FileEntry(sha256(content).hexdigest(), len(content), "engine")
        for path, content in CONTENTS.items()
    },
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    for path, content in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "manifest.json").write_bytes(MANIFEST.to_bytes())
    return folder


def refusal(root: Path, *, check: bool = True) -> str:
    start = time.perf_counter()
    with pytest.raises(ArtifactError) as caught:
        open_artifact(root, check=check)
    assert time.perf_counter() - start < 1
    assert str(caught.value).startswith(str(root))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_artifact_opens_wherever_it_is(root: Path) -> None:
    moved = root.rename(root.with_name("moved"))
    link = root.with_name("current")
    link.symlink_to(moved)
    for folder in (moved, str(moved), link):
        artifact = open_artifact(folder)
        assert artifact.manifest == MANIFEST
        assert artifact.path("tokenizer/tokenizer.json").read_bytes() == b"{}"


def test_only_files_of_the_manifest_have_a_path(root: Path) -> None:
    with pytest.raises(ArtifactError, match=r"has no file '\.\./secret'"):
        open_artifact(root).path("../secret")


def test_what_is_not_an_artifact(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    assert "it is not a folder" in refusal(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    message = refusal(tmp_path / "empty")
    assert "is not a speccompile artifact: it has no manifest.json; build one with" in message


@pytest.mark.parametrize("path", [*CONTENTS, "manifest.json"])
def test_a_flipped_byte(root: Path, path: str) -> None:
    content = bytearray((root / path).read_bytes() or b"\0")
    content[len(content) // 2] ^= 1
    (root / path).write_bytes(content)
    assert path in refusal(root)


@pytest.mark.parametrize("path", [path for path, content in CONTENTS.items() if content])
def test_a_flipped_byte_is_what_hashes_are_for(root: Path, path: str) -> None:
    content = bytes([*CONTENTS[path][:-1], CONTENTS[path][-1] ^ 0x80])
    (root / path).write_bytes(content)
    assert f"the content of '{path}' changed" in refusal(root)
    open_artifact(root, check=False)


@pytest.mark.parametrize("path", [path for path, content in CONTENTS.items() if content])
def test_a_cut_byte_needs_no_hash(root: Path, path: str) -> None:
    (root / path).write_bytes(CONTENTS[path][1:])
    size = len(CONTENTS[path])
    assert f"'{path}' has {size - 1} bytes instead of {size}" in refusal(root, check=False)


@pytest.mark.parametrize("path", CONTENTS)
def test_a_missing_file(root: Path, path: str) -> None:
    (root / path).unlink()
    assert f"'{path}' is missing" in refusal(root, check=False)


@pytest.mark.parametrize(
    "path", [".git/x", "engines/cpu/TARGET.XML", "engines/manifest.json", "x\ny", ".hidden"]
)
def test_an_added_file(root: Path, path: str) -> None:
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_bytes(b"")
    assert f"{path!r} was added" in refusal(root, check=False)


def test_a_path_that_leaves_the_artifact(root: Path) -> None:
    (root.parent / "secret").write_bytes(b"")
    files = {**MANIFEST.files, "../secret": FileEntry(sha256().hexdigest(), 0, "engine")}
    (root / "manifest.json").write_bytes(replace(MANIFEST, files=files).to_bytes())
    assert "files['../secret'] is absolute or has" in refusal(root)


def make_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def make_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["engines/cpu/target.bin", "manifest.json"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [(make_link, "a symbolic link"), (make_fifo, "a FIFO"), (make_socket, "a socket")],
)
def test_special_files(
    root: Path,
    name: str,
    make: Callable[[Path], None],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir((root / name).parent)  # The name of a socket must be short.
    make(Path(Path(name).name))
    assert f"'{name}' is {kind}" in refusal(root)


def test_a_linked_folder_is_not_followed(root: Path) -> None:
    (root / "tokenizer").rename(root.parent / "elsewhere")
    (root / "tokenizer").symlink_to(root.parent / "elsewhere")
    assert "'tokenizer' is a symbolic link" in refusal(root)


def test_a_folder_in_place_of_a_file(root: Path) -> None:
    (root / "reports/empty").unlink()
    (root / "reports/empty").mkdir()
    assert "'reports/empty' is missing" in refusal(root)
    (root / "manifest.json").unlink()
    (root / "manifest.json").mkdir()
    assert "'manifest.json' is not a file" in refusal(root)


def test_a_huge_manifest_is_not_read_whole(root: Path) -> None:
    with (root / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)
    assert f"larger than the limit of {MAX_MANIFEST_BYTES >> 20} MiB" in refusal(root)


def test_the_host_is_checked_last(root: Path) -> None:
    needs = Requirements("pdp11", (), {})
    (root / "manifest.json").write_bytes(replace(MANIFEST, requires=needs).to_bytes())
    with pytest.raises(CompatibilityError, match="architecture pdp11"):
        open_artifact(root)
    (root / "reports/empty").write_bytes(b"x")
    refusal(root)


def test_list_and_hash(root: Path) -> None:
    sizes = list_files(root)
    assert list(sizes) == sorted([*CONTENTS, "manifest.json"])
    assert {path: sizes[path] for path in CONTENTS} == {p: len(c) for p, c in CONTENTS.items()}
    hashes = hash_files(root, CONTENTS)
    assert hashes == {path: sha256(content).hexdigest() for path, content in CONTENTS.items()}
    with pytest.raises(ArtifactError, match="'absent' cannot be read: No such file"):
        hash_files(root, ["absent"])
