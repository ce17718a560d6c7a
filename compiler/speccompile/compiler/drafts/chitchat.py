"""Openings of conversations between people, of the package chitchat-dataset."""

from __future__ import annotations

from importlib import import_module

__all__ = ["chitchat_openings"]

_LONGEST = 500
"""Characters: a few openings are whole chapters that somebody pasted, longer than any context."""


def chitchat_openings() -> list[str]:
    """The first message of every conversation, each once, but for very long ones; none where the
    package, which is no dependency of ours, is not installed."""
    try:
        conversations = import_module("chitchat_dataset").ConversationDataset()
    except ModuleNotFoundError:
        return []
    openings = (str(next(iter(messages), "")).strip() for messages in conversations)
    return list(dict.fromkeys(text for text in openings if 0 < len(text) <= _LONGEST))
