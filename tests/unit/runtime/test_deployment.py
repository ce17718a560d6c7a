"""A folder of releases, with every system call that changes it killed and refused in turn."""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.deployment import Deployment
from speccompile.runtime.errors import ArtifactError, SpeccompileError
from speccompile.runtime.measurements import Defaults
from tests.kills import KILLS, LONG, kill_within
from tests.releases import WEIGHTS, read_tree, write_release

STEPS = ("fsync", "mkdir", "rename", "replace", "rmdir", "symlink", "unlink")
State = tuple[str | None, str | None, list[str]]


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program runs after it but what the test calls."""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path / "served")


@pytest.fixture
def built(tmp_path: Path) -> list[Path]:
    return [write_release(tmp_path / f"built-{name}", name.encode()) for name in "abc"]


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here."""

    def fsync(descriptor: int) -> None:
        pass

    monkeypatch.setattr(os, "fsync", fsync)


def state(deployment: Deployment) -> State:
    """What is in use, what was, and what is there: all of it whole."""
    held = [entry.identity for entry in deployment.artifacts()]
    for identity in held:
        place = deployment.root / "artifacts" / identity
        assert open_artifact(place).manifest.identity == identity
    if deployment.current:
        served = open_artifact(deployment.root / "current")
        assert served.manifest.identity == deployment.current
    return deployment.current, deployment.previous, held


def test_nothing_is_there(deployment: Deployment) -> None:
    assert state(deployment) == (None, None, [])
    with pytest.raises(SpeccompileError, match="nothing was in use before"):
        deployment.roll_back()


def test_there_and_back(deployment: Deployment, built: list[Path]) -> None:
    a, b, c = (deployment.add(path) for path in built)
    held = sorted((a, b, c))
    assert state(deployment) == (None, None, held)
    assert read_tree(deployment.root / "artifacts" / a) == read_tree(built[0])
    assert deployment.use(a[:8]) == a
    assert state(deployment) == (a, None, held)
    with pytest.raises(SpeccompileError, match="nothing was in use before; choose with --use"):
        deployment.roll_back()
    deployment.use(f"sha256:{b}")
    deployment.use(b)  # again
    assert state(deployment) == (b, a, held)
    assert deployment.roll_back() == a
    assert state(deployment) == (a, None, held)
    deployment.use(c)  # b, which was rolled back, is no part of the history
    assert state(deployment) == (c, a, held)
    deployment.use(a)
    deployment.use(b)
    assert [deployment.roll_back() for _ in range(3)] == [a, c, a]
    releases = {entry.identity: entry.releases for entry in deployment.artifacts()}
    assert releases == {a: (1,), b: (), c: ()}


def test_what_is_open_stays(deployment: Deployment, built: list[Path]) -> None:
    a, b = (deployment.add(path) for path in built[:2])
    deployment.use(a)
    opened = open_artifact(deployment.root / "current")
    deployment.use(b)
    assert opened.path(WEIGHTS).read_bytes() == b"a"
    assert open_artifact(deployment.root / "current").path(WEIGHTS).read_bytes() == b"b"


def test_the_folder_may_move(deployment: Deployment, built: list[Path]) -> None:
    identity = deployment.use(deployment.add(built[0]))
    moved = Deployment(deployment.root.rename(deployment.root.with_name("moved")))
    assert state(moved) == (identity, None, [identity])


def test_adding_again(deployment: Deployment, built: list[Path]) -> None:
    identity = deployment.use(deployment.add(built[0]))
    place = deployment.root / "artifacts" / identity
    before = place.stat().st_ino
    assert deployment.add(built[0]) == identity
    assert place.stat().st_ino == before  # untouched
    (place / WEIGHTS).write_bytes(b"?")
    with pytest.raises(ArtifactError, match=f"{WEIGHTS}' changed after the build"):
        deployment.use(identity)
    deployment.add(built[0])
    assert state(deployment) == (identity, None, [identity])
    _measure(built[0], 3)
    deployment.add(built[0])
    assert open_artifact(place).measurements.defaults.draft_length == 3


def test_a_damaged_artifact_is_not_added(deployment: Deployment, built: list[Path]) -> None:
    (built[0] / WEIGHTS).write_bytes(b"?")
    with pytest.raises(ArtifactError, match="changed after the build"):
        deployment.add(built[0])
    assert state(deployment) == (None, None, [])


def test_a_damaged_artifact_is_not_gone_back_to(deployment: Deployment, built: list[Path]) -> None:
    a, b = (deployment.use(deployment.add(path)) for path in built[:2])
    shutil.rmtree(deployment.root / "artifacts" / a)
    with pytest.raises(ArtifactError, match="does not exist"):
        deployment.roll_back()
    assert deployment.current == b


