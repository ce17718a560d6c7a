"""Artifacts that go through a real registry on this host, whole, cut, damaged and killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from errno import EIO, ENOSPC
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

from speccompile.cli.main import cli
from speccompile.compiler.signing import sign_artifact
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import ArtifactError, SignatureError, SpeccompileError
from speccompile.runtime.registry.connection import ConnectionLost
from speccompile.runtime.registry.pull import pull
from speccompile.runtime.registry.push import push
from speccompile.runtime.registry.reference import Reference, parse_reference
from speccompile.runtime.signatures import REQUIRE_SIGNATURE
from tests.full_disk import FullDisk, compile_full_disk
from tests.kills import KILLS, kill_within
from tests.oci_registry import RunningRegistry, breaking_way, registry_in
from tests.releases import WEIGHTS, Tree, read_tree, write_release
from tests.signing import make_keys
from tests.table_artifact import FOLDER

_MEGABYTES = random.Random(1).randbytes(3_000_000)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningRegistry]:
    with registry_in(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Every test has weights of its own: the registry keeps what it has seen."""
    return write_release(tmp_path / "built" / "tiny", tmp_path.name.encode())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "pulled" / "tiny"


def reference(registry: RunningRegistry, source: Path, tag: str = "1") -> Reference:
    name = source.parents[1].name.replace("_", "-").lower().strip("-")
    return parse_reference(f"oci://{registry.address}/tests/{name}:{tag}")


def ignore(path: str, done: int, total: int) -> None:
    pass


def no_time(seconds: float) -> None:
    """Instead of waiting."""


def siblings(place: Path) -> set[str]:
    return {path.name for path in place.parent.iterdir()} - {f".{place.name}.lock"}


def test_there_and_back(registry: RunningRegistry, source: Path, place: Path) -> None:
    to = reference(registry, source)
    pushed = push(source, to, ignore)
    assert (pushed.sent, pushed.files) == (10, 10)
    assert push(source, to, ignore).sent == 0
    seen: list[tuple[str, int, int]] = []

    def see(path: str, done: int, total: int) -> None:
        seen.append((path, done, total))

    pulled = pull(pushed.reference, place, see)
    assert pulled.changed
    assert pulled.artifact.manifest.identity == pushed.identity
    assert read_tree(place) == read_tree(source)
    total = sum(len(content) for path, content in read_tree(source).items() if "/" in path)
    assert seen[-1][1:] == (total, total)
    assert not pull(to, place, ignore).changed
    (place / WEIGHTS).write_bytes(b"damaged")
    assert pull(to, place, ignore).changed
    assert read_tree(place) == read_tree(source)
    assert siblings(place) == {"tiny"}


def test_what_a_registry_is_told(registry: RunningRegistry, source: Path) -> None:
    pushed = push(source, reference(registry, source), ignore)
    assert pushed.reference.digest
    manifest = json.loads(
        registry.blob(pushed.reference.digest.removeprefix("sha256:")).read_bytes()
    )
    assert manifest["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    layers = {
        layer["annotations"]["org.cncf.model.filepath"]: layer for layer in manifest["layers"]
    }
    assert layers.keys() == read_tree(source).keys()
    assert layers[WEIGHTS]["mediaType"] == "application/vnd.cncf.model.weight.v1.raw"
    assert (
        layers[WEIGHTS]["digest"] == f"sha256:{sha256((source / WEIGHTS).read_bytes()).hexdigest()}"
    )
    config = json.loads(
        registry.blob(manifest["config"]["digest"].removeprefix("sha256:")).read_bytes()
    )
    assert config["modelfs"]["diffIds"] == [layer["digest"] for layer in manifest["layers"]]


def test_a_push_goes_on_where_it_was_cut(registry: RunningRegistry, source: Path) -> None:
    to = reference(registry, source)
    first = push(source, to, ignore)
    write_release(source, b"better")

    def stop_at_plans(path: str, done: int, total: int) -> None:
        if FOLDER in path:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push(source, to, stop_at_plans)
    assert pull(to, source.with_name("old"), ignore).artifact.manifest.identity == first.identity
    second = push(source, to, ignore)
    assert second.sent == 0  # Manifest, measurements and weights were there before the plans.
    assert pull(to, source.with_name("new"), ignore).artifact.manifest.identity == second.identity


def test_a_cut_download_goes_on(registry: RunningRegistry, source: Path, place: Path) -> None:
    write_release(source, _MEGABYTES)
    to = reference(registry, source)
    push(source, to, ignore)
    with breaking_way(registry, [1_400_000, 1_200_000]) as way:
        pull(parse_reference(str(to).replace(registry.address, way.address)), place, ignore)
    assert read_tree(place) == read_tree(source)
    ranges = [request for request in way.requests if b"\r\nrange: bytes=" in request.lower()]
    assert len(ranges) >= 2


