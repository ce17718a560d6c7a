"""Train a T5 and a draft of it from nothing: the target on a task, the draft on its answers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from speccompile.compiler.decoder import DecoderConfig, Encoder, LayerKind, PositionBias
from speccompile.compiler.drafts.acceptance import Acceptance
from speccompile.compiler.drafts.answers import AnswersObserver
from speccompile.compiler.drafts.lesson import lessons, loss_of, surprise_of
from speccompile.compiler.drafts.pieces import END_ID, PAD_ID
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.shards import read_responses, write_responses
from speccompile.compiler.drafts.t5_folder import write_t5
from speccompile.compiler.drafts.task import Task, open_task
from speccompile.compiler.drafts.training import Schedule, Trainer, stands
from speccompile.compiler.drafts.translations import translate
from speccompile.compiler.drafts.translator import Translator
from speccompile.compiler.recipe import Recipe, T5ModelTable, T5Table, pair_folders
from speccompile.runtime.errors import SpeccompileError

__all__ = ["PairObserver", "Role", "TrainedPair", "train_pair"]

Role = Literal["target", "draft"]

_PROMPTS_FILE = "held-out.txt"

_POINTS = 24  # of a curve
_GLANCED = 4  # every so many of the tests are looked at for it
_ROOM = 512  # tokens of a batch: a training of minutes lacks steps
_BATCH = 256  # texts answered together
_CONTEXT = 512  # as T5 says of itself; distances have no end


class PairObserver(AnswersObserver):
    """Is told how far it is; this one tells nobody."""

    def fetching(self, message: str) -> None: ...

    def training(self, role: Role, trainer: Trainer) -> None: ...


@dataclass(frozen=True)
class TrainedPair:
    """Models in their `folders`, by role, with their `parameters`. Of the target, on words that it
    never saw: the share of right `tokens` behind right ones, and of right `words` in its own
    answers; of the draft, how far its chains stand on these answers. Without one the target is not
    done. `prompts` is a list of the tested texts."""

    folders: Mapping[str, Path]
    parameters: Mapping[str, int]
    tokens: float
    words: float
    acceptance: Acceptance | None
    prompts: Path
    done: bool


def train_pair(
    recipe: Recipe, *, cache: Path, seconds: float | None, observer: PairObserver
) -> TrainedPair:
    """Train both models of the recipe, as its table `t5` says, and write them where it names them.

    Vocabulary, states and answers are kept in `cache`, under a hash of all they depend on. After so
    many `seconds` what is learned is written: of the draft nothing, before the target is done.
    Raises SpeccompileError where the recipe has no such table, or a loss is not finite.
    """
    started, settings = time.monotonic(), _settings(recipe)
    until = started + seconds if seconds is not None else float("inf")
    folders, task = pair_folders(recipe), open_task(settings, cache, observer.fetching)
    target = _pupil(task, settings, "target", task.lessons, task.tests)
    done = target.learn(until, observer)
    answers = target.answers(task, task.tests)
    tokens, words = _right_tokens(target, task.tests), _right_words(task, answers)
    target.write(folders["target"], task, {"tokens": tokens, "words": words})
    parameters, found = {"target": target.size}, None
    if done:
        taught = _taught(task, target, settings.answers, observer)
        draft = _pupil(task, settings, "draft", taught, answers)
        done = draft.learn(until, observer)
        found = stands(draft.translator, answers)
        draft.write(folders["draft"], task, asdict(found))
        parameters["draft"] = draft.size
    prompts = folders["target"].parent / _PROMPTS_FILE
    prompts.write_text("".join(f"{pair.source}\n" for pair in task.tested), encoding="utf-8")
    return TrainedPair(folders, parameters, tokens, words, found, prompts, done)


def _settings(recipe: Recipe) -> T5Table:
    if recipe.t5 is None:
        raise SpeccompileError(
            f"{recipe.name}: has no table [t5], which says what the pair learns; "
            "take recipes/t5-phonemes.toml as an example"
        )
    return recipe.t5


@dataclass(frozen=True)
class _Pupil:
    """A model of the pair that learns."""

    role: Role
    settings: T5ModelTable
    translator: Translator
    trainer: Trainer

    @property
    def size(self) -> int:
        """Parameters."""
        return sum(values.numel() for values in self.translator.trained.values())

    def learn(self, until: float, observer: PairObserver) -> bool:
        """Whether it is done."""

        def report(trainer: Trainer) -> None:
            observer.training(self.role, trainer)

        return self.trainer.train(until=until, points=_POINTS, report=report)

    def answers(self, task: Task, lessons: Sequence[Response]) -> Sequence[Response]:
        """Greedy ones; what does not end is cut where the longest of the task would end."""
        texts = [each.prompt.tolist() for each in lessons]
        return translate(self.translator.model, texts, length=task.longest, end=END_ID)

    def write(self, folder: Path, task: Task, held_out: Mapping[str, object]) -> None:
        training = {
            "settings": self.settings.model_dump(mode="json"),
            "sentences": len(self.trainer.responses),
            "tokens": self.trainer.seen,
            "held_out": held_out,
            "curve": [asdict(point) for point in self.trainer.curve],
        }
        config, read = self.translator.model.config, self.translator.read
        write_t5(folder, config, read, task.tokenizer, training)


def _pupil(
    task: Task,
    settings: T5Table,
    role: Role,
    taught: Sequence[Response],
    held_out: Sequence[Response],
) -> _Pupil:
    """Its state is kept under all that its curve depends on, a draft's under its target's too."""
    model = settings.target if role == "target" else settings.draft
    made_of: list[object] = [settings.target.model_dump()]
    if role == "draft":
        made_of += [model.model_dump(), settings.answers]
    digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:24]
    config = _config(model, task.tokenizer.get_vocab_size())
    translator = Translator.untaught(config, settings.seed)
    trainer = Trainer(
        translator,
        taught,
        held_out[::_GLANCED],
        Schedule(model.tokens, room=_ROOM, rate=model.rate, seed=settings.seed),
        task.folder / f"{role}-{digest}",
        surprise_of if role == "target" else loss_of,
    )
    return _Pupil(role, model, translator, trainer)


def _config(model: T5ModelTable, vocabulary: int) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=vocabulary,
        hidden_size=model.width,
        intermediate_size=model.inner,
        heads=model.heads,
        kv_heads=model.heads,
        head_dim=model.width // model.heads,
        context_length=_CONTEXT,
        kinds=(LayerKind(rope=None),),
        layer_kinds=(0,) * model.layers,
        tied_embeddings=True,
        norm_epsilon=1e-6,
        attention_scale=1.0,
        activation="gelu_tanh",
        logit_scale=model.width**-0.5,
        position_bias=PositionBias(32, 128),
        encoder=Encoder(model.encoder_layers, PAD_ID),
    )


def _taught(task: Task, target: _Pupil, count: int, observer: PairObserver) -> Sequence[Response]:
    """What the target answers to the first texts; a batch that is answered is kept."""
    found = list[Response]()
    lessons = task.lessons[:count]
    batches = [lessons[at : at + _BATCH] for at in range(0, len(lessons), _BATCH)]
    for number, batch in enumerate(batches):
        path = target.trainer.folder / f"answers-{number}.safetensors"
        if not path.exists():
            write_responses(path, target.answers(task, batch))
        found += read_responses(path)
        observer.responding(number + 1, len(batches), sum(len(each.tokens) for each in found))
    return found


def _right_tokens(target: _Pupil, tests: Sequence[Response]) -> float:
    student = target.translator
    size = student.model.config.vocab_size
    found = [student.right(each) for each in lessons(tests, student.vocabulary, size, _ROOM, 0)]
    return float(np.concatenate(found).mean())


def _right_words(task: Task, answers: Sequence[Response]) -> float:
    """Of the words in their places; where a word is lost, all behind it are wrong."""
    right = total = 0
    for pair, answer in zip(task.tested, answers, strict=True):
        expected = pair.answer.split()
        found = task.tokenizer.decode(answer.tokens.tolist()).split()
        right += sum(a == b for a, b in zip(expected, found, strict=False))
        total += len(expected)
    return right / total
