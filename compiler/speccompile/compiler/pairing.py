"""Do two models mean the same by a token id? A draft proposes ids, so it must.

The rows of an embedding beyond the tokenizer's last token are padding, which makers add to round a
matrix up. They differ between models of one family, are never read and must never be emitted: a
pair is compiled without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

from tokenizers import Tokenizer

from speccompile.runtime.errors import SpeccompileError

__all__ = ["PairError", "Vocabulary", "check_same_tokens"]

_SHOWN = 48  # characters of a text that differs


class PairError(SpeccompileError):
    """Draft and target do not fit together, or not the recipe."""


@dataclass(frozen=True)
class Vocabulary:
    """A model's tokenizer as its `load` stage wrote it down, and the `rows` of its embedding."""

    source: str
    files: Mapping[str, Any]
    rows: int

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_str(self.files["tokenizer_json"])

    @cached_property
    def tokens(self) -> dict[int, str]:
        """Every token by its id, added ones included."""
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        return {identifier: text for text, identifier in vocabulary.items()}

    @property
    def used(self) -> int:
        """Ids from here on are padding."""
        return min(max(self.tokens, default=-1) + 1, self.rows)


def check_same_tokens(target: Vocabulary, draft: Vocabulary, probe: str) -> list[str]:
    """Raise PairError at the first difference between two tokenizers.

    Ids, merges and special tokens are compared as data; how text is split before it is merged, on
    the text `probe`, for the same splitting can be written down in many ways. Returns differences
    that do no harm but may come as a surprise, each in one line.
    """
    for difference in _differences(target, draft, probe):
        raise PairError(
            f"{difference}; choose a draft with the target's tokenizer "
            f"(target {target.source}, draft {draft.source})"
        )
    return list(_curiosities(target, draft))


def _differences(target: Vocabulary, draft: Vocabulary, probe: str) -> Iterator[str]:
    ours, theirs = target.tokens, draft.tokens
    for identifier in sorted(ours.keys() | theirs.keys()):
        if ours.get(identifier) != theirs.get(identifier):
            what = f"token {identifier}"
            yield _differs(what, ours.get(identifier), theirs.get(identifier))
    for number, pair in enumerate(zip_longest(_merges(target), _merges(draft))):
        if pair[0] != pair[1]:
            yield _differs(f"merge {number}", *pair)
    for key in ("bos_token", "eos_token"):
        if target.files[key] != draft.files[key]:
            yield _differs(key, target.files[key], draft.files[key])
    yield from _split_differently(target.tokenizer, draft.tokenizer, probe)


def _curiosities(target: Vocabulary, draft: Vocabulary) -> Iterator[str]:
    """The target's template is the one that is used."""
    texts = target.files["chat_template"], draft.files["chat_template"]
    if all(texts) and texts[0] != texts[1]:
        lines = zip_longest(*(str(text).splitlines() for text in texts))
        number, (ours_line, theirs_line) = next(
            (number, pair) for number, pair in enumerate(lines, 1) if pair[0] != pair[1]
        )
        what = f"line {number} of the chat template"
        yield f"{_differs(what, ours_line, theirs_line)}; the target's is used"


def _differs(what: str, ours: object, theirs: object) -> str:
    if isinstance(ours, str) and isinstance(theirs, str):
        pairs = enumerate(zip_longest(ours, theirs))
        start = max(next((at for at, (left, right) in pairs if left != right), 0) - 20, 0)
        ours, theirs = ours[start : start + _SHOWN], theirs[start : start + _SHOWN]
    return f"{what} is {ours!r} to the target and {theirs!r} to the draft"


def _merges(vocabulary: Vocabulary) -> list[object]:
    """The merge rules in the library's own way of writing them, of which there are two in files."""
    merges: list[object] = json.loads(vocabulary.tokenizer.to_str())["model"].get("merges") or []
    return merges


def _split_differently(target: Tokenizer, draft: Tokenizer, probe: str) -> Iterator[str]:
    for line in probe.splitlines(keepends=True):
        if target.encode(line).ids != draft.encode(line).ids:
            yield f"target and draft split {line[:60]!r} differently"
