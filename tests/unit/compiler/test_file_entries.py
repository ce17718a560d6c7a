from hashlib import sha256
from pathlib import Path

import pytest

from speccompile.compiler.file_entries import hash_tree
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.files import FileEntry

NEW = {"manifest.json": "new", "engines/target.bin": "new weights", "only/new": "y"}


def write(folder: Path, tree: dict[str, str]) -> Path:
    for path, text in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def test_hash_tree(tmp_path: Path) -> None:
    root = write(tmp_path, {**NEW, "engines/curve.json": "{}", "run.pyz": ""})
    roles = {"engines": "engine", "engines/curve.json": "cost", "only": "other", "run.pyz": "run"}
    digest = sha256(b"new weights").hexdigest()
    files = hash_tree(root, roles)
    assert files["engines/target.bin"] == FileEntry(digest, 11, "engine")
    assert {path: entry.role for path, entry in files.items()} == {
        "engines/curve.json": "cost",
        "engines/target.bin": "engine",
        "only/new": "other",
        "run.pyz": "run",
    }
    with pytest.raises(SpeccompileError, match=r"'run\.pyz' has no role"):
        hash_tree(root, {"engines": "engine", "only": "other"})


def test_hash_tree_leaves_out_the_records_and_what_is_listed(tmp_path: Path) -> None:
    root = write(tmp_path, {**NEW, "measurements.json": "", "reports/a": "x"})
    files = hash_tree(root, {"reports": "report"}, listed=["engines/target.bin", "only/new"])
    assert files == {"reports/a": FileEntry(sha256(b"x").hexdigest(), 1, "report")}
    with pytest.raises(SpeccompileError, match="'only/new' has no role"):
        hash_tree(root, {"reports": "report"}, listed=["engines/target.bin"])


def test_hash_tree_refuses_what_could_not_be_opened(tmp_path: Path) -> None:
    root = write(tmp_path, {"engines/a": "", "engines/A": ""})
    with pytest.raises(SpeccompileError, match="only by case; rename it"):
        hash_tree(root, {"engines": "engine"})
    (root / "engines" / "A").unlink()
    (root / "engines" / "A").symlink_to("a")
    with pytest.raises(SpeccompileError, match="is a symbolic link"):
        hash_tree(root, {"engines": "engine"})
