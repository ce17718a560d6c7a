"""What is trained: some of a target's layers, with its tables, which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speccompile.compiler.decoder import DecoderConfig, of_layers, tensor_shapes
from speccompile.compiler.drafts.arithmetic import mixed, working_type
from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.folder import TABLES
from speccompile.compiler.drafts.lesson import Lesson
from speccompile.compiler.quantize import TensorReader
from speccompile.runtime.errors import SpeccompileError

__all__ = ["Student", "default_layers", "open_target"]


def open_target(config: DecoderConfig, read: TensorReader) -> Decoder:
    """The target in what this machine computes fastest with."""
    working = working_type()
    tensors = {name: torch.from_numpy(read(name)).to(working) for name in tensor_shapes(config)}
    return Decoder(config, tensors)


def default_layers(count: int, layers: int) -> tuple[int, ...]:
    """`count` of a target's `layers`: the first ones read, the last ones write, and those between
    can be done without soonest. Of the last ones every second, where there are enough."""
    if count > layers:
        raise SpeccompileError(f"distil.count is {count}, but the target has {layers} layers")
    first = (count + 1) // 2
    stride = 2 if first + 2 * (count - first) <= layers + 1 else 1
    late = [layers - 1 - stride * step for step in range(count - first)]
    return (*range(first), *reversed(late))


@dataclass(frozen=True)
class Student:
    """A decoder of a target's `layers`, whose head has the tokens `vocabulary` [K], rising.

    `trained` are its own tensors, in fp32; the tables are the target's.
    """

    decoder: Decoder
    trained: dict[str, Tensor]
    head: Tensor
    vocabulary: Tensor

    @classmethod
    def of(
        cls, target: DecoderConfig, read: TensorReader, layers: Sequence[int], vocabulary: Tensor
    ) -> Student:
        """One that begins as those layers of the target are, last norm included."""
        if wrong := [layer for layer in layers if not 0 <= layer < target.layers]:
            raise SpeccompileError(
                f"distil.layers has {wrong[0]}, but the target's are 0 to {target.layers - 1}"
            )
        kinds = tuple(target.layer_kinds[layer] for layer in layers)
        config = replace(target, layer_kinds=kinds)
        trained, tables = dict[str, Tensor](), dict[str, Tensor]()
        for name in tensor_shapes(config):
            values = torch.tensor(read(of_layers(name, layers)))  # a copy: it will change
            if name in TABLES:
                tables[name] = values.to(working_type())
            else:
                trained[name] = values.requires_grad_()
        table = "model.embed_tokens.weight" if config.tied_embeddings else "lm_head.weight"
        decoder = Decoder(config, {**tables, **trained})
        return cls(decoder, trained, tables[table][vocabulary], vocabulary)

    def read(self, name: str) -> NDArray[np.float32]:
        """A tensor as it was trained."""
        return self.trained[name].detach().numpy()

    def logits(self, lesson: Lesson, step: int = 0) -> Tensor:
        """Those [n, K], in fp32, of the rows of a `lesson`, the one with the number `step`."""
        with mixed():
            hidden = self.decoder.hidden(lesson.tokens)[lesson.rows]
            return self.decoder.logits(hidden, self.head).float()

    def right(self, lesson: Lesson) -> NDArray[np.bool_]:
        """Which tokens of a lesson it would say, [n], or [n, DEPTH] as which of a chain."""
        return (self.logits(lesson).argmax(-1) == lesson.said).numpy()
