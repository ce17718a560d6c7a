"""A conversation becomes a prompt through the model's own chat template, in a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn, TypedDict

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from speccompile.runtime.errors import RequestError

__all__ = ["ChatTemplate", "Message"]


class Message(TypedDict):
    """One turn; `role` is "system", "user" or "assistant"."""

    role: str
    content: str


class ChatTemplate:
    """Renders messages with a Jinja template that came with the model and is not trusted."""

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        names: dict[str, object] = {
            "raise_exception": _raise,
            "strftime_now": _now,
            "bos_token": bos_token,
            "eos_token": eos_token,
        }
        try:
            self._template = environment.from_string(source, globals=names)
        except TemplateError as error:
            raise RequestError(f"the chat template cannot be read: {error}; use --raw") from error

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that asks for the assistant's next turn."""
        try:
            return self._template.render(messages=list(messages), add_generation_prompt=True)
        except (TemplateError, TypeError, ValueError) as error:
            raise RequestError(f"the chat template refuses this conversation: {error}") from error


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
