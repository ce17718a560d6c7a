"""Builds that are killed or run out of disk: the old artifact stays whole, and a rerun succeeds.

The tests share a copy of the cache of finished stages, from which each takes those that shall run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from speccompile.compiler.build import build
from speccompile.compiler.execute import Observer
from speccompile.compiler.pipeline import plan
from speccompile.compiler.recipe import load_recipe
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.publish import sibling
from tests.full_disk import FullDisk, compile_full_disk
from tests.kills import LONG

_FULL = "No space left on device"

_KINDS = ("load target", "quantize draft", "compile target openvino", "measure draft", "validate")
"""Stages of every kind: where others are killed, nothing is different (SPECCOMPILE_LONG_TESTS)."""

# Publishes, and kills itself before the n-th call of a function of `os`.
_KILLED_IN_PUBLISH = """
import os, signal, sys
from pathlib import Path
from speccompile.runtime import publish as publishing

staging, destination, function, count, swaps = sys.argv[1:]
original, left = getattr(os, function), int(count)

def guarded(*arguments, **options):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **options)

setattr(os, function, guarded)
if swaps == "False":
    publishing._swap = lambda *_: False
publishing.publish(Path(staging), Path(destination))
"""


@dataclass(frozen=True)
class Site:
    """Where a test builds: all of it below one folder, its disk."""

    disk: Path
    recipe: Path
    old_recipe: Path

    @property
    def cache(self) -> Path:
        return self.disk / "cache"

    @property
    def destination(self) -> Path:
        return self.disk / "out" / "tiny"

    @property
    def stages(self) -> list[str]:
        return [stage.name for stage in plan(load_recipe(str(self.recipe)))] + ["validate"]

    def arguments(self, recipe: Path | None = None) -> list[str]:
        paths = ["-o", str(self.destination), "--cache", str(self.cache)]
        return ["build", str(recipe or self.recipe), "--json", *paths]

    def name(self) -> str:
        """Of the artifact in place; raises unless all of it is whole."""
        return open_artifact(self.destination).manifest.name

    def results(self, stage: str) -> list[Path]:
        folders = (self.cache / "stages").glob(f"{stage.replace(' ', '-')}-*")
        return [path for path in folders if path.suffix == ""]

    def forget(self, *stages: str) -> None:
        for stage in stages:
            for folder in self.results(stage):
                shutil.rmtree(folder)

    def leftovers(self) -> list[str]:
        paths = (*(self.cache / "stages").iterdir(), *self.destination.parent.iterdir())
        return [path.name for path in paths if path.suffix in (".part", ".log", ".staging", ".old")]


@pytest.fixture(scope="module")
def shared_site(
    recipe_file: Path, artifact: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Site:
    folder = tmp_path_factory.mktemp("robustness")
    old_recipe = folder / "old.toml"
    text = recipe_file.read_text(encoding="utf-8")
    old_recipe.write_text(text.replace('name = "tiny"', 'name = "old"'), encoding="utf-8")
    site = Site(folder / "disk", recipe_file, old_recipe)
    shutil.copytree(cache, site.cache)
    return site


@pytest.fixture(scope="module")
def shared_old(shared_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact named "old"; after it all stages of both recipes are in the cache."""
    for recipe in (shared_site.recipe, shared_site.old_recipe):
        _build_here(shared_site, recipe)
    kept = tmp_path_factory.mktemp("old") / "tiny"
    shutil.copytree(shared_site.destination, kept)
    return kept


@pytest.fixture
def site(shared_site: Site, shared_old: Path) -> Site:
    """Every stage is in the cache; an artifact named "old" is in place."""
    shutil.rmtree(shared_site.destination)
    shutil.copytree(shared_old, shared_site.destination)
    assert shared_site.name() == "old"
    return shared_site


