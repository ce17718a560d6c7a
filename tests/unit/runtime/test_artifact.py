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
from speccompile.runtime.files import FileEntry
from speccompile.runtime.manifest import EngineInfo, Manifest, ModelInfo, Requirements
from speccompile.runtime.measurements import Defaults, Measurements, unmeasured
from speccompile.runtime.records import MAX_RECORD_BYTES

CONTENTS = {
    "engines/cpu/target.xml": b"<net/>",
    "engines/cpu/target.bin": bytes(range(256)),
    "tokenizer/tokenizer.json": b"{}",
    "reports/build.json": b"[1, 2]",
    "reports/empty": b"",
}
RECORDS = ("manifest.json", "measurements.json")
ENTRIES = {
    path: FileEntry(sha256(content).hexdigest(), len(content), "engine")
    for path, content in CONTENTS.items()
}
MANIFEST = Manifest(
    schema=6,
    name="tiny",
    compiler_version="0.1.0",
    model=ModelInfo(512, 64, 2, 2, 16, 1, (2,)),
    engines={
        "target": EngineInfo(
            *("target", "openvino", "engines/cpu/target.xml", "fp16", "fp32"),
            *(2, 2, 4, 16, 64, 512),
            min_rows=1,
            shares_cache=False,
        )
    },
    requires=Requirements(host.describe().architecture, (), {}),
    provenance={},
    files={path: entry for path, entry in ENTRIES.items() if not path.startswith("reports/")},
)
MEASUREMENTS = Measurements(
    schema=6,
    manifest=MANIFEST.identity,
    cost_ms={"target": {1: 1.0}},
    acceptance=(),
    lossless=True,
    defaults=Defaults("ngram", 4),
    files={path: entry for path, entry in ENTRIES.items() if path.startswith("reports/")},
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    for path, content in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    write_records(folder, MANIFEST)
    return folder


def write_records(root: Path, manifest: Manifest) -> None:
    """The manifest, and measurements that belong to it."""
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    measurements = replace(MEASUREMENTS, manifest=manifest.identity)
    (root / "measurements.json").write_bytes(measurements.to_bytes())


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
        assert artifact.measurements == MEASUREMENTS
        assert artifact.files == ENTRIES
        assert artifact.path("tokenizer/tokenizer.json").read_bytes() == b"{}"


def test_only_files_of_the_records_have_a_path(root: Path) -> None:
    with pytest.raises(ArtifactError, match=r"has no file '\.\./secret'"):
        open_artifact(root).path("../secret")


def test_what_is_not_an_artifact(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    assert "it is not a folder" in refusal(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    message = refusal(tmp_path / "empty")
    assert "is not a speccompile artifact: it has no manifest.json; build one with" in message


@pytest.mark.parametrize("path", [*CONTENTS, *RECORDS])
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


@pytest.mark.parametrize("path", [*CONTENTS, "measurements.json"])
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
    write_records(root, replace(MANIFEST, files=files))
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


@pytest.mark.parametrize("name", ["engines/cpu/target.bin", *RECORDS])
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


@pytest.mark.parametrize("name", RECORDS)
def test_a_huge_record_is_not_read_whole(root: Path, name: str) -> None:
    with (root / name).open("wb") as file:
        file.truncate(1 << 40)
    message = refusal(root)
    assert f"{name}: larger than the limit of {MAX_RECORD_BYTES >> 20} MiB" in message


def test_the_measurements_of_another_artifact_are_refused(root: Path) -> None:
    (root / "manifest.json").write_bytes(replace(MANIFEST, name="other").to_bytes())
    message = refusal(root, check=False)
    assert MANIFEST.identity in message
    assert replace(MANIFEST, name="other").identity in message


def test_a_file_that_only_the_measurements_lack_was_added(root: Path) -> None:
    (root / "measurements.json").write_bytes(unmeasured(MANIFEST).to_bytes())
    assert "'reports/build.json' was added" in refusal(root, check=False)


def test_twins_in_different_records_are_refused(root: Path) -> None:
    files = {**MANIFEST.files, "Reports/more": ENTRIES["reports/empty"]}
    write_records(root, replace(MANIFEST, files=files))
    (root / "Reports").mkdir()
    (root / "Reports/more").write_bytes(b"")
    assert "differs from 'Reports' only by case" in refusal(root)


def test_an_artifact_of_the_first_schema_is_refused(root: Path) -> None:
    (root / "manifest.json").write_bytes(b'{"schema": 1}')
    (root / "measurements.json").unlink()
    assert "schema 1 is older than this speccompile reads (6)" in refusal(root)


def test_the_host_is_checked_last(root: Path) -> None:
    needs = Requirements("pdp11", (), {})
    write_records(root, replace(MANIFEST, requires=needs))
    with pytest.raises(CompatibilityError, match="architecture pdp11"):
        open_artifact(root)
    (root / "reports/empty").write_bytes(b"x")
    refusal(root)


def test_list_and_hash(root: Path) -> None:
    sizes = list_files(root)
    assert list(sizes) == sorted([*CONTENTS, *RECORDS])
    assert {path: sizes[path] for path in CONTENTS} == {p: len(c) for p, c in CONTENTS.items()}
    hashes = hash_files(root, CONTENTS)
    assert hashes == {path: sha256(content).hexdigest() for path, content in CONTENTS.items()}
    with pytest.raises(ArtifactError, match="'absent' cannot be read: No such file"):
        hash_files(root, ["absent"])
