"""Asking a target that has not been built: its prompts as tokens, and the tokens a draft learns."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from speccompile.compiler.draft_vocabulary import choose_tokens
from speccompile.compiler.sources.checkpoint import Checkpoint
from speccompile.runtime.chat import ChatTemplate
from speccompile.runtime.prompts import Prompts

__all__ = ["learned_tokens", "open_prompts"]


def open_prompts(target: Checkpoint, tokenizer: Tokenizer) -> Prompts:
    """As an artifact of the target would have them."""
    files = target.tokenizer

    def open_template() -> ChatTemplate:
        bos, eos = files.bos_token or "", files.eos_token or ""
        return ChatTemplate(files.chat_template or "", bos_token=bos, eos_token=eos)

    return Prompts(
        tokenizer, open_template if files.chat_template else None, target.provenance.source
    )


def learned_tokens(
    tokenizer: Tokenizer, counts: NDArray[np.int64], size: int, ends: Iterable[int]
) -> Tensor:
    """The ids [K], rising, of the `size` tokens that a draft learns to propose, by how often the
    target was to say each, `counts` [V]; all of them where `size` is 0 or no fewer."""
    if not 0 < size < len(counts):
        return torch.arange(len(counts))
    chosen = choose_tokens(tokenizer, counts, size, vocab_size=len(counts), ends=ends)
    return torch.from_numpy(chosen).long()