def test_killed_at_each_stage(site: Site, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    for position, stage in enumerate(site.stages if LONG else _KINDS):
        hidden = site.results(stage)
        assert hidden, stage
        for folder in hidden:
            folder.rename(aside / folder.name)
        _kill_in(site, stage, delay=position % 3 * 0.1)
        assert site.name() == "old", stage
        assert not site.results(stage), stage
        for folder in hidden:
            (aside / folder.name).rename(folder)
    report = _finish(site)
    assert all(entry["cached"] for entry in report["stages"])
    assert site.name() == "tiny"
    assert site.leftovers() == []


def test_a_killed_build_is_resumed_where_it_stopped(site: Site) -> None:
    site.forget("export draft", "measure draft", "validate")
    _kill_in(site, "measure draft", delay=0)
    assert site.name() == "old"
    ran = [entry["name"] for entry in _finish(site)["stages"] if not entry["cached"]]
    assert ran == ["measure draft", "validate"]
    assert site.name() == "tiny"
    assert site.leftovers() == []


@pytest.mark.parametrize(
    ("function", "count", "swaps", "places"),
    [
        ("fsync", 1, True, {"tiny": "old"}),
        ("rename", 1, True, {"tiny": "tiny", ".tiny.staging": "old"}),
        ("unlink", 1, True, {"tiny": "tiny", ".tiny.old": "old"}),
        ("unlink", 4, True, {"tiny": "tiny"}),
        ("rename", 1, False, {"tiny": "old"}),
        ("rename", 2, False, {".tiny.old": "old"}),  # where the file system cannot swap names
    ],
)
def test_killed_inside_publish(
    site: Site,
    artifact: Path,
    function: str,
    count: int,
    swaps: bool,
    places: dict[str, str],
) -> None:
    """`places` says where whole artifacts are then, and which. The next build publishes another."""
    staging = sibling(site.destination, "staging")
    shutil.copytree(artifact, staging)
    arguments = (str(staging), str(site.destination), function, str(count), str(swaps))
    done = _run([sys.executable, "-c", _KILLED_IN_PUBLISH, *arguments])
    assert done.returncode == -signal.SIGKILL, done.stderr
    for name, held in places.items():
        assert open_artifact(site.destination.with_name(name)).manifest.name == held
    _build_here(site, site.recipe)
    assert site.name() == "tiny"
    assert site.leftovers() == []


def test_full_at_the_nth_write(site: Site, tmp_path: Path) -> None:
    library = compile_full_disk(tmp_path)
    forgotten = ("check", "export draft", "lower draft openvino")
    site.forget(*forgotten)
    _, writes = _run_on_full_disk(site, tmp_path, library, room=10**9)
    assert site.name() == "tiny"
    assert writes > 20
    _build_here(site, site.old_recipe)
    for room in (0, 1, 4, 16, writes // 2, writes - 1) if LONG else (0, writes // 2, writes - 1):
        site.forget(*forgotten)
        done, used = _run_on_full_disk(site, tmp_path, library, room)
        assert used > room
        assert done.returncode == 1, (room, done.stderr)
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: "), room
        assert _FULL in line, room
        assert "free some space" in line or "make room" in line, (room, line)
        assert site.name() == "old"
        assert site.leftovers() == []
    _finish(site)
    assert site.name() == "tiny"
    assert site.leftovers() == []


def _build_here(site: Site, recipe: Path) -> None:
    build(load_recipe(str(recipe)), site.destination, cache=site.cache, observer=Observer())


def _kill_in(site: Site, stage: str, delay: float) -> None:
    """Start a build, and kill all its processes soon after it began with `stage`."""
    pattern = f"{stage.replace(' ', '-')}-*.part"
    stages = site.cache / "stages"
    earlier = set(stages.glob(pattern))
    with _start(site.arguments()) as process:
        while not set(stages.glob(pattern)) - earlier:
            assert process.poll() is None, f"ended before {stage}"
            time.sleep(0.005)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def _finish(site: Site, recipe: Path | None = None) -> dict[str, Any]:
    """Build undisturbed; returns the report."""
    command = [sys.executable, "-m", "speccompile.cli.main", *site.arguments(recipe)]
    done = _run(command)
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _run_on_full_disk(
    site: Site, tmp_path: Path, library: Path, room: int
) -> tuple[subprocess.CompletedProcess[str], int]:
    command = [sys.executable, "-m", "speccompile.cli.main", *site.arguments()]
    return FullDisk(library, site.disk, tmp_path / "counter").run(command, room)


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "speccompile.cli.main", *arguments]
    null = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=null, stderr=null, start_new_session=True)


def _run(
    command: Sequence[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=120,
        check=False,
    )
