"""An artifact, opened to generate text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.chat import ChatTemplate, Message
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.proposal import Draft
from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.errors import ArtifactError, RequestError
from speccompile.runtime.session import Finish, Request, Session
from speccompile.runtime.text import TextStream

__all__ = ["CHAT_TEMPLATE_FILE", "DRAFTS", "TOKENIZER_FILE", "Runner"]

TOKENIZER_FILE = "tokenizer/tokenizer.json"
CHAT_TEMPLATE_FILE = "tokenizer/chat_template.jinja"

DRAFTS = ("model", "ngram", "none")


class Runner:
    """Holds the tokenizer and the engines of one artifact; engines open when first needed."""

    def __init__(self, artifact: Artifact, *, threads: int = 0) -> None:
        self.artifact = artifact
        self.manifest = artifact.manifest
        self.measurements = artifact.measurements
        self.tokenizer = _tokenizer(artifact)
        self._threads = threads
        self._engines: dict[str, Engine] = {}

    @classmethod
    def open(cls, path: Path | str, *, threads: int = 0) -> Runner:
        """Open an artifact after checking all of it; see `open_artifact` for what is refused."""
        return cls(open_artifact(path), threads=threads)

    def session(self, draft: str | None = None) -> Session:
        """A new sequence; `draft` is "model", "ngram" or "none", by default the artifact's own.

        Sessions share the engines and their caches: use one at a time.
        """
        kind = draft or self.measurements.defaults.draft
        context = self.manifest.model.context_length
        return Session(self.engine("target"), self._draft(kind), context=context)

    def engine(self, role: str) -> Engine:
        """The open engine of a role, "target" or "draft"."""
        info = self.manifest.engines.get(role)
        if info is None:
            raise RequestError(
                f"{self.artifact.root} has no {role} model; use --draft ngram or --draft none"
            )
        if role not in self._engines:
            shared = self.engine("target") if info.shares_cache else None
            self._engines[role] = open_engine(
                info, self.artifact.path(info.graph), threads=self._threads, cache_of=shared
            )
        engine = self._engines[role]
        engine.rollback(0)
        return engine

    def encode_raw(self, text: str) -> list[int]:
        """The tokens of a prompt that is to be continued as it is."""
        return list(self.tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation, ready for the assistant's next turn."""
        prompt = self._chat_template().render(messages)
        return list(self.tokenizer.encode(prompt, add_special_tokens=False).ids)

    def stream(
        self, session: Session, prompt: Sequence[int], request: Request, stop: Sequence[str] = ()
    ) -> Iterator[str]:
        """Generate and yield text as it becomes final."""
        text = TextStream(self.tokenizer, stop, after=prompt)
        for token in session.generate(prompt, request):
            if piece := text.push(token):
                yield piece
            if text.stopped:
                session.finish = Finish.STOP
                return
        if rest := text.finish():
            yield rest

    def _draft(self, kind: str) -> Draft | None:
        if kind == "none":
            return None
        if kind == "ngram":
            return NgramDraft()
        if kind == "model":
            engine = self.engine("draft")
            shares_cache = self.manifest.engines["draft"].shares_cache
            if shares_cache and isinstance(engine, Cursor):
                return SharedCacheDraft(engine)
            return ModelDraft(engine)
        raise RequestError(f"draft {kind!r} is unknown; choose one of {', '.join(DRAFTS)}")

    def _chat_template(self) -> ChatTemplate:
        if CHAT_TEMPLATE_FILE not in self.manifest.files:
            raise RequestError(f"{self.artifact.root} has no chat template; use --raw")
        source = self.artifact.path(CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")
        model = self.manifest.model
        return ChatTemplate(
            source,
            bos_token=self._token(model.bos_token_id),
            eos_token=self._token(next(iter(model.eos_token_ids), None)),
        )

    def _token(self, identifier: int | None) -> str:
        return "" if identifier is None else self.tokenizer.id_to_token(identifier) or ""


def _tokenizer(artifact: Artifact) -> Tokenizer:
    path = artifact.path(TOKENIZER_FILE)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ArtifactError(f"{path}: is not a tokenizer this version reads: {error}") from error
