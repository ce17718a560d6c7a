"""What a caller may ask of a generation, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.penalties import OutputPenalty, RepetitionPenalty
from speccompile.runtime.request import AnyRule, Request
from speccompile.runtime.sampling import Sampling

__all__ = ["MOST_OUTPUTS", "Options"]

MOST_OUTPUTS = 128


@dataclass(frozen=True)
class Options:
    """Each is honoured as plain decoding would, or refused with a RequestError that names it.

    Output ends with the model's end of text, any of `stop_tokens`, or before the first text of
    `stop`; none of them counts in the first `min_new_tokens` tokens. Without a `seed`, a new one is
    taken. `n` outputs differ in their random numbers alone. `logit_bias` names a token by its id or
    by its text. `bad_words` are forbidden as they are tokenized, with and without a space before
    them; written in other tokens, the same text may still appear. The output may follow a
    `json_schema` (JSON), a `regex`, or a Lark `grammar`. For the rest, see `Sampling`, `Request`
    and `processors/`.
    """

    max_new_tokens: int = 256
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    audited: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int | str, float] = field(default_factory=dict[int | str, float])
    bad_words: Sequence[str] = ()
    stop: Sequence[str] = ()
    stop_tokens: Sequence[int] = ()
    json_schema: str | Mapping[str, object] | None = None
    regex: str | None = None
    grammar: str | None = None
    logprobs: int | None = None
    n: int = 1
    draft_length: int | None = None
    rule: AnyRule = "traversal"

    def __post_init__(self) -> None:
        """All that can be judged without a model is."""
        self.request()
        RepetitionPenalty(self.repetition_penalty)
        OutputPenalty(0, self.presence_penalty, self.frequency_penalty)
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise RequestError(
                f"min_new_tokens is {self.min_new_tokens}; it must be from 0 to "
                f"{self.max_new_tokens}, which is max_new_tokens"
            )
        if not 1 <= self.n <= MOST_OUTPUTS:
            raise RequestError(f"n is {self.n}; it must be from 1 to {MOST_OUTPUTS}")
        for name, texts in (("stop", self.stop), ("bad_words", self.bad_words)):
            if "" in texts:
                raise RequestError(f"{name} has an empty text; leave it out")
        constraints = [
            name for name in ("json_schema", "regex", "grammar") if getattr(self, name) is not None
        ]
        if len(constraints) > 1:
            raise RequestError(f"{' and '.join(constraints)} exclude each other; give one of them")

    def request(self, seed: int | None = None) -> Request:
        """What of it needs no model; `seed` is taken where the options have none."""
        sampling = Sampling(
            self.temperature,
            self.top_k,
            self.top_p,
            self.seed if self.seed is not None else seed or 0,
            self.min_p,
            self.audited,
        )
        return Request(
            max_new_tokens=self.max_new_tokens,
            sampling=sampling,
            draft_length=self.draft_length,
            logprobs=self.logprobs,
            rule=self.rule,
        )
