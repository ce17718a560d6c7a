"""Lists of prompts: the one that ships, or a file of the user's."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import IO

from speccompile.runtime.errors import RequestError

__all__ = ["read_prompts"]


def read_prompts(path: Path | None = None) -> list[str]:
    """The prompts of a file, by its ending; without a path, the list that ships.

    ``.txt`` has one prompt a line, with ``\\n`` for a line break; ``.jsonl`` and ``.jsonl.gz`` have
    one object a line, whose ``prompt`` is a text or whose ``turns`` begin with one. Empty lines are
    skipped. Raises RequestError, naming the file and line, for anything else.
    """
    if path is None:
        shipped = files("speccompile.compiler").joinpath("prompts.txt")
        return [_unescaped(line) for line in shipped.read_text("utf-8").split("\n") if line.strip()]
    if not path.name.endswith((".txt", ".jsonl", ".jsonl.gz")):
        raise RequestError(f"{path}: the name of a list must end in .txt, .jsonl or .jsonl.gz")
    read = _unescaped if path.suffix == ".txt" else _prompt_of_json
    prompts: list[str] = []
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            try:
                prompts.append(read(line))
            except ValueError as error:
                raise RequestError(f"{path}:{number}: {error}") from error
    if not prompts:
        raise RequestError(f"{path}: has no prompts; give at least one line")
    return prompts


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


def _unescaped(line: str) -> str:
    return line.replace("\\n", "\n")


def _prompt_of_json(line: str) -> str:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    match entry:
        case {"prompt": str(prompt)} | {"turns": [str(prompt), *_]} if prompt.strip():
            prompt.encode()  # a lone surrogate is JSON, but no text: that is a ValueError
            return prompt
        case _:
            raise ValueError("needs a text under `prompt`, or a list of texts under `turns`")
