"""Make a small draft of a target: have the target answer prompts, and teach some of its layers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from speccompile.compiler.draft_vocabulary import choose_tokens
from speccompile.compiler.drafts.acceptance import Acceptance
from speccompile.compiler.drafts.corpus import builtin_prompts, file_prompts, split
from speccompile.compiler.drafts.folder import write_draft
from speccompile.compiler.drafts.prompt import Prompt
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.shards import Shards
from speccompile.compiler.drafts.student import Student, default_layers, open_target
from speccompile.compiler.drafts.training import Point, Schedule, Trainer
from speccompile.compiler.recipes.schema import DistilTable, Recipe
from speccompile.compiler.sources.checkpoint import Checkpoint, TokenizerFiles
from speccompile.compiler.sources.opening import open_checkpoint
from speccompile.runtime.chat import ChatTemplate
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.prompts import Prompts

__all__ = ["Distilled", "Observer", "distil"]

_HELD_OUT = 0.05
_TESTED = 96  # held-out prompts, of each kind, at most
_TESTED_KINDS = ("chat", "code")
_POINTS = 24  # of the curve
_LONGEST_PROMPT = 256  # tokens: what is longer is left out


class Observer:
    """Is told how far it is; this one tells nobody."""

    def fetching(self, message: str) -> None: ...

    def responding(self, done: int, total: int, tokens: int) -> None: ...

    def training(self, trainer: Trainer) -> None: ...


@dataclass(frozen=True)
class Distilled:
    """A draft in its folder. `acceptance` is by kind of held-out prompt; where time was up before
    all was learned it is not `done`, and the same call goes on."""

    folder: Path
    layers: tuple[int, ...]
    done: bool
    tokens: int
    curve: Sequence[Point]
    acceptance: Mapping[str, Acceptance]


def distil(
    recipe: Recipe, folder: Path, *, cache: Path, seconds: float | None, observer: Observer
) -> Distilled:
    """Train a draft of the recipe's target, as its table `distil` says, and write it to `folder`.

    Responses and the state of training are kept in `cache`, under a hash of all they depend on. At
    most so many `seconds` go by before the draft is written as it is by then. Raises
    SpeccompileError where the table does not fit the target.
    """
    started, settings = time.monotonic(), recipe.distil or DistilTable()
    until = started + seconds if seconds is not None else float("inf")
    target = open_checkpoint(
        recipe.target.source, sha256=recipe.target.sha256, cache=cache, report=observer.fetching
    )
    layers = settings.layers or default_layers(settings.count, target.config.layers)
    files = target.tokenizer
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    shards = _shards(target, _prompts(target, files, tokenizer), settings, cache / "drafts")
    _answer(target, shards, files.eos_token_ids, observer)
    taught = shards[""].read()
    held_out = {kind: shards[kind].read() for kind in _TESTED_KINDS}
    counts = _counts(taught, target.config.vocab_size)
    vocabulary: NDArray[np.int32] = np.arange(target.config.vocab_size, dtype=np.int32)
    if 0 < settings.vocabulary < len(vocabulary):
        vocabulary = choose_tokens(
            *(tokenizer, counts, settings.vocabulary),
            vocab_size=len(vocabulary),
            ends=files.eos_token_ids,
        )
    trainer = Trainer(
        Student.of(target.config, target.tensor, layers, torch.from_numpy(vocabulary).long()),
        taught,
        [response for responses in held_out.values() for response in responses],
        Schedule(settings.tokens, rate=settings.rate, seed=settings.seed),
        _training_folder(target, settings, shards),
    )
    done = trainer.train(until=until, points=_POINTS, report=observer.training)
    found = {kind: trainer.evaluate(responses) for kind, responses in held_out.items()}
    distilled = Distilled(folder, tuple(layers), done, trainer.seen, trainer.curve, found)
    _write(distilled, trainer, target, settings, counts)
    return distilled


def _write(
    distilled: Distilled,
    trainer: Trainer,
    target: Checkpoint,
    settings: DistilTable,
    counts: NDArray[np.int64],
) -> None:
    training = {
        "layers": distilled.layers,
        "settings": settings.model_dump(mode="json"),
        "responses": len(trainer.responses),
        "response_tokens": sum(len(response.tokens) for response in trainer.responses),
        "tokens": distilled.tokens,
        "held_out": {kind: asdict(found) for kind, found in distilled.acceptance.items()},
        "curve": [asdict(point) for point in distilled.curve],
    }
    write_draft(
        distilled.folder,
        config=trainer.student.decoder.config,
        read=trainer.student.read,
        int8=True,
        target=target.provenance,
        token_counts=counts,
        training=training,
    )


def _key(what: str, target: Checkpoint, settings: object) -> str:
    """The name of a folder, by all that its content depends on."""
    identity = json.dumps([target.provenance.sha256, settings], sort_keys=True)
    return f"{what}-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"


def _training_folder(
    target: Checkpoint, settings: DistilTable, shards: Mapping[str, Shards]
) -> Path:
    """It depends on the answers too, whose folders are named by all that these depend on."""
    answers = {kind: each.folder.name for kind, each in shards.items()}
    name = _key("training", target, [settings.model_dump(mode="json"), answers])
    return shards[""].folder.parent / name


def _prompts(target: Checkpoint, files: TokenizerFiles, tokenizer: Tokenizer) -> Prompts:
    """As an artifact of the target would have them."""

    def open_template() -> ChatTemplate:
        bos, eos = files.bos_token or "", files.eos_token or ""
        return ChatTemplate(files.chat_template or "", bos_token=bos, eos_token=eos)

    return Prompts(
        tokenizer, open_template if files.chat_template else None, target.provenance.source
    )


def _shards(
    target: Checkpoint, encoder: Prompts, settings: DistilTable, folder: Path
) -> dict[str, Shards]:
    """Prompts to learn from, under "", and to test on, by kind; with a user's own before ours."""
    if _LONGEST_PROMPT + settings.length > target.config.context_length:
        raise SpeccompileError(
            f"distil.length is {settings.length}, but with prompts of {_LONGEST_PROMPT} the target "
            f"was trained for {target.config.context_length - _LONGEST_PROMPT}; lower it"
        )
    own = file_prompts(settings.own) if settings.own else []
    learned, held_out = split([*own, *builtin_prompts(settings.seed)], _HELD_OUT)

    def shards(prompts: Iterable[Prompt], count: int, *, greedy: bool) -> Shards:
        encoded = (
            encoder.encode_raw(each.text) if each.raw else encoder.encode(each.text)
            for each in prompts
        )
        fitting = (ids for ids in encoded if 0 < len(ids) <= _LONGEST_PROMPT)
        ids = list(islice(fitting, count))
        key = _key("responses", target, [settings.length, settings.seed, greedy, ids])
        return Shards(folder / key, ids, settings.length, settings.seed, greedy)

    found = {"": shards(learned, settings.prompts, greedy=False)}
    for kind in _TESTED_KINDS:
        of_kind = (each for each in held_out if each.kind == kind)
        found[kind] = shards(of_kind, _TESTED, greedy=True)
    return found


def _answer(
    target: Checkpoint, shards: Mapping[str, Shards], ends: Sequence[int], observer: Observer
) -> None:
    if all(each.complete for each in shards.values()):
        return
    decoder = open_target(target.config, target.tensor)
    total = sum(each.count for each in shards.values())
    done = said = 0
    for each in shards.values():

        def report(number: int, tokens: int, done: int = done, said: int = said) -> None:
            observer.responding(done + number, total, said + tokens)

        said += each.generate(decoder, ends, report)
        done += each.count


def _counts(responses: Sequence[Response], size: int) -> NDArray[np.int64]:
    """How often each token was to be said, by the target's laws, rounded up: [size]."""
    counts = np.zeros(size)
    for response in responses:
        np.add.at(counts, response.likeliest, response.probabilities)
    return np.ceil(counts).astype(np.int64)
