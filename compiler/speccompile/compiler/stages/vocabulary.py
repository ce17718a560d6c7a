"""vocabulary: the tokens that the draft's head computes, where the recipe wants fewer than all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from speccompile.compiler.draft_vocabulary import choose_tokens
from speccompile.compiler.stages.check import Checked

__all__ = ["TOKEN_IDS_FILE", "run"]

TOKEN_IDS_FILE = "token_ids.bin"
"""Read by `speccompile.runtime.engines.restricted.read_token_ids`."""


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `size`, and the `text` whose tokens are counted.

    The inputs are the target's `load` stage, whose tokenizer is the pair's, and the `check`.
    """
    loaded, checked = inputs.values()
    model = Checked(loaded, checked)
    files = model.loaded.tokenizer
    chosen = choose_tokens(
        Tokenizer.from_str(files["tokenizer_json"]),
        settings["text"],
        settings["size"],
        vocab_size=model.config.vocab_size,
        ends=files["eos_token_ids"],
    )
    (folder / TOKEN_IDS_FILE).write_bytes(chosen.astype("<i4").tobytes())
