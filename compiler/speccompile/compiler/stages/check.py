"""check: can these models do what the recipe asks for, together? Asked before anything costs time.

A draft proposes token ids, so it must mean the same by them as its target does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.stages.load import Loaded
from speccompile.runtime.errors import SpeccompileError

__all__ = ["PairError", "run"]


class PairError(SpeccompileError):
    """Draft and target do not fit together, or not the recipe."""


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `context`, in tokens. The inputs are the `load` stages, the target's first."""
    models = {name.removeprefix("load "): Loaded(path) for name, path in inputs.items()}
    for role, model in models.items():
        longest = model.config.context_length
        if settings["context"] > longest:
            raise PairError(
                f"context.length is {settings['context']}, but the {role} "
                f"({model.provenance['source']}) was trained for {longest}; lower context.length"
            )
    if "draft" in models:
        _check_tokenizers(models["target"], models["draft"])


def _check_tokenizers(target: Loaded, draft: Loaded) -> None:
    sizes = target.config.vocab_size, draft.config.vocab_size
    if sizes[0] != sizes[1]:
        raise PairError(
            f"the target has {sizes[0]} token ids and the draft {sizes[1]}; "
            "choose a draft with the target's vocabulary"
        )
    theirs, ours = _tokens(draft), _tokens(target)
    for identifier in sorted(ours.keys() | theirs.keys()):
        if ours.get(identifier) != theirs.get(identifier):
            raise PairError(
                f"token {identifier} is {ours.get(identifier)!r} to the target and "
                f"{theirs.get(identifier)!r} to the draft; choose a draft with the same tokenizer"
            )


def _tokens(model: Loaded) -> dict[int, str]:
    """Every token by its id, added ones included."""
    content = json.loads(model.tokenizer["tokenizer_json"])
    vocabulary: dict[str, int] = content["model"]["vocab"]
    added: list[dict[str, Any]] = content.get("added_tokens") or []
    tokens = {identifier: text for text, identifier in vocabulary.items()}
    return tokens | {int(entry["id"]): str(entry["content"]) for entry in added}
