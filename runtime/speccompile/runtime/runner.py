"""An artifact, opened to generate text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from speccompile.runtime import host
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
from speccompile.runtime.placement import AUTO, CPU, Placement, choose_placement
from speccompile.runtime.session import AnySession, Finish, Request, Session
from speccompile.runtime.text import TextStream

if TYPE_CHECKING:
    from speccompile.runtime.device_engines import DeviceEngines, OpenPlans

__all__ = ["CHAT_TEMPLATE_FILE", "DRAFTS", "TOKENIZER_FILE", "Runner"]

TOKENIZER_FILE = "tokenizer/tokenizer.json"
CHAT_TEMPLATE_FILE = "tokenizer/chat_template.jinja"

DRAFTS = ("model", "ngram", "none")


class Runner:
    """Holds the tokenizer and the engines of one artifact; those of a CPU open when first needed.

    `on` is "cpu", or the folder of plans that it runs on a GPU; `context` the longest sequence.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        threads: int = 0,
        context: int | None = None,
        placement: Placement | None = None,
        device: DeviceEngines | None = None,
    ) -> None:
        """With a `placement`, `device` has its plans open."""
        self.artifact = artifact
        self.manifest = artifact.manifest
        self.measurements = artifact.measurements
        self.tokenizer = _tokenizer(artifact)
        self.context = _context(artifact, context)
        self.placement = placement
        self.on = placement.folder if placement else CPU
        self._device = device
        self._threads = threads
        self._engines: dict[str, Engine] = {}

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        threads: int = 0,
        on: str = AUTO,
        context: int | None = None,
        open_plans: OpenPlans | None = None,
    ) -> Runner:
        """Open an artifact after checking all of it; see `open_artifact` for what is refused.

        `on` says where (`choose_placement`); `context` limits sequences, and the memory that a GPU
        needs for them, to so many tokens, by default all that the artifact has. `open_plans` opens
        plans instead of `open_on_gpu`.
        """
        artifact = open_artifact(path, on_cpu=on == CPU)
        placement = choose_placement(artifact, on, _context(artifact, context))
        if placement is None:
            host.check(artifact.manifest.requires)
            return cls(artifact, threads=threads, context=context)
        device = (open_plans or _open_plans)(artifact, placement)
        return cls(artifact, threads=threads, context=context, placement=placement, device=device)

    def close(self) -> None:
        """Give a GPU back; its sessions and engines cannot be used any more."""
        if self._device:
            self._device.close()

    @property
    def roles(self) -> tuple[str, ...]:
        """The models that there are: "target", and perhaps "draft"."""
        have = self._device.models if self._device else self.manifest.engines
        return ("target", "draft") if "draft" in have else ("target",)

    def describe(self, role: str) -> str:
        """What computes the model of a role, in a few words."""
        if self.placement is None:
            engine = self.manifest.engines[role]
            return f"{engine.backend} {engine.precision}, {engine.arithmetic} arithmetic"
        pair, engines, gpu = self.placement.pair, self.placement.engines, self.placement.gpu
        plan = next(plan for plan in pair.plans if plan.role == role)
        return f"{engines.library} {plan.precision}, {plan.capacity} slots, {gpu.name}"

    def session(self, draft: str | None = None) -> AnySession:
        """A new sequence; `draft` is "model", "ngram" or "none", by default the artifact's own.

        Sessions share the engines and their caches: use one at a time.
        """
        kind = draft or self.measurements.defaults.draft
        if self._device and kind in ("model", "none"):
            if kind == "model":
                self._require("draft")
            return self._device.session(drafting=kind == "model", context=self.context)
        return Session(self.engine("target"), self._draft(kind), context=self.context)

    def engine(self, role: str) -> Engine:
        """The open engine of a role, "target" or "draft", with nothing in its cache."""
        self._require(role)
        if self._device:
            return self._device.engine(role)
        if role not in self._engines:
            info = self.manifest.engines[role]
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
        self, session: AnySession, prompt: Sequence[int], request: Request, stop: Sequence[str] = ()
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
            if self.manifest.engines["draft"].shares_cache and isinstance(engine, Cursor):
                return SharedCacheDraft(engine)
            return ModelDraft(engine)
        raise RequestError(f"draft {kind!r} is unknown; choose one of {', '.join(DRAFTS)}")

    def _require(self, role: str) -> None:
        if role not in self.roles:
            raise RequestError(
                f"{self.artifact.root} has no {role} model; use --draft ngram or --draft none"
            )

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


def _open_plans(artifact: Artifact, placement: Placement) -> DeviceEngines:
    # Late: an artifact without plans needs nothing of what runs them.
    from speccompile.runtime.device_engines import open_on_gpu

    return open_on_gpu(artifact, placement)


def _context(artifact: Artifact, wanted: int | None) -> int:
    most = artifact.manifest.model.context_length
    if wanted is not None and not 0 < wanted <= most:
        raise RequestError(f"{artifact.root}: a context of {wanted} tokens; it has 1 to {most}")
    return wanted or most


def _tokenizer(artifact: Artifact) -> Tokenizer:
    path = artifact.path(TOKENIZER_FILE)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ArtifactError(f"{path}: is not a tokenizer this version reads: {error}") from error