@pytest.mark.parametrize(
    ("digest", "fault"),
    [
        ("0123", "give 8 digits"),
        ("0" * 8, "no artifact there begins with 00000000; there are [0-9a-f]{12}"),
        ("../../etc", r"no artifact there begins with \.\./\.\./etc"),
    ],
)
def test_no_such_artifact(
    deployment: Deployment, built: list[Path], digest: str, fault: str
) -> None:
    deployment.add(built[0])
    with pytest.raises(SpeccompileError, match=fault):
        deployment.use(digest)
    assert deployment.current is None


def test_a_folder_that_is_no_deployment(deployment: Deployment, built: list[Path]) -> None:
    deployment.root.mkdir()
    link = deployment.root / "current"
    link.symlink_to("/etc")
    with pytest.raises(SpeccompileError, match="is no link of a deployment: it leads to 'etc'"):
        deployment.artifacts()
    link.unlink()
    link.write_text("mine")
    identity = deployment.add(built[0])
    with pytest.raises(SpeccompileError, match="is no link of a deployment: Invalid argument"):
        deployment.use(identity)
    assert link.read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "failure"),
    [
        *(("add", None), ("add", errno.ENOSPC), ("replace", None), ("replace", errno.EIO)),
        *(("use", None), ("use", errno.ENOSPC), ("roll back", None), ("roll back", errno.EIO)),
    ],
)
def test_stopped_at_each_step(
    deployment: Deployment, built: list[Path], command: str, failure: int | None
) -> None:
    """Killed, or refused by the disk from some call on: the old state is there, or the new one."""
    a, b = (deployment.use(deployment.add(path)) for path in built[:2])
    before = state(deployment)
    _measure(built[0], 3)
    run, after = _command(deployment, built, command, a, b)
    seen: list[State] = []
    # Adding makes and removes many files, one as good as the other.
    stride = 1 if command in ("use", "roll back") or LONG else 3
    for step in range(1, 200, stride):
        saved = shutil.copytree(deployment.root, deployment.root.with_name("saved"), symlinks=True)
        with pytest.MonkeyPatch.context() as patch:
            reached = _fail_from(patch, step, failure)
            failed = Killed if failure is None else SpeccompileError
            with suppress(failed):
                run()
        seen.append(state(deployment))
        if seen[-1] == before or command != "roll back":
            run()  # A rerun succeeds, whatever was left.
        assert state(deployment) == after
        assert not list((deployment.root / "artifacts").glob(".*.[!l]*"))
        shutil.rmtree(deployment.root)
        saved.rename(deployment.root)
        if not reached():
            break
    else:
        pytest.fail("never ran to its end")
    if after != before:
        first_new = seen.index(after)
        assert seen == [before] * first_new + [after] * (len(seen) - first_new)
        assert first_new > 2


def test_a_full_disk_says_the_way_out(
    deployment: Deployment, built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = deployment.add(built[0])
    _fail_from(monkeypatch, 1, errno.ENOSPC)
    with pytest.raises(SpeccompileError, match=r"No space left on device; make room, or remove"):
        deployment.use(identity)


def test_killed_at_random(deployment: Deployment, built: list[Path]) -> None:
    a, b = (deployment.use(deployment.add(path)) for path in built[:2])
    old, new = (b, a), (a, b)
    for attempt in range(KILLS):
        command = ("--use", new[0], "--add", built[2])
        kill_within(0.05, attempt, "deploy", deployment.root, *command)
        current, previous, _ = state(deployment)
        assert (current, previous) in (old, new)
        if (current, previous) == new:
            old, new = new, old


def _command(
    deployment: Deployment, built: list[Path], command: str, a: str, b: str
) -> tuple[Callable[[], object], State]:
    """What to run on a deployment that has a and b, and uses b; and what is the state then."""
    c = open_artifact(built[2]).manifest.identity
    commands: dict[str, tuple[Callable[[], object], State]] = {
        "add": (lambda: deployment.add(built[2]), (b, a, sorted((a, b, c)))),
        "use": (lambda: deployment.use(a), (a, b, sorted((a, b)))),
        "roll back": (lambda: deployment.roll_back(), (a, None, sorted((a, b)))),
        "replace": (lambda: deployment.add(built[0]), (b, a, sorted((a, b)))),
    }
    return commands[command]


def _measure(root: Path, draft_length: int) -> None:
    """Give the artifact other measurements, as `tune` does."""
    measured = replace(open_artifact(root).measurements, defaults=Defaults("ngram", draft_length))
    (root / "measurements.json").write_bytes(measured.to_bytes())


def _fail_from(patch: pytest.MonkeyPatch, step: int, failure: int | None) -> Callable[[], bool]:
    """Make the `step`-th system call and all after it fail; tells whether it came to that."""
    calls = 0

    def guard(function: Callable[..., object]) -> Callable[..., object]:
        def guarded(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls >= step:
                raise Killed if failure is None else OSError(failure, os.strerror(failure))
            return function(*arguments, **options)

        return guarded

    for name in STEPS:
        patch.setattr(os, name, guard(getattr(os, name)))
    return lambda: calls >= step
