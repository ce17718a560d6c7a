"""vocabulary: the tokens that the draft's head computes, where the recipe wants fewer than all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from speccompile.compiler.draft_vocabulary import choose_tokens, count_tokens
from speccompile.compiler.drafts.folder import DraftCheckpoint
from speccompile.compiler.stages.check import Checked
from speccompile.compiler.stages.load import Loaded

__all__ = ["TOKEN_IDS_FILE", "run"]

TOKEN_IDS_FILE = "token_ids.bin"
"""Read by `speccompile.runtime.engines.restricted.read_token_ids`."""


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `size`, and the `text` whose tokens are counted, unless the draft counted those it
    was trained on.

    The inputs are the target's `load` stage, whose tokenizer is the pair's, the `check`, and the
    draft's `load` stage where it is a model of its own.
    """
    loaded, checked, *draft = inputs.values()
    model = Checked(loaded, checked)
    files = model.loaded.tokenizer
    tokenizer = Tokenizer.from_str(files["tokenizer_json"])
    checkpoint = Loaded(draft[0]).checkpoint() if draft else None
    chosen = choose_tokens(
        tokenizer,
        checkpoint.token_counts
        if isinstance(checkpoint, DraftCheckpoint)
        else count_tokens(tokenizer, settings["text"], model.config.vocab_size),
        settings["size"],
        vocab_size=model.config.vocab_size,
        ends=files["eos_token_ids"],
    )
    (folder / TOKEN_IDS_FILE).write_bytes(chosen.astype("<i4").tobytes())
