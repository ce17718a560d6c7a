import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.runtime import publish as publish_module
from speccompile.runtime.artifact import list_files
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.publish import lock, publish, recover

Tree = dict[str, str]

OLD: Tree = {"manifest.json": "old", "engines/target.bin": "old weights", "only/old": "x"}
NEW: Tree = {"manifest.json": "new", "engines/target.bin": "new weights", "only/new": "y"}
STEPS = ("fsync", "rename", "unlink", "rmdir")


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program runs after it but what the test calls."""


def write(folder: Path, tree: Tree) -> Path:
    for path, text in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def read(folder: Path) -> Tree:
    return {path: (folder / path).read_text() for path in list_files(folder)}


def fail_from(patch: pytest.MonkeyPatch, step: int, failure: BaseException) -> Callable[[], bool]:
    """Make the `step`-th system call and all after it raise; tells whether it came to that."""
    calls = 0

    def guard(function: Callable[..., object]) -> Callable[..., object]:
        def guarded(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls >= step:
                raise failure
            return function(*arguments, **options)

        return guarded

    for name in STEPS:
        patch.setattr(os, name, guard(getattr(os, name)))
    return lambda: calls >= step


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "artifacts" / "tiny"


@pytest.fixture(params=[True, False], ids=["swapping", "not swapping"])
def swapping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether two folders can change names in one step, as some file systems cannot."""
    if not request.param:
        monkeypatch.setattr(publish_module, "_swap", never)
    return bool(request.param)


def never(one: Path, other: Path) -> bool:
    return False


def stage(place: Path, tree: Tree = NEW) -> Path:
    return write(place.parent / ".staging", tree)


def siblings(place: Path) -> list[str]:
    return sorted(path.name for path in place.parent.iterdir())


@pytest.mark.parametrize("before", ["absent", "empty", "old"])
def test_publish(place: Path, before: str) -> None:
    staging = stage(place)
    if before != "absent":
        place.mkdir()
    if before == "old":
        write(place, OLD)
    publish(staging, place)
    assert read(place) == NEW
    assert siblings(place) == ["tiny"]


