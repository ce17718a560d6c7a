"""Prompts from the standard library on disk: code to continue, descriptions to ask about."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from speccompile.compiler.drafts.prompt import Prompt

__all__ = ["library_prompts"]

_LEFT_OUT = ("test", "tests", "idlelib", "lib2to3", "site-packages", "pydoc_data", "encodings")
_SHORTEST_DESCRIPTION = 60  # characters
_ABOUT_CODE = (
    "Complete this Python function:\n\n```python\n{stub}\n```",
    "Implement the following function.\n\n```python\n{stub}\n```",
    "Write the body of this function in Python, with comments:\n\n{stub}",
    "What does this function do, and how would you write it?\n\n```python\n{stub}\n```",
    "Write three unit tests for this function:\n\n```python\n{stub}\n```",
)
_ABOUT_CLASS = (
    "Write this Python class:\n\n```python\n{stub}\n```",
    "Which methods should this class have? Write them.\n\n```python\n{stub}\n```",
)
_ABOUT_TEXT = (
    "Summarize this in one sentence:\n\n{text}",
    "Explain the following to a beginner:\n\n{text}",
    "Rewrite this more simply:\n\n{text}",
    "Turn this into a list of bullet points:\n\n{text}",
)
_ABOUT_NAME = (
    "What does `{name}` do in Python?",
    "Explain `{name}` with an example.",
    "Write an example that uses `{name}`.",
    "When would I use `{name}`, and what should I watch out for?",
    "I have not used `{name}` before. How does it work?",
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def library_prompts() -> Sequence[Prompt]:
    """Halves, stubs and descriptions, file by file, in the order of their paths."""
    return _all_from(Path(sysconfig.get_path("stdlib")))


@cache  # reading takes some eight seconds
def _all_from(library: Path) -> Sequence[Prompt]:
    return tuple(_from_files(library))


def _from_files(library: Path) -> Iterator[Prompt]:
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).with_suffix("").parts
        if any(part in _LEFT_OUT or part.startswith("test_") for part in parts):
            continue
        source = path.read_text("utf-8", errors="replace")
        try:
            tree = ast.parse(source)
        except SyntaxError:  # files that try what is not to be parsed
            continue
        module = ".".join(part for part in parts if part != "__init__")
        yield from _from_module(tree, module, source.splitlines())


def _from_module(tree: ast.Module, module: str, lines: Sequence[str]) -> Iterator[Prompt]:
    yield from _from_comments(lines, module)
    yield from _from_names(tree, module)
    for node in ast.walk(tree):
        origin = f"{module}.{getattr(node, 'name', '')}"
        if isinstance(node, _Function | ast.ClassDef | ast.Module):
            yield from _from_text(ast.get_docstring(node), origin)
        if isinstance(node, _Function):
            yield from _from_function(node, lines, origin)
        elif isinstance(node, ast.ClassDef):
            yield from _from_class(node, lines, origin)


def _from_names(tree: ast.Module, module: str) -> Iterator[Prompt]:
    """Questions about what a module offers under a name of its own."""
    if any(part.startswith("_") for part in module.split(".")):
        return
    for node in tree.body:
        if not isinstance(node, _Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node):
            name = f"{module}.{node.name}"
            template = _ABOUT_NAME[len(name) % len(_ABOUT_NAME)]
            yield Prompt(template.format(name=name), "chat", raw=False, origin=name)


def _from_comments(lines: Sequence[str], origin: str) -> Iterator[Prompt]:
    """The beginnings of paragraphs of three lines of prose and more."""
    stripped = (line.strip() for line in lines)
    for is_comment, group in groupby(stripped, lambda line: line.startswith("# ")):
        paragraph = [line.removeprefix("# ") for line in group]
        if is_comment and len(paragraph) >= 3 and "." in paragraph[-1]:
            text = " ".join(paragraph)
            if len(text) >= 2 * _SHORTEST_DESCRIPTION and text[0].isupper():
                yield Prompt(_opening(text), "text", raw=True, origin=origin)


def _from_text(text: str | None, origin: str) -> Iterator[Prompt]:
    if text and len(text) >= _SHORTEST_DESCRIPTION:
        yield Prompt(_opening(text), "text", raw=True, origin=origin)
        template = _ABOUT_TEXT[len(text) % len(_ABOUT_TEXT)]
        yield Prompt(template.format(text=text), "chat", raw=False, origin=origin)


def _opening(text: str) -> str:
    """Of 8 to 31 words, as the text's length has it."""
    return " ".join(text.split()[: 8 + len(text) % 24])


def _from_function(node: _Function, source: Sequence[str], origin: str) -> Iterator[Prompt]:
    lines = _lines_of(node, source)
    if len(lines) < 4:
        return
    yield Prompt("\n".join(lines[: 1 + len(lines) // 2]) + "\n", "code", raw=True, origin=origin)
    if ast.get_docstring(node):
        yield from _from_stub(_stub(node, lines), _ABOUT_CODE, origin)


def _from_class(node: ast.ClassDef, source: Sequence[str], origin: str) -> Iterator[Prompt]:
    if len(node.body) > 1 and ast.get_docstring(node):
        yield from _from_stub(_stub(node, _lines_of(node, source)), _ABOUT_CLASS, origin)


def _from_stub(stub: str, templates: Sequence[str], origin: str) -> Iterator[Prompt]:
    template = templates[len(stub) % len(templates)]
    yield Prompt(template.format(stub=stub), "code", raw=False, origin=origin)
    yield Prompt(stub + "\n", "code", raw=True, origin=origin)


def _lines_of(node: _Function | ast.ClassDef, source: Sequence[str]) -> list[str]:
    """Its own, from the first column on."""
    return [line[node.col_offset :] for line in source[node.lineno - 1 : node.end_lineno]]


def _stub(node: _Function | ast.ClassDef, lines: Sequence[str]) -> str:
    """What stands before the body: name, parameters or bases, and description."""
    end = node.body[0].end_lineno or node.lineno
    return "\n".join(lines[: end - node.lineno + 1])
