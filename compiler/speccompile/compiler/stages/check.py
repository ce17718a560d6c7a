"""check: can these models do what the recipe asks for, together? Asked before anything costs time.

Writes down what the models have in common: `Checked`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.pairing import PairError, Vocabulary, check_same_tokens
from speccompile.compiler.quantize import TensorReader
from speccompile.compiler.stages.load import Loaded
from speccompile.compiler.texts import probe_text

__all__ = ["Checked", "read_warnings", "run"]

_FILE = "pair.json"
_WINDOW = 256
_BY_TOKEN = ("model.embed_tokens.weight", "lm_head.weight")


class Checked:
    """A loaded model as it is compiled: without the rows of its vocabulary that are padding.

    `capacity` counts its cache slots: the context, and the room that padding takes; or the model's
    own context where that is shorter, at which such a draft stops proposing. Texts are read in
    pieces of `window` tokens, which fit the caches of both models.
    """

    def __init__(self, loaded: Path, checked: Path) -> None:
        content: dict[str, Any] = json.loads((checked / _FILE).read_text(encoding="utf-8"))
        self.loaded = Loaded(loaded)
        self.config: DecoderConfig = replace(
            self.loaded.config, vocab_size=content["vocabulary"]["used"]
        )
        context, own = content["context"], self.config.context_length
        self.capacity: int = own if own < context else context + content["spare_rows"]
        self.window: int = content["window"]

    def reader(self) -> TensorReader:
        """Open the weights again."""
        read, used = self.loaded.checkpoint().tensor, self.config.vocab_size

        def without_padding(name: str) -> NDArray[np.float32]:
            return read(name)[:used] if name in _BY_TOKEN else read(name)

        return without_padding


def read_warnings(folder: Path) -> list[str]:
    """Differences of the pair that do no harm, each in one line."""
    content: dict[str, list[str]] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return content["warnings"]


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `context` and `spare_rows`, in tokens, and `draft_of`, by draft the SHA-256 of
    the target that its layers are those of, or null. The inputs are the `load` stages, the target's
    first."""
    models = {name.removeprefix("load "): Loaded(path) for name, path in inputs.items()}
    target, longest = models["target"], models["target"].config.context_length
    if settings["context"] > longest:
        raise PairError(
            f"context.length is {settings['context']}, but the target "
            f"({target.provenance['source']}) was trained for {longest}; lower context.length"
        )
    for name, made_of in settings["draft_of"].items():
        if made_of is not None and made_of != target.provenance["sha256"]:
            raise PairError(
                f"{models[name].provenance['source']} is made of the layers of another target than "
                f"{target.provenance['source']}; make one of this: speccompile draft shared"
            )
    _check_encoders(models)
    vocabularies = {
        role: Vocabulary(model.provenance["source"], model.tokenizer, model.config.vocab_size)
        for role, model in models.items()
    }
    warnings: list[str] = []
    for name, vocabulary in vocabularies.items():
        if name != "target":
            found = check_same_tokens(vocabularies["target"], vocabulary, probe_text())
            warnings += found if name == "draft" else [f"{name}: {warning}" for warning in found]
    content = {
        "warnings": warnings,
        "vocabulary": {
            "used": min(vocabulary.used for vocabulary in vocabularies.values()),
            "rows": {role: vocabulary.rows for role, vocabulary in vocabularies.items()},
        },
        "context": settings["context"],
        "spare_rows": settings["spare_rows"],
        "window": min(
            _WINDOW,
            settings["context"],
            *(model.config.context_length for model in models.values()),
        ),
    }
    (folder / _FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def _check_encoders(models: Mapping[str, Loaded]) -> None:
    target = models["target"]
    named = f"the target ({target.provenance['source']})"
    for model in models.values():
        if (model.config.encoder is None) != (target.config.encoder is None):
            has, lacks = (named, "draft") if target.config.encoder else ("the draft", "target")
            raise PairError(
                f"{has} is an encoder-decoder and the {lacks} is none; choose two of a kind"
            )
    start_tokens = {
        model.config.encoder.start_token for model in models.values() if model.config.encoder
    }
    if len(start_tokens) > 1:
        raise PairError(f"sequences of {named} and the draft begin with different tokens")
