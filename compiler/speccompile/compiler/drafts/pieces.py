"""A vocabulary learned from a task's own text, in the form of T5's SentencePiece models."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import Unigram
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import UnigramTrainer

from speccompile.runtime.errors import SpeccompileError

__all__ = ["END", "END_ID", "PAD", "PAD_ID", "UNKNOWN", "learn_pieces"]

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
"""The first three tokens, in this order."""
PAD_ID, END_ID = 0, 1


def learn_pieces(texts: Iterable[str], size: int) -> Tokenizer:
    """A unigram model of at most `size` pieces, which ends every text with `END`.

    Raises SpeccompileError where the texts have more characters than that, or nothing repeats.
    """
    tokenizer = Tokenizer(Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=size,
        special_tokens=[PAD, END, UNKNOWN],
        unk_token=UNKNOWN,
        show_progress=False,
    )
    try:
        tokenizer.train_from_iterator(texts, trainer)
    except Exception as error:  # tokenizers raises nothing narrower
        raise SpeccompileError(
            f"t5.vocabulary is {size}, of which no vocabulary can be learned ({error}); raise it"
        ) from error
    tokenizer.post_processor = TemplateProcessing(
        single=["$A", END], pair=["$A", END, "$B", END], special_tokens=[(END, END_ID)]
    )
    return tokenizer
