"""Which tokens a draft with a smaller vocabulary keeps.

In this order, up to the number that is wanted:

1. special tokens, those that end a text, and single bytes, of which any text can be made;
2. the tokens that come in a text, the most frequent first, of equally frequent ones the lowest id
   first;
3. all others by id. That is the order in which a tokenizer learned them, so the order of their
   frequency in what it was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from speccompile.runtime.errors import SpeccompileError

__all__ = ["choose_tokens", "count_tokens"]


def count_tokens(tokenizer: Tokenizer, text: str, vocab_size: int) -> NDArray[np.int64]:
    """How often each of the first `vocab_size` tokens comes in a text: [vocab_size]."""
    ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int64)
    return np.bincount(ids[ids < vocab_size], minlength=vocab_size).astype(np.int64)


def choose_tokens(
    tokenizer: Tokenizer,
    counts: NDArray[np.int64],
    size: int,
    *,
    vocab_size: int,
    ends: Iterable[int],
) -> NDArray[np.int32]:
    """The ids [size] of the tokens to keep, rising, of the first `vocab_size`; `ends` end a text,
    and `counts` [vocab_size or more] says how often each comes in one.

    Raises SpeccompileError where `size` is not below `vocab_size`, or too small for what has to be
    in it.
    """
    if size >= vocab_size:
        raise SpeccompileError(
            f"draft.vocabulary is {size}, but the models have only {vocab_size} tokens; "
            "leave it out, for all of them"
        )
    needed = {token for token in (*ends, *_needed(tokenizer)) if token < vocab_size}
    if len(needed) > size:
        raise SpeccompileError(
            f"draft.vocabulary is {size}, but {len(needed)} special tokens and bytes have to be in "
            "it; raise it"
        )
    frequent = np.argsort(-counts[:vocab_size], kind="stable").tolist()
    chosen = list(dict.fromkeys([*needed, *frequent]))[:size]
    return np.array(sorted(chosen), np.int32)


def _needed(tokenizer: Tokenizer) -> Iterator[int]:
    """Special tokens, and single bytes as either kind of tokenizer writes them."""
    added = tokenizer.get_added_tokens_decoder()
    yield from (identifier for identifier, token in added.items() if token.special)
    for text in (*ByteLevel.alphabet(), *(f"<0x{byte:02X}>" for byte in range(256))):
        identifier = tokenizer.token_to_id(text)
        if identifier is not None:
            yield identifier
