"""A target and what it says to prompts, made ready to learn from: what every way to train needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from speccompile.compiler.drafts.asking import learned_tokens, open_prompts
from speccompile.compiler.drafts.corpus import builtin_prompts, file_prompts, split
from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.prompt import Prompt
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.shards import Shards
from speccompile.compiler.drafts.student import open_target
from speccompile.compiler.drafts.target_caches import TargetCaches
from speccompile.compiler.recipe import Recipe, check_trained
from speccompile.compiler.sources.checkpoint import Checkpoint
from speccompile.compiler.sources.opening import open_checkpoint
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.prompts import Prompts

__all__ = ["Answers", "AnswersObserver", "Asked", "answers_of", "open_asked"]

_HELD_OUT = 0.05
_TESTED = 96  # held-out prompts, of each kind, at most
_TESTED_KINDS = ("chat", "code")
_LONGEST_PROMPT = 256  # tokens: what is longer is left out


class Asked(Protocol):
    """What a recipe's table says of prompts and answers; see `DistilTable`."""

    @property
    def own(self) -> Path | None: ...
    @property
    def prompts(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def seed(self) -> int: ...


class AnswersObserver:
    """Is told how far it is; this one tells nobody."""

    def responding(self, done: int, total: int, tokens: int) -> None: ...


@dataclass(frozen=True)
class Answers:
    """Of `target`: answers to learn from, and greedy ones, by kind, to test on.

    `counts` [V] are how often each token was to be said, and `vocabulary` [K], rising, those that a
    draft learns to propose. `names` are of the files of the answers: what is made of them depends
    on these; `folder` is where they lie in.
    """

    target: Checkpoint
    taught: Sequence[Response]
    held_out: Mapping[str, Sequence[Response]]
    counts: NDArray[np.int64]
    vocabulary: Tensor
    names: Mapping[str, Sequence[str]]
    folder: Path

    @property
    def tested(self) -> list[Response]:
        """All that are held out."""
        return [response for responses in self.held_out.values() for response in responses]


def open_asked(recipe: Recipe, cache: Path, report: Callable[[str], None]) -> Checkpoint:
    """The recipe's target; `report` is told what it is waited for. Raises SpeccompileError for one
    that no draft is made of."""
    check_trained(recipe)
    target = open_checkpoint(
        recipe.target.source, sha256=recipe.target.sha256, cache=cache, report=report
    )
    if target.config.encoder:
        raise SpeccompileError(
            f"{target.provenance.source}: is an encoder-decoder, of which no draft is made here; "
            "name a smaller one with its tokenizer as draft.source"
        )
    return target


def answers_of(
    target: Checkpoint,
    asked: Asked,
    *,
    table: str,
    cache: Path,
    observer: AnswersObserver,
    caches: Callable[[Decoder], TargetCaches] | None = None,
) -> Answers:
    """Have the target answer what it has not answered yet.

    `table` is what the recipe calls `asked`. What the target reads by then is kept in `caches`, of
    the target. Raises SpeccompileError where `asked` does not fit the target.
    """
    files = target.tokenizer
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    folder, encoder = cache / "drafts", open_prompts(target, tokenizer)
    shards = _shards(target, encoder, asked, table, folder)
    _answer(target, shards, caches, observer)
    taught = shards[""].read()
    counts = _counts(taught, target.config.vocab_size)
    vocabulary = learned_tokens(tokenizer, counts, asked.vocabulary, files.eos_token_ids)
    held_out = {kind: shards[kind].read() for kind in _TESTED_KINDS}
    names = {kind: each.names for kind, each in shards.items()}
    return Answers(target, taught, held_out, counts, vocabulary, names, folder)


def _shards(
    target: Checkpoint, encoder: Prompts, asked: Asked, table: str, folder: Path
) -> dict[str, Shards]:
    """Prompts to learn from, under "", and to test on, by kind; with a user's own before ours."""
    if _LONGEST_PROMPT + asked.length > target.config.context_length:
        raise SpeccompileError(
            f"{table}.length is {asked.length}, but with prompts of {_LONGEST_PROMPT} the target "
            f"was trained for {target.config.context_length - _LONGEST_PROMPT}; lower it"
        )
    own = file_prompts(asked.own) if asked.own else []
    learned, held_out = split([*own, *builtin_prompts(asked.seed)], _HELD_OUT)

    def shards(prompts: Iterable[Prompt], count: int, *, greedy: bool) -> Shards:
        encoded = (
            encoder.encode_raw(each.text) if each.raw else encoder.encode(each.text)
            for each in prompts
        )
        fitting = (ids for ids in encoded if 0 < len(ids) <= _LONGEST_PROMPT)
        ids = list(islice(fitting, count))
        sha256 = target.provenance.sha256
        return Shards(folder / "answers", sha256, ids, asked.length, asked.seed, greedy)

    found = {"": shards(learned, asked.prompts, greedy=False)}
    for kind in _TESTED_KINDS:
        of_kind = (each for each in held_out if each.kind == kind)
        found[kind] = shards(of_kind, _TESTED, greedy=True)
    return found


def _answer(
    target: Checkpoint,
    shards: Mapping[str, Shards],
    caches: Callable[[Decoder], TargetCaches] | None,
    observer: AnswersObserver,
) -> None:
    if all(each.complete for each in shards.values()):
        return
    decoder, ends = open_target(target.config, target.tensor), target.tokenizer.eos_token_ids
    kept = caches(decoder) if caches else None
    total = sum(each.count for each in shards.values())
    done = said = 0
    for each in shards.values():

        def report(number: int, tokens: int, done: int = done, said: int = said) -> None:
            observer.responding(done + number, total, said + tokens)

        said += each.generate(decoder, ends, report, kept)
        done += each.count


def _counts(responses: Sequence[Response], size: int) -> NDArray[np.int64]:
    """How often each token was to be said, by the target's laws, rounded up: [size]."""
    counts = np.zeros(size)
    for response in responses:
        np.add.at(counts, response.likeliest, response.probabilities)
    return np.ceil(counts).astype(np.int64)