def test_a_cut_pull_goes_on_when_repeated(
    registry: RunningRegistry, source: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", no_time)
    write_release(place, b"old")
    before = read_tree(place)
    write_release(source, _MEGABYTES[::-1])
    to = reference(registry, source)
    push(source, to, ignore)
    with breaking_way(registry, [1_400_000, 0, 0, 0, 0]) as way:
        broken = parse_reference(str(to).replace(registry.address, way.address))
        with pytest.raises(ConnectionLost, match="repeat the pull, it goes on there"):
            pull(broken, place, ignore)
        assert read_tree(place) == before
        arrived = (place.with_name(".tiny.pull") / WEIGHTS).stat().st_size
        assert arrived > 500_000
        way.breaks.clear()
        way.requests.clear()
        pull(broken, place, ignore)
    assert any(f"bytes={arrived}-".encode() in request for request in way.requests)
    assert read_tree(place) == read_tree(source)
    assert siblings(place) == {"tiny"}


def test_the_beginning_of_another_file_is_not_kept(
    registry: RunningRegistry, source: Path, place: Path
) -> None:
    to = reference(registry, source)
    push(source, to, ignore)
    staging = place.with_name(".tiny.pull")
    (staging / "engines").mkdir(parents=True)
    (staging / WEIGHTS).write_bytes(b"#")
    (staging / "engines/draft.onnx").write_bytes(b"wrong")
    (staging / "stray").write_bytes(b"stray")
    pull(to, place, ignore)
    assert read_tree(place) == read_tree(source)


@pytest.mark.parametrize(
    "damaged", [WEIGHTS, "tokenizer/tokenizer.json", "manifest.json", "measurements.json"]
)
@pytest.mark.parametrize("damage", ["one byte flipped", "one byte cut"])
def test_a_damaged_registry(
    registry: RunningRegistry, source: Path, place: Path, damaged: str, damage: str
) -> None:
    to = reference(registry, source)
    push(source, to, ignore)
    content = (source / damaged).read_bytes()
    blob = registry.blob(sha256(content).hexdigest())
    sound = blob.read_bytes()
    assert sound == content
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    try:
        blob.write_bytes(flipped if damage == "one byte flipped" else content[:-1])
        for weights in (None, b"old"):
            old = _put(place, weights) if weights else {}
            with pytest.raises(ArtifactError) as caught:
                pull(to, place, ignore)
            assert f"the content of {damaged!r} is not what was pushed" in str(caught.value)
            assert read_tree(place) == old
            assert siblings(place) == ({"tiny"} if old else set())
    finally:
        blob.write_bytes(sound)  # Other tests have the same tokenizer.


def test_a_file_that_the_records_do_not_know(
    registry: RunningRegistry, source: Path, place: Path
) -> None:
    """Another layer list, which a registry may hold: the artifact's own records decide."""
    to = reference(registry, source)
    pushed = push(source, to, ignore)
    assert pushed.reference.digest
    path = registry.blob(pushed.reference.digest.removeprefix("sha256:"))
    manifest = json.loads(path.read_bytes())
    dropped = json.dumps(manifest | {"layers": manifest["layers"][:-1]}).encode()
    renamed = path.read_bytes().replace(b"engines/draft.onnx", b"engines/drift.onnx")
    _replace_manifest(registry, to, dropped)
    with pytest.raises(ArtifactError, match=r"'tokenizer/tokenizer\.json' is not in it"):
        pull(to, place, ignore)
    _replace_manifest(registry, to, renamed)
    with pytest.raises(ArtifactError, match=r"'engines/draft\.onnx' is not in it"):
        pull(to, place, ignore)
    assert siblings(place) == set()


def test_only_what_can_run_here(registry: RunningRegistry, source: Path, place: Path) -> None:
    to = reference(registry, source)
    push(source, to, ignore)
    pulled = pull(to, place, ignore, runnable_only=True)
    assert pulled.left_out.keys() == {FOLDER}
    assert "GPU" in pulled.left_out[FOLDER]
    found = read_tree(place)
    assert not any(FOLDER in path for path in found)
    opened = open_artifact(place)
    assert opened.absent == {FOLDER}
    assert opened.manifest == open_artifact(source).manifest
    assert not pull(to, place, ignore, runnable_only=True).changed
    with pytest.raises(SpeccompileError, match="was left out of it; push a whole artifact"):
        push(place, to, ignore)
    assert pull(to, place, ignore).changed
    assert read_tree(place) == read_tree(source)


def test_a_signature_goes_with_the_artifact(
    registry: RunningRegistry, source: Path, place: Path, tmp_path: Path
) -> None:
    keys, to = make_keys(tmp_path / "keys"), reference(registry, source)
    push(source, to, ignore)
    pull(to, place, ignore)
    with pytest.raises(SignatureError, match="is not signed"):
        open_artifact(place, trusted=keys.public)
    sign_artifact(source, keys.private)
    assert push(source, to, ignore).sent == 1
    assert pull(to, place, ignore).changed
    open_artifact(place, trusted=keys.public)
    assert not pull(to, place, ignore).changed
    (place / "model.sig").write_bytes(b"{}")
    assert pull(to, place, ignore).changed
    shutil.rmtree(place)
    assert pull(to, place, ignore, runnable_only=True).left_out
    open_artifact(place, trusted=keys.public)  # of all files, those left out too
    with pytest.raises(SignatureError):
        open_artifact(place, trusted=make_keys(tmp_path / "others").public)


def test_what_is_not_signed_as_it_has_to_be_does_not_come(
    registry: RunningRegistry,
    source: Path,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, to = make_keys(tmp_path / "keys"), reference(registry, source)
    push(source, to, ignore)
    monkeypatch.setenv(REQUIRE_SIGNATURE, str(keys.public))
    fetched: list[str] = []

    def note(path: str, done: int, total: int) -> None:
        fetched.append(path)

    with pytest.raises(SignatureError, match="is not signed, though it has to be"):
        pull(to, place, note, trusted=keys.public)
    assert {*fetched} <= {"manifest.json", "measurements.json"}
    assert not place.exists()
    refused = CliRunner().invoke(cli, ["pull", str(to), str(place)])
    assert isinstance(refused.exception, SignatureError)
    sign_artifact(source, keys.private)
    push(source, to, ignore)
    others = make_keys(tmp_path / "others").public
    with pytest.raises(SignatureError):
        pull(to, place, ignore, trusted=others)
    asked = ["pull", str(to), str(place), "--require-signature"]
    assert CliRunner().invoke(cli, [*asked, str(others)]).exception
    assert not place.exists()
    assert CliRunner().invoke(cli, asked[:-1]).exit_code == 0  # by the environment's key
    assert CliRunner().invoke(cli, [*asked, str(others)]).exception  # though nothing is to fetch


def test_a_foreign_client(
    registry: RunningRegistry, source: Path, place: Path, tmp_path: Path
) -> None:
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        pytest.skip("needs skopeo: apt-get install skopeo")
    to = reference(registry, source)
    push(source, to, ignore)
    folder, other = tmp_path / "copied", str(to).replace("/tests/", "/copied/")
    copy = [skopeo, "copy", "--src-tls-verify=false", "--dest-tls-verify=false"]
    url = str(to).replace("oci://", "docker://")
    for target in (f"dir:{folder}", other.replace("oci://", "docker://")):
        subprocess.run([*copy, url, target], check=True, capture_output=True, timeout=60)
    for layer in json.loads((folder / "manifest.json").read_bytes())["layers"]:
        path = tmp_path / "sorted" / layer["annotations"]["org.cncf.model.filepath"]
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / layer["digest"].removeprefix("sha256:"), path)
    assert read_tree(open_artifact(tmp_path / "sorted").root) == read_tree(source)
    pull(parse_reference(other), place, ignore)
    assert read_tree(place) == read_tree(source)


def test_killed_while_pushing(registry: RunningRegistry, source: Path, place: Path) -> None:
    to = reference(registry, source)
    started = time.monotonic()
    first = push(source, to, ignore).identity
    takes = time.monotonic() - started
    for attempt in range(KILLS):
        write_release(source, f"{source} {attempt}".encode())
        new = open_artifact(source).manifest.identity
        kill_within(takes, attempt, "push", source, to)
        found = pull(to, place, ignore).artifact.manifest.identity
        assert found in (first, new)
        assert push(source, to, ignore).identity == new
        assert pull(to, place, ignore).artifact.manifest.identity == new
        first = new


def test_killed_while_pulling(registry: RunningRegistry, source: Path, place: Path) -> None:
    trees: list[Tree] = []
    for number in (0, 1):
        write_release(source, f"{source} {number}".encode())
        trees.append(read_tree(source))
        push(source, reference(registry, source, str(number)), ignore)
    started = time.monotonic()
    pull(reference(registry, source, "0"), place, ignore)
    takes = time.monotonic() - started
    for attempt in range(KILLS):
        old, new = attempt % 2, 1 - attempt % 2
        kill_within(takes, attempt, "pull", reference(registry, source, str(new)), place)
        assert read_tree(place) in (trees[old], trees[new])
        pull(reference(registry, source, str(new)), place, ignore)
        assert read_tree(place) == trees[new]
        assert siblings(place) == {"tiny"}


def test_a_full_disk(registry: RunningRegistry, source: Path, place: Path, tmp_path: Path) -> None:
    to = reference(registry, source)
    push(source, to, ignore)
    before = _put(place, b"old")
    disk = FullDisk(compile_full_disk(tmp_path), place.parent, tmp_path / "counter")
    command = [sys.executable, "-m", "speccompile.cli.main", "pull", str(to), str(place)]
    for room, error in ((0, ENOSPC), (2, EIO), (5, ENOSPC), (20, EIO)):
        done, used = disk.run(command, room, error=error)
        assert used > room
        assert done.returncode == 1, done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ")
        assert os.strerror(error) in line
        assert read_tree(place) == before
        assert siblings(place) == {"tiny"}
    done, _ = disk.run(command, 10**9)
    assert (done.returncode, read_tree(place)) == (0, read_tree(source))


def _put(place: Path, weights: bytes) -> Tree:
    return read_tree(write_release(place, weights))


def _replace_manifest(registry: RunningRegistry, to: Reference, data: bytes) -> None:
    import requests

    url = f"http://{registry.address}/v2/{to.repository}/manifests/{to.tag}"
    headers = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
    requests.put(url, data=data, headers=headers, timeout=10).raise_for_status()
