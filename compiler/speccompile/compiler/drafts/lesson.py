"""What a student is taught from, and what it loses by being wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from speccompile.compiler.drafts.arithmetic import working_type
from speccompile.compiler.drafts.decoder import KeyValues
from speccompile.compiler.drafts.responses import Response

__all__ = ["Lesson", "Loss", "lesson_of", "lessons", "loss_of", "surprise_of"]

_DECAY = 3.0  # of cross-entropy's weight, as acceptance rises


class Lesson(NamedTuple):
    """Sequences `tokens` [B, N]; where `rows` [B, N], the target's law of the next token is known.

    Of it, `likeliest` [n, LIKELIEST] are places in the student's vocabulary, 0 with a probability
    of 0 where it lacks the token; `said` [n] is the token that followed, -1 where it lacks that.
    `read` is what the target's cache holds of the sequences in the student's layers, where that
    was kept of every one.
    """

    tokens: Tensor
    rows: Tensor
    likeliest: Tensor
    probabilities: Tensor
    said: Tensor
    read: KeyValues | None = None


class Loss(NamedTuple):
    """`total` is what is minimized; `overlap` is the mean acceptance of drawn tokens, 1 - TV."""

    total: Tensor
    overlap: Tensor


def lessons(
    responses: Sequence[Response], vocabulary: Tensor, size: int, room: int, seed: int
) -> Iterator[Lesson]:
    """All responses once, in batches of at most `room` tokens, in an order that is the seed's.

    `vocabulary` [K] are the student's tokens of a target's `size`.
    """
    for batch in _batches(responses, room, np.random.default_rng(seed)):
        yield lesson_of([responses[index] for index in batch], vocabulary, size)


def lesson_of(responses: Sequence[Response], vocabulary: Tensor, size: int) -> Lesson:
    """All responses, in their order, in one."""
    longest = max(len(each.text) for each in responses) - 1
    tokens = torch.zeros(len(responses), longest, dtype=torch.int64)
    rows = torch.zeros(len(responses), longest, dtype=torch.bool)
    for row, each in enumerate(responses):
        text = torch.from_numpy(each.text[:-1].astype(np.int64))
        tokens[row, : len(text)] = text
        rows[row, len(each.prompt) - 1 : len(text)] = True
    ids = torch.from_numpy(np.concatenate([each.likeliest for each in responses])).long()
    law = torch.from_numpy(np.concatenate([each.probabilities for each in responses])).float()
    said = torch.from_numpy(np.concatenate([each.tokens for each in responses])).long()
    places = torch.full((size,), -1)
    places[vocabulary] = torch.arange(len(vocabulary))
    likeliest = places[ids]
    law = law * (likeliest >= 0)
    read = _read(responses, longest)
    return Lesson(tokens, rows, likeliest.clamp(min=0), law, places[said], read)


def loss_of(logits: Tensor, lesson: Lesson) -> Loss:
    """Cross-entropy and total variation, the second the more the better the student is.

    Acceptance is 1 - TV, so that is what counts; alone it teaches a beginner nothing, since its
    slope vanishes where the laws hardly meet (the hybrid of https://arxiv.org/abs/2602.23881).
    """
    logs = functional.log_softmax(logits, -1).gather(1, lesson.likeliest)
    law = lesson.probabilities
    entropy = -(law * logs).sum(1)
    overlap = torch.minimum(law, logs.exp()).sum(1)
    weight = torch.exp(-_DECAY * overlap.detach().mean())
    total = weight * entropy + (1.0 - weight) * (1.0 - overlap)
    return Loss(total.mean(), overlap.detach().mean())


def surprise_of(logits: Tensor, lesson: Lesson) -> Loss:
    """Cross-entropy alone: for a target, which learns from what it is right to say."""
    logs = functional.log_softmax(logits, -1).gather(1, lesson.likeliest)
    law = lesson.probabilities
    overlap = torch.minimum(law, logs.exp()).sum(1)
    return Loss(-(law * logs).sum(1).mean(), overlap.detach().mean())


def _batches(responses: Sequence[Response], room: int, rng: np.random.Generator) -> list[list[int]]:
    """Of about equal lengths, so that little is padding."""
    lengths = np.array([len(each.prompt) + len(each.tokens) - 1 for each in responses])
    jitter = lengths * (1.0 + 0.1 * rng.random(len(lengths)))  # other neighbours every time
    batches: list[list[int]] = [[]]
    for index in np.argsort(jitter, kind="stable").tolist():
        longest = max(int(lengths[index]), *(int(lengths[each]) for each in batches[-1]), 1)
        if batches[-1] and longest * (len(batches[-1]) + 1) > room:
            batches.append([])
        batches[-1].append(index)
    return [batches[at] for at in rng.permutation(len(batches))]


def _read(responses: Sequence[Response], longest: int) -> KeyValues | None:
    """Of all, with zeros behind the shorter ones."""
    kept = [each.read for each in responses if each.read is not None]
    if len(kept) < len(responses):
        return None
    _, both, layers, heads, width = kept[0].shape
    shape = (both, layers, len(kept), heads, longest, width)
    padded = torch.zeros(shape, dtype=working_type())
    for row, each in enumerate(kept):
        by_place = torch.from_numpy(np.array(each))  # [n, 2, layers, kv heads, D]
        padded[:, :, row, :, : len(each)] = by_place.permute(1, 2, 3, 0, 4)
    keys, values = padded.unbind()
    return KeyValues(keys, values, longest)
