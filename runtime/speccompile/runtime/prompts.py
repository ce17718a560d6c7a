"""Prompts as tokens: by the artifact's tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from speccompile.runtime.artifact import Artifact
from speccompile.runtime.chat import ChatTemplate, Message
from speccompile.runtime.errors import ArtifactError, RequestError

__all__ = ["CHAT_TEMPLATE_FILE", "TOKENIZER_FILE", "Prompts", "open_tokenizer"]

TOKENIZER_FILE = "tokenizer/tokenizer.json"
CHAT_TEMPLATE_FILE = "tokenizer/chat_template.jinja"


class Prompts:
    """Encodes what an artifact is to continue."""

    def __init__(self, artifact: Artifact, tokenizer: Tokenizer) -> None:
        self._artifact, self._tokenizer = artifact, tokenizer

    def encode(self, text: str) -> list[int]:
        """A text as a user's turn where there is a chat template, else as it is."""
        if CHAT_TEMPLATE_FILE in self._artifact.manifest.files:
            return self.encode_chat([{"role": "user", "content": text}])
        return self.encode_raw(text)

    def encode_raw(self, text: str) -> list[int]:
        """The tokens of a prompt that is to be continued as it is."""
        return list(self._tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation, ready for the assistant's next turn.

        Raises RequestError where the artifact has no chat template.
        """
        prompt = self._chat_template().render(messages)
        return list(self._tokenizer.encode(prompt, add_special_tokens=False).ids)

    def _chat_template(self) -> ChatTemplate:
        if CHAT_TEMPLATE_FILE not in self._artifact.manifest.files:
            raise RequestError(f"{self._artifact.root} has no chat template; use --raw")
        source = self._artifact.path(CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")
        model = self._artifact.manifest.model
        return ChatTemplate(
            source,
            bos_token=self._token(model.bos_token_id),
            eos_token=self._token(next(iter(model.eos_token_ids), None)),
        )

    def _token(self, identifier: int | None) -> str:
        return "" if identifier is None else self._tokenizer.id_to_token(identifier) or ""


def open_tokenizer(artifact: Artifact) -> Tokenizer:
    """The artifact's; raises ArtifactError where the library cannot read it."""
    path = artifact.path(TOKENIZER_FILE)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ArtifactError(f"{path}: is not a tokenizer this version reads: {error}") from error
