"""Openings of conversations between people, of the package chitchat-dataset."""

from __future__ import annotations

from importlib import import_module

from speccompile.runtime.errors import RequestError

__all__ = ["chitchat_prompts"]

_LONGEST = 500
"""Characters: a few openings are whole chapters that somebody pasted, longer than any context."""


def chitchat_prompts() -> list[str]:
    """The first message of every conversation, each once, but for very long ones.

    Raises RequestError where the package is not installed; it is no dependency of ours.
    """
    try:
        conversations = import_module("chitchat_dataset").ConversationDataset()
    except ModuleNotFoundError as error:
        raise RequestError(
            "--chitchat needs a package with conversations: pip install chitchat-dataset"
        ) from error
    openings = (str(next(iter(messages), "")).strip() for messages in conversations)
    return list(dict.fromkeys(text for text in openings if 0 < len(text) <= _LONGEST))
