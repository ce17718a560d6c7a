"""An encoder-decoder as a student: it is taught answers that begin where their sources end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from speccompile.compiler.decoder import DecoderConfig, is_norm, tensor_shapes
from speccompile.compiler.drafts.encoder_decoder import EncoderDecoder
from speccompile.compiler.drafts.lesson import Lesson
from speccompile.compiler.drafts.student import Student

__all__ = ["Translator"]


@dataclass(frozen=True)
class Translator(Student):
    """One whose tensors are all its own, in fp32, and whose head has all tokens."""

    model: EncoderDecoder

    @classmethod
    def over(cls, config: DecoderConfig, tensors: Mapping[str, Tensor]) -> Translator:
        trained = {name: tensors[name].requires_grad_() for name in tensor_shapes(config)}
        head = "model.embed_tokens.weight" if config.tied_embeddings else "lm_head.weight"
        model = EncoderDecoder(config, trained)
        return cls(model, trained, trained[head], torch.arange(config.vocab_size), model)

    @classmethod
    def untaught(cls, config: DecoderConfig, seed: int) -> Translator:
        """One that begins as T5 does (https://arxiv.org/abs/1910.10683, section 3.1.1): tables and
        projections drawn so that rows and scores have a variance of about one."""
        numbers = torch.Generator().manual_seed(seed)
        shapes = tensor_shapes(config)
        tensors = {name: _drawn(config, name, shapes[name], numbers) for name in shapes}
        return cls.over(config, tensors)

    def logits(self, lesson: Lesson, step: int = 0) -> Tensor:
        """As a student's: its rows are true from the last token of a source, `</s>`, on."""
        tokens, rows = lesson.tokens, lesson.rows
        first, lengths = rows.int().argmax(1), rows.sum(1)
        places = torch.arange(tokens.shape[1])
        real = places[: int(first.max()) + 1] <= first[:, None]
        source = self.model.read(tokens[:, : real.shape[1]], real)
        steps = torch.arange(int(lengths.max()))
        answers = tokens.gather(1, (first[:, None] + steps).clamp(max=tokens.shape[1] - 1))
        answers[:, 0] = self.model.encoder.start_token
        hidden = self.model.answer(answers, source)
        return self.model.logits(hidden[steps < lengths[:, None]])


def _drawn(
    config: DecoderConfig, name: str, shape: tuple[int, ...], numbers: torch.Generator
) -> Tensor:
    if is_norm(name):
        return torch.ones(shape)
    if name == "model.embed_tokens.weight":
        deviation = 1.0
    elif name.endswith("q_proj.weight"):  # scores are not scaled
        deviation = (config.hidden_size * config.head_dim) ** -0.5
    else:
        deviation = shape[-1] ** -0.5
    return torch.randn(shape, generator=numbers) * deviation
