"""Prompts as tokens: by the artifact's tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from tokenizers import Tokenizer

from speccompile.runtime.artifact import Artifact
from speccompile.runtime.chat import ChatTemplate, Message
from speccompile.runtime.errors import ArtifactError, RequestError

__all__ = ["CHAT_TEMPLATE_FILE", "TOKENIZER_FILE", "Prompts", "open_tokenizer"]

TOKENIZER_FILE = "tokenizer/tokenizer.json"
CHAT_TEMPLATE_FILE = "tokenizer/chat_template.jinja"


class Prompts:
    """Encodes what a model is to continue."""

    def __init__(
        self, tokenizer: Tokenizer, open_template: Callable[[], ChatTemplate] | None, where: object
    ) -> None:
        """Of a model `where`; None for one without chat template, which is opened once needed."""
        self._tokenizer, self._where = tokenizer, where
        self._open_template = open_template and cache(open_template)

    @classmethod
    def of(cls, artifact: Artifact, tokenizer: Tokenizer) -> Prompts:
        """An artifact's."""
        model = artifact.manifest.model

        def token(identifier: int | None) -> str:
            return "" if identifier is None else tokenizer.id_to_token(identifier) or ""

        def open_template() -> ChatTemplate:
            return ChatTemplate(
                artifact.path(CHAT_TEMPLATE_FILE).read_text(encoding="utf-8"),
                bos_token=token(model.bos_token_id),
                eos_token=token(next(iter(model.eos_token_ids), None)),
            )

        has_template = CHAT_TEMPLATE_FILE in artifact.manifest.files
        return cls(tokenizer, open_template if has_template else None, artifact.root)

    def encode(self, text: str) -> list[int]:
        """A text as a user's turn where there is a chat template, else as it is."""
        if self._open_template:
            return self.encode_chat([{"role": "user", "content": text}])
        return self.encode_raw(text)

    def encode_raw(self, text: str) -> list[int]:
        """The tokens of a prompt that is to be continued as it is."""
        return list(self._tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation, ready for the assistant's next turn.

        Raises RequestError where there is no chat template.
        """
        if self._open_template is None:
            raise RequestError(f"{self._where} has no chat template; use --raw")
        prompt = self._open_template().render(messages)
        return list(self._tokenizer.encode(prompt, add_special_tokens=False).ids)


def open_tokenizer(artifact: Artifact) -> Tokenizer:
    """The artifact's; raises ArtifactError where the library cannot read it."""
    path = artifact.path(TOKENIZER_FILE)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ArtifactError(f"{path}: is not a tokenizer this version reads: {error}") from error
