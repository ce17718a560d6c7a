"""What a target is asked."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Kind", "Prompt"]

Kind = Literal["chat", "code", "text"]


class Prompt(NamedTuple):
    """A `raw` one is continued as it is; others are a user's message. `origin` names what it is
    about: prompts that share it are learned from together, or held out together."""

    text: str
    kind: Kind
    raw: bool
    origin: str
