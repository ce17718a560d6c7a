"""What a target is asked so that a draft can learn its answers: no benchmark's prompts among it.

All of it is on disk with Python: stubs, halves and descriptions of the standard library's
functions. The rest are tasks and topics of our own, each with each, and openings of conversations
where the package chitchat-dataset is installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from speccompile.compiler.drafts.chitchat import chitchat_openings
from speccompile.compiler.drafts.library import library_prompts
from speccompile.compiler.drafts.prompt import Kind, Prompt
from speccompile.compiler.prompt_file import read_prompt_file

__all__ = ["Prompt", "builtin_prompts", "file_prompts", "split"]

_TURNS: dict[Kind, int] = {"chat": 5, "code": 4, "text": 1}
_LONGEST = 1500  # characters


def builtin_prompts(seed: int) -> list[Prompt]:
    """Some 60,000, of which any beginning is half chat, two fifths code and one tenth text, until
    all code is told: some 54,000.

    The same Python and packages give the same.
    """
    found = [*library_prompts(), *_from_topics(seed), *map(_chat, chitchat_openings())]
    kept = [each for each in _distinct(found) if 0 < len(each.text) <= _LONGEST]
    order = np.random.default_rng(seed).permutation(len(kept))
    return list(_mixed([kept[index] for index in order]))


def file_prompts(path: Path) -> list[Prompt]:
    """A user's own (`read_prompt_file`), each once, as messages to the target. Raises RequestError
    for a file that is no list of prompts."""
    return list(_distinct(_chat(entry.text) for entry in read_prompt_file(path)))


def split(prompts: Sequence[Prompt], share: float) -> tuple[list[Prompt], list[Prompt]]:
    """To learn from, and to hold out: about a `share`. An origin is always on the same side."""
    held_out = [_number(prompt.origin) < share for prompt in prompts]
    pairs = list(zip(prompts, held_out, strict=True))
    return [prompt for prompt, out in pairs if not out], [prompt for prompt, out in pairs if out]


def _distinct(prompts: Iterable[Prompt]) -> Iterable[Prompt]:
    """Each text once, of the first origin it has."""
    found: dict[tuple[str, bool], Prompt] = {}
    for prompt in prompts:
        found.setdefault((prompt.text, prompt.raw), prompt)
    return found.values()


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
    return Prompt(text, "chat", raw=False, origin=text)


def _from_topics(seed: int) -> Iterator[Prompt]:
    folder = files("speccompile.compiler.drafts")
    topics = (folder / "topics.txt").read_text("utf-8").splitlines()
    rng = np.random.default_rng(seed)
    for template in (folder / "templates.txt").read_text("utf-8").splitlines():
        for topic, other in zip(topics, rng.permutation(topics).tolist(), strict=True):
            low, high = sorted(rng.integers(2, 100, 2).tolist())
            text = template.format(topic=topic, other=other, number=low, number2=high)
            yield Prompt(text, "chat", raw=False, origin=f"topic {topic}")
