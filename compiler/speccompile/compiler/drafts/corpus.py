"""What a target is asked so that a draft can learn its answers: no benchmark's prompts among it.

All of it is on disk with Python: stubs, halves and descriptions of the standard library's
functions. The rest are tasks and topics of our own, each with each, and openings of conversations
where the package chitchat-dataset is installed.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from speccompile.compiler.drafts.chitchat import chitchat_openings
from speccompile.compiler.drafts.prompt_file import read_prompt_file

__all__ = ["Prompt", "builtin_prompts", "file_prompts", "split"]

Kind = Literal["chat", "code", "text"]

_TURNS: dict[Kind, int] = {"chat": 5, "code": 4, "text": 1}
_LONGEST = 1500  # characters
_SHORTEST_DESCRIPTION = 60
_LEFT_OUT = ("test", "tests", "idlelib", "lib2to3", "site-packages", "pydoc_data", "encodings")
_ABOUT_CODE = (
    "Complete this Python function:\n\n```python\n{stub}\n```",
    "Implement the following function.\n\n```python\n{stub}\n```",
    "Write the body of this function in Python, with comments:\n\n{stub}",
    "What does this function do, and how would you write it?\n\n```python\n{stub}\n```",
    "Write three unit tests for this function:\n\n```python\n{stub}\n```",
)
_ABOUT_TEXT = (
    "Summarize this in one sentence:\n\n{text}",
    "Explain the following to a beginner:\n\n{text}",
    "Rewrite this more simply:\n\n{text}",
    "Turn this into a list of bullet points:\n\n{text}",
)


class Prompt(NamedTuple):
    """A `raw` one is continued as it is; others are a user's message."""

    text: str
    kind: Kind
    raw: bool


def builtin_prompts(seed: int) -> list[Prompt]:
    """Some 40,000, of which any beginning is half chat, two fifths code and one tenth text, until
    all chat is told: some 27,000.

    The same Python and packages give the same.
    """
    found = [*_from_library(), *_from_topics(seed), *map(_chat, chitchat_openings())]
    kept = [each for each in dict.fromkeys(found) if 0 < len(each.text) <= _LONGEST]
    order = np.random.default_rng(seed).permutation(len(kept))
    return list(_mixed([kept[index] for index in order]))


def file_prompts(path: Path) -> list[Prompt]:
    """A user's own (`read_prompt_file`), each once, as messages to the target. Raises RequestError
    for a file that is no list of prompts."""
    return list(dict.fromkeys(_chat(entry.text) for entry in read_prompt_file(path)))


def split(prompts: Sequence[Prompt], share: float) -> tuple[list[Prompt], list[Prompt]]:
    """To learn from, and to hold out: about a `share`. A text is always on the same side."""
    held_out = [_number(prompt.text) < share for prompt in prompts]
    pairs = list(zip(prompts, held_out, strict=True))
    return [prompt for prompt, out in pairs if not out], [prompt for prompt, out in pairs if out]


def _mixed(prompts: Sequence[Prompt]) -> Iterator[Prompt]:
    """In turns of ten, as long as there is one of the kind."""
    rest = {kind: [each for each in prompts if each.kind == kind][::-1] for kind in _TURNS}
    while any(rest.values()):
        for kind, count in _TURNS.items():
            for _ in range(min(count, len(rest[kind]))):
                yield rest[kind].pop()


def _number(text: str) -> float:
    """From 0 to 1, by the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2.0**64


def _chat(text: str) -> Prompt:
    return Prompt(text, "chat", raw=False)


def _from_topics(seed: int) -> Iterator[Prompt]:
    folder = files("speccompile.compiler.drafts")
    topics = (folder / "topics.txt").read_text("utf-8").splitlines()
    rng = np.random.default_rng(seed)
    for template in (folder / "templates.txt").read_text("utf-8").splitlines():
        for topic, other in zip(topics, rng.permutation(topics).tolist(), strict=True):
            low, high = sorted(rng.integers(2, 100, 2).tolist())
            yield _chat(template.format(topic=topic, other=other, number=low, number2=high))


def _from_library() -> Iterator[Prompt]:
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        if any(part in _LEFT_OUT or part.startswith("test_") for part in parts):
            continue
        source = path.read_text("utf-8", errors="replace")
        try:
            tree = ast.parse(source)
        except SyntaxError:  # files that try what is not to be parsed
            continue
        yield from _from_module(tree, source.splitlines())


def _from_module(tree: ast.Module, lines: Sequence[str]) -> Iterator[Prompt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            yield from _from_text(ast.get_docstring(node))
        if isinstance(node, ast.FunctionDef):
            yield from _from_function(node, lines)


def _from_text(text: str | None) -> Iterator[Prompt]:
    if text and len(text) >= _SHORTEST_DESCRIPTION:
        yield Prompt(" ".join(text.split()[: 8 + len(text) % 24]), "text", raw=True)
        template = _ABOUT_TEXT[len(text) % len(_ABOUT_TEXT)]
        yield Prompt(template.format(text=text), "chat", raw=False)


def _from_function(node: ast.FunctionDef, source: Sequence[str]) -> Iterator[Prompt]:
    lines = [line[node.col_offset :] for line in source[node.lineno - 1 : node.end_lineno]]
    if len(lines) < 4:
        return
    yield Prompt("\n".join(lines[: 1 + len(lines) // 2]) + "\n", "code", raw=True)
    if ast.get_docstring(node):
        end = node.body[0].end_lineno or node.lineno
        stub = "\n".join(lines[: end - node.lineno + 1])
        template = _ABOUT_CODE[len(stub) % len(_ABOUT_CODE)]
        yield Prompt(template.format(stub=stub), "code", raw=False)
        yield Prompt(stub + "\n", "code", raw=True)
