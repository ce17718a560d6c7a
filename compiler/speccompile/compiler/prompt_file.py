"""A user's list of prompts: a file that the commands read, and that a draft can learn from."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from speccompile.runtime.errors import RequestError

__all__ = ["Entry", "entry_of_text", "read_prompt_file"]


class Entry(NamedTuple):
    """A prompt, and its category if the list tells one."""

    text: str
    category: str = ""


def read_prompt_file(path: Path) -> list[Entry]:
    """The prompts of a file, by its ending.

    ``.txt`` has one prompt a line, with ``\\n`` for a line break; ``.jsonl`` and ``.jsonl.gz`` have
    one object a line, whose ``prompt`` is a text or whose ``turns`` begin with one, and which may
    have a ``category``. Empty lines are skipped. Raises RequestError, naming the file and line, for
    anything else.
    """
    if not path.name.endswith((".txt", ".jsonl", ".jsonl.gz")):
        raise RequestError(f"{path}: the name of a list must end in .txt, .jsonl or .jsonl.gz")
    read = entry_of_text if path.suffix == ".txt" else _entry_of_json
    entries: list[Entry] = []
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            try:
                entries.append(read(line))
            except ValueError as error:
                raise RequestError(f"{path}:{number}: {error}") from error
    if not entries:
        raise RequestError(f"{path}: has no prompts; give at least one line")
    return entries


def entry_of_text(line: str) -> Entry:
    """A line of a ``.txt``."""
    return Entry(line.replace("\\n", "\n"))


def _lines(path: Path) -> Iterator[str]:
    """Lines without their ends; nothing but a line break ends one, as JSON Lines has it."""
    try:
        with _open(path) as file:
            for line in file:
                yield line.removesuffix("\n")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: is not UTF-8 text ({error.reason})") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RequestError(f"{path}: is not a whole gzip file ({error})") from error
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def _entry_of_json(line: str) -> Entry:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    match entry:
        case {"prompt": str(prompt)} | {"turns": [str(prompt), *_]} if prompt.strip():
            category = entry.get("category", "")
        case _:
            raise ValueError("needs a text under `prompt`, or a list of texts under `turns`")
    if not isinstance(category, str):
        raise ValueError("has a `category` that is no text")
    (prompt + category).encode()  # a lone surrogate is JSON, but no text: that is a ValueError
    return Entry(prompt, category)
