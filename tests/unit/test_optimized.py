"""`python -O` takes out assertions: what refuses an artifact there must not be one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import speccompile.cli
import speccompile.compiler
import speccompile.plugins
import speccompile.runtime

PACKAGES = (speccompile.cli, speccompile.compiler, speccompile.plugins, speccompile.runtime)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_optimized_the_product_is_the_same(package: object) -> None:
    [folder] = map(Path, vars(package)["__path__"])
    sources = sorted(folder.rglob("*.py"))
    assert len(sources) > 3
    assert [
        f"{path}:{line}" for path in sources for line in left_out(path.read_text("utf-8"))
    ] == []


def test_what_would_be_left_out_is_found() -> None:
    assert sorted(left_out("if __debug__:\n  pass\nassert 1\n")) == [1, 3]


def left_out(source: str) -> Iterator[int]:
    """The lines that `python -O` skips, or that ask for it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Name) and node.id == "__debug__"):
            yield node.lineno
