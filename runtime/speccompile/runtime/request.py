"""What a caller asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from speccompile.runtime.errors import RequestError
from speccompile.runtime.lossy import LOSSY_RULES, LossyRule
from speccompile.runtime.processors.processor import Processor
from speccompile.runtime.sampling import Sampling

__all__ = ["MOST_LOGPROBS", "RULES", "AnyRule", "Request", "Rule"]

MOST_LOGPROBS = 20

Rule = Literal["traversal", "token"]
"""How drawn proposals are judged: both keep the target's law, the first accepts more."""

AnyRule = Rule | LossyRule
RULES: tuple[AnyRule, ...] = (*get_args(Rule), *LOSSY_RULES)


@dataclass(frozen=True)
class Request:
    """What to generate. `draft_length` limits the depth of a proposal; 0 decodes plainly; without
    one, the session's controller decides alone.

    `processors` change logits before tokens are chosen by them, in this order (`processors/`).
    `logprobs` asks for the logarithms of the target's probabilities, of so many best tokens besides
    the chosen one.
    """

    max_new_tokens: int = 128
    sampling: Sampling = field(default_factory=Sampling)
    draft_length: int | None = None
    stop_tokens: frozenset[int] = frozenset()
    processors: Sequence[Processor] = ()
    logprobs: int | None = None
    rule: AnyRule = "traversal"

    def __post_init__(self) -> None:
        if self.max_new_tokens < 0:
            raise RequestError(f"max_new_tokens is {self.max_new_tokens}; it cannot be negative")
        if self.draft_length is not None and self.draft_length < 0:
            raise RequestError(f"draft_length is {self.draft_length}; it cannot be negative")
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_LOGPROBS:
            raise RequestError(f"logprobs is {self.logprobs}; it must be from 0 to {MOST_LOGPROBS}")

    @property
    def lossless(self) -> bool:
        """Whether the output is the target's own."""
        return self.rule not in LOSSY_RULES
