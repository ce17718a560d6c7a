"""Prompts of the package chitchat-dataset, for a command that was asked for them."""

from __future__ import annotations

from speccompile.compiler.drafts.chitchat import chitchat_openings
from speccompile.runtime.errors import RequestError

__all__ = ["chitchat_prompts"]


def chitchat_prompts() -> list[str]:
    """The openings of its conversations. Raises RequestError where it is not installed."""
    if not (found := chitchat_openings()):
        raise RequestError(
            "--chitchat needs a package with conversations: pip install chitchat-dataset"
        )
    return found
