"""What a request cost and what speculation brought, counted while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work

__all__ = ["Statistics"]


@dataclass
class Statistics:
    """Counters of one request, times in seconds.

    Decoding is what follows the first token, the draft's own reading of the prompt included. The
    steps of an engine, `draft_seconds` and `target_seconds`, include the assembly of their inputs;
    while an engine is computing, only its library runs. `assembly_seconds` are those inputs, and
    besides them what makes a proposal of a draft's rows, verifies and commits. A context is the
    number of cached rows that steps saw, added up over these.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    rounds: int = 0
    plain_rounds: int = 0
    nodes: int = 0
    proposed: list[int] = field(default_factory=list[int])
    accepted: list[int] = field(default_factory=list[int])
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    draft_computing_seconds: float = 0.0
    target_computing_seconds: float = 0.0
    assembly_seconds: float = 0.0
    draft_steps: int = 0
    draft_context: int = 0
    target_steps: int = 0
    target_context: int = 0
    encoder_calls: Counter[str] = field(default_factory=Counter[str])
    """By model, how often its encoder ran."""
    policies: Counter[str] = field(default_factory=Counter[str])
    """Rounds that each shaped."""
    sources: Counter[str] = field(default_factory=Counter[str])
    """Accepted tokens that each drafter proposed, where several may have."""

    def count(self, proposal: Proposal, path: Sequence[int], policies: Sequence[str] = ()) -> None:
        """Record a round: its proposal, the accepted nodes, the root first, what shaped it."""
        accepted = len(path) - 1
        tested = accepted + bool(proposal.children(path[-1]))
        self.count_round(max(proposal.depths()), accepted, tested)
        self.nodes += len(proposal.tokens)
        self.policies.update(policies)
        if proposal.sources:
            self.sources.update(proposal.sources[node - 1] for node in path[1:])

    def count_round(self, depth: int, accepted: int, tested: int | None = None) -> None:
        """Record a round; entry i of a list counts the levels i of the proposals.

        A level is tested only if one before it stood: by default one more than those accepted.
        """
        self.rounds += 1
        self.plain_rounds += not depth
        while len(self.proposed) < depth:
            self.proposed.append(0)
            self.accepted.append(0)
        for index in range(min(accepted + 1, depth) if tested is None else tested):
            self.proposed[index] += 1
            self.accepted[index] += index < accepted

    def time(self, draft: Work, target: Work, assembly: float, whole: float) -> None:
        """Add a round of `whole` seconds: what its engines did, and the seconds of `assembly` but
        for the inputs in their steps."""
        self.draft_seconds += draft.seconds
        self.draft_computing_seconds += draft.computing
        self.draft_steps += draft.steps
        self.draft_context += draft.context
        self.target_seconds += target.seconds
        self.target_computing_seconds += target.computing
        self.target_steps += target.steps
        self.target_context += target.context
        engines = draft + target
        self.assembly_seconds += assembly + engines.seconds - engines.computing
        self.decode_seconds += whole

    @property
    def decode_tokens(self) -> int:
        """Tokens that decoding rounds emitted: all but the first, which the prompt yields."""
        return max(self.new_tokens - 1, 0)

    @property
    def tokens_per_second(self) -> float:
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def acceptance(self) -> float:
        """Accepted over tested proposals."""
        tested = sum(self.proposed)
        return sum(self.accepted) / tested if tested else 0.0

    @property
    def accepted_length(self) -> float:
        """Tokens a round: accepted proposals and the target's own."""
        return self.decode_tokens / self.rounds if self.rounds else 0.0

    @property
    def overhead_seconds(self) -> float:
        """Decoding time outside engine calls."""
        return self.decode_seconds - self.draft_seconds - self.target_seconds
