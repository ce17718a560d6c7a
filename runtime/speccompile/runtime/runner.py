"""An artifact, opened to generate text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from speccompile.runtime import host
from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.chat import Message
from speccompile.runtime.control.chains import ChainController
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.control.policies import Policy, PolicyController
from speccompile.runtime.draft_names import DRAFTS
from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.engine import CacheSharer, Encoder, Engine
from speccompile.runtime.engines.opening import open_encoder, open_engine
from speccompile.runtime.errors import RequestError
from speccompile.runtime.options import Options
from speccompile.runtime.output import Output
from speccompile.runtime.placement import AUTO, CPU, Placement, choose_placement
from speccompile.runtime.prompts import Prompts, open_tokenizer
from speccompile.runtime.session import AnySession, Request, Session
from speccompile.runtime.signatures import required_signature
from speccompile.runtime.source_session import SourceSession
from speccompile.runtime.speculation import asked_models, make_controller, make_draft
from speccompile.runtime.text import TextStream
from speccompile.runtime.translator import Translator

if TYPE_CHECKING:
    from speccompile.runtime.device_engines import DeviceEngines, OpenPlans

__all__ = ["DRAFT_LENGTH", "Runner"]

DRAFT_LENGTH = 5
"""Of every proposal, where nothing is to adapt and the artifact has no length of its own."""


_SAMPLE = 64  # tokens of the source of an engine that is asked by itself


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
        self.tokenizer = open_tokenizer(artifact)
        self._prompts = Prompts.of(artifact, self.tokenizer)
        model = artifact.manifest.model
        self._translator = Translator(self.tokenizer, model.vocab_size, model.eos_token_ids)
        self.context = _context(artifact, context)
        self.placement = placement
        self.on = placement.folder if placement else CPU
        self._device = device
        self._threads = threads
        self._engines: dict[str, Engine] = {}
        self._encoders: dict[str, Encoder] = {}  # of those engines, where they have one

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        threads: int = 0,
        on: str = AUTO,
        context: int | None = None,
        open_plans: OpenPlans | None = None,
        require_signature: Path | None = None,
    ) -> Runner:
        """Open an artifact after checking all of it; see `open_artifact` for what is refused.

        With `require_signature`, a PEM file (`verify_signature`), it must be signed; by default
        $SPECCOMPILE_REQUIRE_SIGNATURE says so.

        `on` says where (`choose_placement`); `context` limits sequences, and the memory that a GPU
        needs for them, to so many tokens, by default all that the artifact has. `open_plans` opens
        plans instead of `open_on_gpu`.
        """
        trusted = require_signature or required_signature()
        artifact = open_artifact(path, on_cpu=on == CPU, trusted=trusted)
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
        """The models that there are: "target", and perhaps "draft" and experts by their names."""
        have = self._device.models if self._device else self.manifest.engines
        drafting = ("draft",) if self._device else self.manifest.drafts
        return ("target", *(name for name in drafting if name in have))

    @property
    def drafts(self) -> tuple[str, ...]:
        """All that can draft here, those that are one model first: of `DRAFTS`, and the experts."""
        able = [
            draft
            for draft in ("model", *self.manifest.experts, *DRAFTS[1:])
            if {*self.models(draft)} <= {*self.roles}
        ]
        return tuple(able)

    @property
    def usual_draft(self) -> str:
        """Who drafts unless it is said: as measured, but on a GPU, where nobody takes turns and
        experts have no plans, the model for any that rests on one."""
        usual = self.measurements.defaults.draft
        rests = usual == "hedge" or usual in self.manifest.experts
        return "model" if self.placement and rests else usual

    def models(self, draft: str) -> tuple[str, ...]:
        """The models that a draft asks, of the `roles` where it is there; see `asked_models`."""
        asked = asked_models(draft, self.manifest)
        return tuple(name for name in asked if name in self.roles) or asked

    @property
    def takes_trees(self) -> bool:
        """Whether a tree's rows are the target's own: to the bit with ONNX Runtime, and with
        OpenVINO but for the rounding of FP32 sums.

        There, INT8 weights round activations, and BF16 everything: rows off the first chain are
        1e-2 of the largest logit apart from those of plain decoding, which could decide otherwise.
        """
        if self.placement:
            return False
        info = self.manifest.engines["target"]
        exact = info.backend == "onnxruntime" or (
            info.arithmetic == "fp32" and info.precision in ("fp32", "fp16", "bf16")
        )
        return exact and self.engine("target").takes_trees

    def describe(self, role: str) -> str:
        """What computes the model of a role, in a few words."""
        if self.placement is None:
            engine = self.manifest.engines[role]
            return f"{engine.backend} {engine.precision}, {engine.arithmetic} arithmetic"
        pair, engines, gpu = self.placement.pair, self.placement.engines, self.placement.gpu
        plan = next(plan for plan in pair.plans if plan.role == role)
        return f"{engines.library} {plan.precision}, {plan.capacity} slots, {gpu.name}"

    def session(
        self,
        draft: str | None = None,
        *,
        adaptive: bool = True,
        policies: Sequence[Policy] = (),
    ) -> AnySession:
        """A new sequence; `draft` is one of `DRAFTS` or an expert, by default the artifact's own.

        Unless it is `adaptive`, every round drafts as far as the request says. Roll-back `policies`
        shape the round after a rejection. Sessions share the engines and their caches: use one at a
        time.
        """
        defaults = self.measurements.defaults
        kind = draft or self.usual_draft
        if self._device and kind in ("model", "none"):
            if kind == "model":
                self._require("draft")
            return self._device.session(
                drafting=kind == "model", context=self.context, draft_length=defaults.draft_length
            )
        controller = self.controller(kind) if adaptive and kind != "none" else None
        if policies:
            controller = PolicyController(
                controller or FixedController(defaults.draft_length or DRAFT_LENGTH), policies
            )
        return self.host_session(kind, controller)

    def host_session(self, draft: str, controller: Controller | None = None) -> Session:
        """A new sequence whose rounds are the host's, with one of the `drafts`; they are chains
        where the target takes no trees."""
        if controller and not self.takes_trees:
            controller = ChainController(controller)
        target, drafting = self.engine("target"), self.draft(draft)
        start = self.manifest.model.start_token_id
        if start is None:
            return Session(target, drafting, controller, context=self.context)
        asked = ("target", *self.models(draft))
        encoders = {role: self._encoders[role] for role in asked if role in self._encoders}
        return SourceSession(target, encoders, start, drafting, controller, context=self.context)

    @property
    def reads_source(self) -> bool:
        """Whether a prompt is the source of an encoder-decoder, not what it continues."""
        return self.manifest.model.start_token_id is not None

    def opening(self, prompt: Sequence[int]) -> Sequence[int]:
        """What the sequence of a prompt begins with: the prompt itself, unless it is a source."""
        start = self.manifest.model.start_token_id
        return prompt if start is None else (start,)

    def controller(self, draft: str) -> Controller:
        """Who decides how much that draft proposes, by what was measured and what it sees."""
        costs = {} if self.placement else self.measurements.cost_ms
        return make_controller(draft, self.artifact, self.models(draft), costs)

    def engine(self, role: str) -> Engine:
        """The open engine of one of the `roles`, with nothing in its cache.

        One with an encoder attends to some source until a session reads another.
        """
        self._require(role)
        if self._device:
            return self._device.engine(role)
        if role not in self._engines:
            info = self.manifest.engines[role]
            shared = self.engine("target") if info.shares_cache else None
            self._engines[role] = open_engine(
                info,
                self.artifact.path(info.graph),
                threads=self._threads,
                cache_of=shared,
                encoder=self._encoder("target" if info.shares_cache else role),
            )
        engine = self._engines[role]
        engine.rollback(0)
        return engine

    def encode(self, text: str) -> list[int]:
        """See `Prompts.encode`."""
        return self._prompts.encode(text)

    def encode_raw(self, text: str) -> list[int]:
        """See `Prompts.encode_raw`."""
        return self._prompts.encode_raw(text)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """See `Prompts.encode_chat`."""
        return self._prompts.encode_chat(messages)

    def stream(
        self,
        session: AnySession,
        prompt: Sequence[int],
        request: Request,
        stop: Sequence[str] = (),
        *,
        least: int = 0,
    ) -> Output:
        """Generate text, to be iterated over; it ends before the first of the `stop` texts.

        These count only behind the first `least` tokens.
        """
        after = () if self.reads_source else prompt
        text = TextStream(self.tokenizer, stop, after=after, least=least)
        return Output(session, prompt, request, text)

    def outputs(
        self, session: AnySession, prompt: Sequence[int], options: Options
    ) -> Iterator[Output]:
        """The n outputs that the options ask for: have each generated before the next."""
        request = self.request(options, prompt)
        for number in range(options.n):
            sampling = replace(request.sampling, sample=number)
            yield self.stream(
                session,
                prompt,
                replace(request, sampling=sampling),
                options.stop,
                least=options.min_new_tokens,
            )

    def request(self, options: Options, prompt: Sequence[int]) -> Request:
        """What a session takes to continue `prompt` as the options say, stop texts excepted."""
        return self._translator.request(options, self.opening(prompt))

    def draft(self, kind: str) -> Draft | None:
        """A draft of one of the `drafts`; for "none" there is none."""
        return make_draft(kind, self.artifact, self.models(kind), self._model_draft)

    def _encoder(self, role: str) -> Encoder | None:
        info = self.manifest.engines[role]
        if info.encoder and role not in self._encoders:
            encoder = open_encoder(info, self.artifact.path(info.encoder), threads=self._threads)
            encoder.read([token % info.vocab_size for token in range(min(_SAMPLE, self.context))])
            self._encoders[role] = encoder
        return self._encoders.get(role)

    def _model_draft(self, role: str) -> ModelDraft:
        engine, info = self.engine(role), self.manifest.engines.get(role)
        name = "model" if role == "draft" else role
        if info and info.shares_cache and isinstance(engine, CacheSharer):
            return SharedCacheDraft(engine, self.engine("target"), name)
        return ModelDraft(engine, name)

    def _require(self, role: str) -> None:
        if self._device and role in self.manifest.experts:
            raise RequestError(f"{self.artifact.root}: {role} has no plans for GPUs; use --on cpu")
        if role not in self.roles:
            raise RequestError(
                f"{self.artifact.root} has no {role} model; use --draft ngram or --draft none"
            )


def _open_plans(artifact: Artifact, placement: Placement) -> DeviceEngines:
    # Late: an artifact without plans needs nothing of what runs them.
    from speccompile.runtime.device_engines import open_on_gpu

    return open_on_gpu(artifact, placement)


def _context(artifact: Artifact, wanted: int | None) -> int:
    most = artifact.manifest.model.context_length
    if wanted is not None and not 0 < wanted <= most:
        raise RequestError(f"{artifact.root}: a context of {wanted} tokens; it has 1 to {most}")
    return wanted or most
