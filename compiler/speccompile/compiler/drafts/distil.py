"""Make a small draft of a target: have the target answer prompts, and teach some of its layers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
    most so many `seconds` go by before the draft is written as it is by then.
    """
    started, settings = time.monotonic(), recipe.distil or DistilTable()
    until = started + seconds if seconds is not None else float("inf")
    target = open_checkpoint(
        recipe.target.source, sha256=recipe.target.sha256, cache=cache, report=observer.fetching
    )
    shards = _shards(target, settings, cache / "drafts")
    _answer(target, shards, observer)
    held_out = {kind: shards[kind].read() for kind in _TESTED_KINDS}
    taught = shards[""].read()
    layers = settings.layers or default_layers(settings.count, target.config.layers)
    counts = _counts(taught, target.config.vocab_size)
    vocabulary = _vocabulary(target, counts, settings.vocabulary)
    torch.manual_seed(settings.seed)  # pyright: ignore[reportUnknownMemberType]
    student = Student.of(target.config, target.tensor, layers, vocabulary)
    trainer = Trainer(
        student,
        taught,
        [response for responses in held_out.values() for response in responses],
        Schedule(settings.tokens, rate=settings.rate, seed=settings.seed),
        _training_folder(target, settings, shards),
    )
    done = trainer.train(until=until, points=_POINTS, report=observer.training)
    found = {kind: trainer.evaluate(responses) for kind, responses in held_out.items()}
    training = {
        "layers": layers,
        "settings": settings.model_dump(mode="json"),
        "responses": len(taught),
        "response_tokens": sum(len(response.tokens) for response in taught),
        "tokens": trainer.seen,
        "held_out": {kind: asdict(acceptance) for kind, acceptance in found.items()},
        "curve": [asdict(point) for point in trainer.curve],
    }
    write_draft(
        folder,
        config=student.decoder.config,
        read=student.read,
        int8=True,
        target=target.provenance,
        token_counts=counts,
        training=training,
    )
    return Distilled(folder, tuple(layers), done, trainer.seen, trainer.curve, found)


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


def _shards(target: Checkpoint, settings: DistilTable, cache: Path) -> dict[str, Shards]:
    """Prompts to learn from, under "", and to test on, by kind; with a user's own before ours."""
    own = file_prompts(settings.own) if settings.own else []
    learned, held_out = split([*own, *builtin_prompts(settings.seed)], _HELD_OUT)
    encode = _Encoder(target.tokenizer)

    def shards(prompts: Iterable[Prompt], count: int, *, greedy: bool) -> Shards:
        ids = list(encode.fitting(prompts, count))
        key = _key("responses", target, [settings.length, settings.seed, greedy, ids])
        return Shards(cache / key, ids, settings.length, settings.seed, greedy)

    found = {"": shards(learned, settings.prompts, greedy=False)}
    for kind in _TESTED_KINDS:
        of_kind = (each for each in held_out if each.kind == kind)
        found[kind] = shards(of_kind, _TESTED, greedy=True)
    return found


def _answer(target: Checkpoint, shards: Mapping[str, Shards], observer: Observer) -> None:
    decoder = open_target(target.config, target.tensor)
    total = sum(each.count for each in shards.values())
    done = said = 0
    for each in shards.values():

        def report(number: int, tokens: int, done: int = done, said: int = said) -> None:
            observer.responding(done + number, total, said + tokens)

        said += each.generate(decoder, target.tokenizer.eos_token_ids, report)
        done += each.count


class _Encoder:
    """Prompts as tokens, as an artifact of the target would have them."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._tokenizer = Tokenizer.from_str(files.tokenizer_json)
        self._template: ChatTemplate | None = None
        if files.chat_template:
            bos, eos = files.bos_token or "", files.eos_token or ""
            self._template = ChatTemplate(files.chat_template, bos_token=bos, eos_token=eos)

    def fitting(self, prompts: Iterable[Prompt], count: int) -> Iterator[list[int]]:
        """The first `count` that are not too long."""
        for prompt in prompts:
            if count == 0:
                return
            ids = self._ids(prompt)
            if 0 < len(ids) <= _LONGEST_PROMPT:
                count -= 1
                yield ids

    def _ids(self, prompt: Prompt) -> list[int]:
        if prompt.raw or not self._template:
            return list(self._tokenizer.encode(prompt.text).ids)
        text = self._template.render([{"role": "user", "content": prompt.text}])
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _counts(responses: Sequence[Response], size: int) -> NDArray[np.int64]:
    """How often each token was said, and how often it was among the likeliest, by probability."""
    counts = np.zeros(size)
    for response in responses:
        np.add.at(counts, response.likeliest, response.probabilities)
    return np.ceil(counts).astype(np.int64)


def _vocabulary(target: Checkpoint, counts: NDArray[np.int64], size: int) -> torch.Tensor:
    if not 0 < size < target.config.vocab_size:
        return torch.arange(target.config.vocab_size)
    chosen = choose_tokens(
        Tokenizer.from_str(target.tokenizer.tokenizer_json),
        counts,
        size,
        vocab_size=target.config.vocab_size,
        ends=target.tokenizer.eos_token_ids,
    )
    return torch.from_numpy(chosen.astype(np.int64))
