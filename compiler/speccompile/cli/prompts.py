"""Lists of prompts: those that ship, or a file of the user's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path

from speccompile.compiler.prompt_file import entry_of_text, read_prompt_file
from speccompile.runtime.chat import Message
from speccompile.runtime.errors import RequestError
from speccompile.runtime.runner import Runner

__all__ = ["SHIPPED_SETS", "Prompt", "encode", "read_prompts", "read_sets", "select"]

SHIPPED_SETS = ("chat", "code", "copy", "hostile")
"""Conversation, programming, texts that come again in the answer, texts that cannot be guessed."""

_SHIPPED = "builtin:"


@dataclass(frozen=True)
class Prompt:
    """A text, the name of the set that it is of, and its category within the set, if it has one."""

    text: str
    set: str
    category: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """What it is counted among: its set, and its category."""
        return (self.set, self.category) if self.category else (self.set,)


def read_prompts(path: Path | None = None) -> list[str]:
    """The prompts of a file (`read_prompt_file`); without a path, the list that ships."""
    if path is None:
        return [prompt.text for prompt in read_sets(())]
    return [prompt.text for prompt in _read(path)]


def encode(runner: Runner, texts: Sequence[str], *, raw: bool) -> list[list[int]]:
    """The prompts' tokens; one that is too long is refused here, not minutes later."""
    encoded: list[list[int]] = []
    for number, text in enumerate(texts, start=1):
        turn: Message = {"role": "user", "content": text}
        tokens = (
            runner.encode_raw(text) if raw or runner.reads_source else runner.encode_chat([turn])
        )
        if len(tokens) + 2 > runner.context:
            raise RequestError(
                f"prompt {number} has {len(tokens)} tokens; that leaves too little of the context "
                f"of {runner.context}: shorten it or leave it out"
            )
        encoded.append(tokens)
    return encoded


def read_sets(sources: Sequence[str]) -> list[Prompt]:
    """The prompts of several sets, one set after the other; without sources, the list that ships.

    A source is a file (`read_prompt_file`), or ``builtin:`` and one of the `SHIPPED_SETS`. A set
    has the name of its file, without the ending.
    """
    if not sources:
        return _shipped("speccompile.compiler", "prompts.txt", "default")
    return [prompt for source in sources for prompt in _read_source(source)]


def select(
    prompts: Sequence[Prompt], *, categories: Sequence[str] = (), most: int | None = None
) -> list[Prompt]:
    """Those of some sets or categories, by default of all, and at most so many of each category.

    Sets take turns, and so do the categories within each: the first n are a mixture, whatever n is.
    Raises RequestError for a category that no prompt is of.
    """
    known = sorted({label for prompt in prompts for label in prompt.labels})
    for name in categories:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            way_out = f"did you mean {close[0]}?" if close else f"choose of {', '.join(known)}"
            raise RequestError(f"no prompt is of the category {name!r}; {way_out}")
    sets: dict[str, dict[str, list[Prompt]]] = {}
    for prompt in prompts:
        if not categories or any(label in categories for label in prompt.labels):
            sets.setdefault(prompt.set, {}).setdefault(prompt.category, []).append(prompt)
    return _in_turn(
        _in_turn(own[:most] for own in by_category.values()) for by_category in sets.values()
    )


def _in_turn(lists: Iterable[Sequence[Prompt]]) -> list[Prompt]:
    """The first of each, then the second of each, and so on."""
    return [prompt for turn in zip_longest(*lists) for prompt in turn if prompt is not None]


def _read_source(source: str) -> list[Prompt]:
    if not source.startswith(_SHIPPED):
        return _read(Path(source))
    name = source.removeprefix(_SHIPPED)
    if name not in SHIPPED_SETS:
        raise RequestError(f"{source}: is not one of the sets that ship: {', '.join(SHIPPED_SETS)}")
    return _shipped("speccompile.cli.prompt_sets", f"{name}.txt", name)


def _shipped(package: str, file: str, name: str) -> list[Prompt]:
    text = files(package).joinpath(file).read_text("utf-8")
    return [Prompt(entry_of_text(line).text, name) for line in text.split("\n") if line.strip()]


def _read(path: Path) -> list[Prompt]:
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    return [Prompt(entry.text, name, entry.category) for entry in read_prompt_file(path)]
