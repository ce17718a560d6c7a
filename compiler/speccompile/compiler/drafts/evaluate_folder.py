"""Evaluate a draft that has not been built: its stored weights against its target's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from tokenizers import Tokenizer
from torch import Tensor

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.drafts.arithmetic import working_type
from speccompile.compiler.drafts.asking import learned_tokens, open_prompts
from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.evaluation import (
    Evaluation,
    Progress,
    Question,
    Training,
    encoded,
    figures_of,
)
from speccompile.compiler.drafts.figures import StepCosts, Trace, trace
from speccompile.compiler.drafts.folder import DRAFT_FILE, TABLES, DraftCheckpoint
from speccompile.compiler.drafts.lesson import lesson_of
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.shards import Shards
from speccompile.compiler.drafts.shared_student import SharedStudent
from speccompile.compiler.drafts.student import Student, open_target
from speccompile.compiler.sources.checkpoint import Checkpoint, SourceError
from speccompile.compiler.sources.opening import open_checkpoint

__all__ = ["Laws", "evaluate_folder", "laws_of", "trace_student", "weights_share"]

Laws = Callable[[NDArray[np.float16]], NDArray[np.float32]]
"""From the rows [n, hidden] that a head gets to its logits [n, V]."""


def evaluate_folder(
    folder: Path,
    questions: Sequence[Question],
    *,
    tokens: int,
    depth: int,
    cache: Path,
    progress: Progress,
) -> Evaluation:
    """Have the target answer, greedily, and the draft read the answers.

    Answers are kept in `cache`, beside those of `draft distil`. Raises SpeccompileError where the
    folder is no whole draft, or nothing can be compared.
    """
    draft = open_checkpoint(
        str(folder), sha256=None, cache=cache, report=lambda doing: progress(0, 1, doing)
    )
    if not isinstance(draft, DraftCheckpoint):
        raise SourceError(f"{folder}: has no {DRAFT_FILE}, so it is no draft")
    training = _read(folder, draft.training)
    target, files = draft.target, draft.tokenizer
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    encode = open_prompts(target, tokenizer).encode
    context = min(target.config.context_length, draft.config.context_length)
    prompts = encoded(encode, questions, tokens=tokens, context=context, where=folder)
    answers = _answers(target, prompts, tokens, cache / "drafts" / "answers", progress)
    vocabulary = learned_tokens(
        tokenizer, draft.token_counts, training.vocabulary, files.eos_token_ids
    )
    student = _student(draft, vocabulary)
    traces = list[Trace]()
    for number, each in enumerate(trace_student(student, laws_of(target), answers)):
        progress(number + 1, len(answers), "reading the answers")
        traces.append(each)
    costs = StepCosts.predicted(weights_share(draft.config, target.config, len(vocabulary)))
    return Evaluation(
        str(folder),
        "folder",
        figures_of(questions, traces, costs, depth=depth),
        costs,
        training=training,
    )


def _student(draft: DraftCheckpoint, vocabulary: Tensor) -> Student:
    """It works in the cache that it was made for."""
    own = Student.of(draft.config, draft.tensor, range(draft.config.layers), vocabulary)
    if not draft.layers:
        return own
    target = open_target(draft.target.config, draft.target.tensor)
    return SharedStudent(own.decoder, own.trained, own.head, vocabulary, target, draft.layers)


def weights_share(draft: DecoderConfig, target: DecoderConfig, vocabulary: int) -> float:
    """Of the weights that a step of the target multiplies by, as many as a step of the draft does,
    whose head has so many tokens: what its step costs, where both have one precision."""
    return _products(draft, vocabulary) / _products(target, target.vocab_size)


@torch.no_grad()
def trace_student(student: Student, laws: Laws, answers: Sequence[Response]) -> Iterator[Trace]:
    """What a student thinks of each answer, of whose rows `laws` makes the target's again."""
    size = student.decoder.config.vocab_size
    for answer in answers:
        lesson = lesson_of([answer], student.vocabulary, size)
        rows = torch.full((len(answer.tokens), size), -torch.inf)
        rows[:, student.vocabulary] = student.logits(lesson)
        yield trace(answer.tokens.astype(np.int64), rows.numpy(), laws(answer.hidden))


def laws_of(target: Checkpoint) -> Laws:
    """A target's, computed as when it answered."""
    config = target.config
    name = "model.embed_tokens.weight" if config.tied_embeddings else "lm_head.weight"
    working, decoder = working_type(), Decoder(config, {})
    table = torch.from_numpy(target.tensor(name)).to(working)

    def laws(hidden: NDArray[np.float16]) -> NDArray[np.float32]:
        rows = decoder.logits(torch.from_numpy(hidden).to(working), table)
        found: NDArray[np.float32] = rows.float().numpy()
        return found

    return laws


def _read(folder: Path, training: Mapping[str, Any]) -> Training:
    """What the file says beside this is for people."""
    match training:
        case {"settings": {"vocabulary": vocabulary}}:
            training = {**training, "vocabulary": vocabulary}
        case _:
            pass
    try:
        return TypeAdapter(Training).validate_python(training)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("training", *first["loc"])))
        raise SourceError(
            f"{folder / DRAFT_FILE}: {where}: {first['msg']}; train the draft again"
        ) from error


def _answers(
    target: Checkpoint,
    prompts: Sequence[Sequence[int]],
    length: int,
    folder: Path,
    progress: Progress,
) -> list[Response]:
    """Of each prompt, in their order."""
    shards = Shards(folder, target.provenance.sha256, prompts, length, seed=0, greedy=True)
    if not shards.complete:
        progress(0, shards.count, "answers")
        shards.generate(
            open_target(target.config, target.tensor),
            target.tokenizer.eos_token_ids,
            lambda done, said: progress(done, shards.count, f"answers, {said:,} tokens"),
        )
    found = {tuple(each.prompt.tolist()): each for each in shards.read()}
    return [found[tuple(prompt)] for prompt in prompts]


def _products(config: DecoderConfig, head: int) -> int:
    shapes = (shape for name, shape in tensor_shapes(config).items() if name not in TABLES)
    return sum(prod(shape) for shape in shapes if len(shape) > 1) + head * config.hidden_size
