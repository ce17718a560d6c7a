"""A student that works in the target's own cache, where its layers are some of the target's.

Where it drafts, the target has read all of the text up to the root of a round: its keys and values
are there, exact ones. So a row sees those, and of the round's rows the student's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speccompile.compiler.decoder import is_norm, of_layers, tensor_shapes
from speccompile.compiler.drafts.acceptance import DEPTH
from speccompile.compiler.drafts.arithmetic import mixed
from speccompile.compiler.drafts.decoder import Context, Decoder, KeyValues
from speccompile.compiler.drafts.lesson import Lesson
from speccompile.compiler.drafts.student import Student
from speccompile.compiler.drafts.target_caches import read_by
from speccompile.compiler.quantize import TensorReader

__all__ = ["SharedStudent", "committed", "head_of"]


@dataclass(frozen=True)
class SharedStudent(Student):
    """Its layers are the `layers` of the `target`, in whose cache it works."""

    target: Decoder
    layers: Sequence[int]

    @classmethod
    def sharing(
        cls,
        target: Decoder,
        read: TensorReader,
        layers: Sequence[int],
        vocabulary: Tensor,
        *,
        trains: Callable[[str], bool] = is_norm,
    ) -> SharedStudent:
        """One that begins as those layers are, and trains some tensors; the others are those of
        `target`, which are kept once."""
        kinds = tuple(target.config.layer_kinds[layer] for layer in layers)
        config = replace(target.config, layer_kinds=kinds)
        trained, tensors = dict[str, Tensor](), dict[str, Tensor]()
        for name in tensor_shapes(config):
            source = of_layers(name, layers)
            if trains(name):
                trained[name] = torch.tensor(read(source)).requires_grad_()
            else:
                tensors[name] = target.tensors[source]
        decoder = Decoder(config, {**tensors, **trained})
        head = head_of(target, vocabulary)
        return cls(decoder, trained, head, vocabulary, target, tuple(layers))

    @property
    def apart(self) -> Student:
        """The same with a cache of its own."""
        return Student(self.decoder, self.trained, self.head, self.vocabulary)

    def logits(self, lesson: Lesson, step: int = 0) -> Tensor:
        return self._drafted(lesson, self._read(lesson), step)

    def right(self, lesson: Lesson) -> NDArray[np.bool_]:
        read = self._read(lesson)
        columns = torch.nonzero(lesson.rows)[:, 1]
        found = torch.empty(len(columns), DEPTH, dtype=torch.bool)
        for turn in range(DEPTH):
            best = self._drafted(lesson, read, turn).argmax(-1)
            place = (columns - turn) % DEPTH  # of the row in its round
            found[torch.arange(len(columns)), place] = best == lesson.said
        return found.numpy()

    def _read(self, lesson: Lesson) -> KeyValues:
        return lesson.read or read_by(self.target, lesson.tokens, self.layers)

    def _drafted(self, lesson: Lesson, read: KeyValues, turn: int) -> Tensor:
        """What `logits` returns, where rounds of `DEPTH` rows begin at places = turn mod DEPTH."""
        seen = committed(lesson.tokens.shape[1], turn)
        context = Context(read.keys.unbind(), read.values.unbind(), seen)
        with mixed():
            hidden = self.decoder.hidden(lesson.tokens, context=context)[lesson.rows]
            return self.decoder.logits(hidden, self.head).float()


def head_of(target: Decoder, vocabulary: Tensor) -> Tensor:
    """The rows [K, hidden] of the target's head for tokens `vocabulary` [K]."""
    tied = target.config.tied_embeddings
    return target.tensors["model.embed_tokens.weight" if tied else "lm_head.weight"][vocabulary]


def committed(count: int, turn: int) -> Tensor:
    """Which of `count` rows the target has read when each is drafted, [count, count], where rounds
    of `DEPTH` rows begin at places = turn mod DEPTH."""
    places = torch.arange(count)
    roots = places - (places - turn) % DEPTH
    return places < roots[:, None]
