"""Who may draft, by name: what every artifact knows, and the experts that one may have besides."""

from __future__ import annotations

import re

__all__ = ["DRAFTS", "UNITED", "engine_name", "expert_refusal"]

DRAFTS = ("model", "ngram", "suffix", "union", "hedge", "none")
"""Who drafts: the artifact's model; n-grams of the text, or its longest repeated ending; that and
all models in one tree, or whichever of them has been right; nobody."""

UNITED = ("union", "hedge")
"""Those that ask every model there is."""

_ENGINES = ("target", "draft")
_PATTERN = "[a-z0-9][a-z0-9_-]{0,31}"


def engine_name(draft: str) -> str:
    """What the engine is called that a draft rests on where it is one model, an expert or not, or
    one that takes turns with the text."""
    return "draft" if draft in ("model", "hedge") else draft


def expert_refusal(name: str) -> str | None:
    """Why no expert can have this name, from the verb on; None where one can."""
    if name in (*DRAFTS, *_ENGINES):
        taken = ", ".join((*DRAFTS, *_ENGINES))
        return f"is {name!r}, which means something already ({taken}); choose another name"
    if re.fullmatch(_PATTERN, name) is None:
        return f"is {name!r}; use lower case letters, digits, _ and -, 32 at most"
    return None