def test_everything_is_on_the_disk_before_anything_moves(
    place: Path, swapping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, rename, swap = os.fsync, os.rename, publish_module._swap  # pyright: ignore[reportPrivateUsage]

    def fsync(descriptor: int) -> None:
        events.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    def moved(source: Path, target: Path) -> None:
        events.append("rename")
        rename(source, target)

    def swapped(one: Path, other: Path) -> bool:
        done = swap(one, other)
        events.extend(["swap"] * done)
        return done

    write(place, OLD)
    staging = stage(place)
    whole = [staging, *staging.rglob("*")]
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", moved)
    monkeypatch.setattr(publish_module, "_swap", swapped)
    publish(staging, place)
    first = events.index("swap" if swapping else "rename")
    assert set(events[:first]) == {str(path) for path in whole}
    parent = str(place.parent)
    steps = ["swap", parent, "rename"] if swapping else ["rename", parent, "rename", parent]
    assert events[first:] == steps


@pytest.mark.parametrize("before", ["absent", "old"])
def test_killed_at_each_step(place: Path, before: str, swapping: bool) -> None:
    seen: list[Tree] = []
    for step in range(1, 100):
        if before == "old":
            write(place, OLD)
        staging = stage(place)
        with pytest.MonkeyPatch.context() as patch:
            was_killed = fail_from(patch, step, Killed())
            try:
                publish(staging, place)
            except Killed:
                assert was_killed()
        if swapping and before == "old":
            assert read(place) in (OLD, NEW)  # with nobody there to recover it
        old = place.with_name(".tiny.old")
        assert not (old / "manifest.json").exists() or read(old) == OLD
        recover(place)
        seen.append(read(place) if place.exists() else {})
        assert set(siblings(place)) <= {"tiny", ".staging"}
        shutil.rmtree(staging, ignore_errors=True)
        publish(stage(place), place)  # A rerun succeeds.
        assert read(place) == NEW
        for path in sorted(place.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        place.rmdir()
        if not was_killed():
            break
    else:
        pytest.fail("never ran to its end")
    untouched = OLD if before == "old" else {}
    first_new = seen.index(NEW)
    assert seen[:first_new] == [untouched] * first_new
    assert seen[first_new:] == [NEW] * (len(seen) - first_new)
    assert first_new > 5


def test_recovery_may_be_killed_too(place: Path) -> None:
    for step in range(1, 20):
        write(place, NEW)
        write(place.parent / ".tiny.old", OLD)
        with pytest.MonkeyPatch.context() as patch:
            was_killed = fail_from(patch, step, Killed())
            try:
                recover(place)
            except Killed:
                assert was_killed()
        recover(place)
        assert read(place) == NEW
        assert siblings(place) == ["tiny"]


def test_half_of_an_old_artifact_is_not_restored(place: Path) -> None:
    write(place.parent / ".tiny.old", {"engines/target.bin": "old weights"})
    recover(place)
    assert siblings(place) == []


@pytest.mark.parametrize("before", ["absent", "old"])
def test_a_full_disk_leaves_the_old_artifact(place: Path, before: str) -> None:
    if before == "old":
        write(place, OLD)
    steps = 0
    for step in range(1, 9):
        staging = stage(place)
        full = OSError(errno.ENOSPC, "No space left on device")
        with pytest.MonkeyPatch.context() as patch:
            fail_from(patch, step, full)
            with pytest.raises(SpeccompileError) as caught:
                publish(staging, place)
        assert str(place) in str(caught.value)
        assert "No space left on device" in str(caught.value)
        recover(place)
        if place.exists() and read(place) == NEW:
            break
        assert (read(place) if place.exists() else {}) == (OLD if before == "old" else {})
        steps += 1
    assert steps >= 6


def test_the_old_artifact_is_put_back_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_module, "_swap", never)
    write(place, OLD)
    staging = stage(place)
    rename = os.rename

    def refuse_staging(source: Path, target: Path) -> None:
        if Path(source) == staging:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", refuse_staging)
        with pytest.raises(SpeccompileError, match="cannot be written: Invalid cross-device link"):
            publish(staging, place)
    assert read(place) == OLD
    assert siblings(place) == [".staging", "tiny"]


def test_only_artifacts_are_replaced(place: Path, tmp_path: Path) -> None:
    staging = stage(place)
    write(place, {"thesis.tex": "years of work"})
    with pytest.raises(SpeccompileError, match=r"has files but no manifest\.json, so it is not"):
        publish(staging, place)
    assert read(place) == {"thesis.tex": "years of work"}
    file = place.with_name("file")
    file.write_text("")
    link = place.with_name("link")
    link.symlink_to(write(tmp_path / "elsewhere", OLD))
    for other in (file, link):
        with pytest.raises(SpeccompileError, match="is not a folder; remove it or choose"):
            publish(staging, other)
    assert read(tmp_path / "elsewhere") == OLD
    assert read(staging) == NEW


def test_an_unfinished_folder_is_not_published(place: Path) -> None:
    write(place, OLD)
    with pytest.raises(SpeccompileError, match=r"cannot be published without its manifest\.json"):
        publish(stage(place, {"a": ""}), place)
    assert read(place) == OLD


def test_lock(place: Path) -> None:
    with lock(place):
        with pytest.raises(SpeccompileError, match="another process is writing to it") as caught:
            lock(place).__enter__()
        assert "\n" not in str(caught.value)
        with lock(place.with_name("other")):
            publish(stage(place), place)
    with lock(place):
        assert siblings(place) == [".other.lock", ".tiny.lock", "tiny"]


def test_lock_ends_with_an_error_inside(place: Path) -> None:
    with pytest.raises(KeyError), lock(place):
        raise KeyError
    with lock(place):
        pass


def test_lock_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpeccompileError, match="cannot be locked"):
        lock(tmp_path / "file" / "tiny").__enter__()
