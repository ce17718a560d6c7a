"""A round of speculative decoding but for the target's step: propose before it, judge after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from speccompile.runtime.control.controller import Controller, FixedController, Outcome
from speccompile.runtime.drafting.draft import Draft, Effort, always
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.generation import Block, Generation
from speccompile.runtime.logprobs import logprobs
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.verify import Verdict, verify

__all__ = ["Decoding", "Feed"]

_DRAFT_LENGTH = 5
_NOTHING = Work()

A = TypeVar("A")
R = TypeVar("R")


class Feed(NamedTuple):
    """What the target's step takes; see `Engine.step`."""

    tokens: list[int]
    parents: list[int] | None
    last: int


class Decoding:
    """A generation on one target. `rows` are the tokens in the target's cache.

    A round is `propose`, a step of the target on what that returns, `take`, and the target's
    roll-back to `rows`. The first round proposes nothing: it judges the end of the prompt.
    Whoever decodes may put rows of `generation.tokens` into the cache at any time, or all out of
    it, as long as `rows` says so.
    """

    def __init__(
        self,
        generation: Generation,
        rows: list[int],
        *,
        capacity: int,
        draft: Draft | None = None,
        controller: Controller | None = None,
    ) -> None:
        """`capacity` is the target's. Without a `controller`, every round drafts as far as the
        request allows; the draft and the controller serve no other request at the same time."""
        request = generation.request
        self.generation, self.rows = generation, rows
        self._capacity, self._draft = capacity, draft
        self._controller = controller or FixedController(
            _DRAFT_LENGTH if request.draft_length is None else request.draft_length
        )
        self._sampler = Sampler(request.sampling, request.processors)
        self._begun = False
        self._proposal: Proposal | None = None
        self._policies: Sequence[str] = ()
        self._seconds, self._drafting = 0.0, Work()  # of the round's proposal
        self._deciding = 0.0  # the controller's part of these seconds
        self._controller.start()
        if draft:
            draft.start(generation.tokens)

    def propose(self) -> Feed:
        """The rows of the round: what the cache lacks of the tokens, the root last; the proposal.

        The proposal of a round is made once, however often it is asked for.
        """
        if self._proposal is None:
            start, work, self._deciding = time.perf_counter(), self._work, 0.0
            self._proposal, self._policies = self._propose()
            self._seconds = time.perf_counter() - start
            self._drafting = self._work - work
        proposal = self._proposal
        fed = self.generation.tokens[len(self.rows) :]
        parents = None
        if not proposal.is_chain:
            root = len(fed) - 1
            parents = [*range(-1, root), *(root + parent for parent in proposal.parents)]
        return Feed([*fed, *proposal.tokens], parents, len(proposal.tokens) + 1)

    def take(self, logits: Logits, target: Work = _NOTHING) -> Block:
        """Judge the round by the `target`'s rows of the root and the proposal, [n + 1, V].

        Returns what it adds to the generation, whose tokens are left as they are. `rows` become
        those that are a chain; other accepted tokens are fed again. Raises EngineError for logits
        that are not finite, RequestError where every token is forbidden.
        """
        start = time.perf_counter()
        proposal, tokens = self._proposal or Proposal(), self.generation.tokens
        verdict = verify(logits, proposal, tokens, self._sampler, self.generation.request.rule)
        fed = len(tokens) - len(self.rows)
        self._commit(proposal, verdict)
        self._proposal = None
        emitted = [*(proposal.tokens[node - 1] for node in verdict.path[1:]), verdict.token]
        block = self._block([logits[node] for node in verdict.path], emitted)
        if self._begun:
            judging = time.perf_counter() - start
            outcome = Outcome(
                proposal,
                verdict.path,
                verdict.token,
                logits[verdict.path[-1]],
                fed + len(proposal.tokens),
                self._drafting.seconds,
                target.seconds,
                self._seconds + target.seconds + judging,
                self._policies,
                logits,
                tokens,
                self._sampler,
            )
            assembly = self._seconds - self._drafting.seconds - self._deciding + judging
            statistics = self.generation.statistics
            statistics.count(proposal, verdict.path, self._policies)
            statistics.time(self._drafting, target, assembly, outcome.seconds)
            self._controller.learn(outcome)
        self._begun = True
        return block

    def _propose(self) -> tuple[Proposal, Sequence[str]]:
        """The round's proposal, and the policies that shaped it."""
        request, tokens = self.generation.request, self.generation.tokens
        # The target adds a token of its own, so a proposal need not reach the end.
        room = self.generation.end - len(tokens) - 1
        if request.draft_length is not None:
            room = min(room, request.draft_length)
        drafts = self._begun and self._draft is not None and room > 0
        effort = self._effort(room) if drafts else None
        if self._draft is None or effort is None:
            return Proposal(), ()
        nodes = min(effort.nodes, self._capacity - len(tokens))
        effort = replace(effort, depth=min(effort.depth, room), nodes=nodes)
        return self._draft.propose(tokens, effort, self._sampler), effort.policies

    def _effort(self, room: int) -> Effort | None:
        """What the controller says, which is timed, and so is what it will say of tokens."""
        effort = self._timed(self._controller.effort)(room)
        if effort is None or effort.go_on is always:
            return effort
        return replace(effort, go_on=self._timed(effort.go_on))

    def _timed(self, decide: Callable[[A], R]) -> Callable[[A], R]:
        def timed(argument: A) -> R:
            start = time.perf_counter()
            try:
                return decide(argument)
            finally:
                self._deciding += time.perf_counter() - start

        return timed

    def _commit(self, proposal: Proposal, verdict: Verdict) -> None:
        self.rows += self.generation.tokens[len(self.rows) :]
        for index, node in enumerate(verdict.path[1:], start=1):
            if node != index:
                break
            self.rows.append(proposal.tokens[node - 1])

    def _block(self, logits: Sequence[Logits], tokens: list[int]) -> Block:
        count = self.generation.request.logprobs
        if count is None:
            return Block(tokens)
        return Block(
            tokens, [logprobs(row, token, count) for row, token in zip(logits, tokens, strict=True)]
        )

    @property
    def _work(self) -> Work:
        return self._draft.work if self._draft else _NOTHING
