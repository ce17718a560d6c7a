"""Draft with several drafters at once: one tree of all their guesses."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TypeVar

from speccompile.runtime.drafting.certain import add_beside
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.hedge import Weights
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler

__all__ = ["Union"]

_T = TypeVar("_T")


class Union:
    """The guesses of all drafters behind one root, those of the drafter most trusted first.

    `lookups` cost nothing and draw nothing. `models` use engines, none in common, and run at the
    same time. What follows from the text is merged: a prefix of several is proposed once. What was
    drawn stands for itself, beside a sibling of the same token too, with the law it was drawn from:
    verification takes out of the target's law what each had a chance to propose, one after the
    other. Trust is what a drafter would have had accepted so far in the request, never what it
    thinks of its latest guesses.

    Each drafter in turn may take a path's worth of the nodes that are left, the last all of them.
    Where there are no more nodes than levels, the first that has something to propose does so
    alone. A Union cannot have another inside: their models would draw with the same numbers.
    """

    name = "union"

    def __init__(self, lookups: Sequence[Draft], models: Sequence[Draft] = ()) -> None:
        self._lookups, self._models = list(lookups), list(models)
        self._drafters = [*self._lookups, *self._models]
        self._weights = Weights([0.0] * len(self._drafters))
        self._pool = (
            ThreadPoolExecutor(len(self._models), "draft")
            if len(self._models) > 1 and (os.cpu_count() or 1) > 1
            else None
        )

    @property
    def work(self) -> Work:
        """Of all models: more seconds than have passed where they ran at the same time."""
        return sum((model.work for model in self._models), Work())

    def start(self, prompt: Sequence[int]) -> None:
        """A request begins with equal weights: what it draws depends on no earlier one."""
        self._weights.start()
        for lookup in self._lookups:
            lookup.start(prompt)
        self._together([partial(model.start, prompt) for model in self._models])

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        self._weights.learn(tokens)
        inner = replace(effort, beside=())
        asked = {
            number: lookup.propose(tokens, inner, sampler)
            for number, lookup in enumerate(self._lookups)
        }
        order = self._weights.ranking()
        shares = self._shares(order, asked, effort)
        models = [number for number in shares if number not in asked]
        tasks = [
            partial(
                self._drafters[number].propose,
                tokens,
                replace(inner, depth=min(effort.depth, shares[number]), nodes=shares[number]),
                # A model alone draws as it would without the lookups.
                sampler.of_drafter(number) if len(self._models) > 1 else sampler,
            )
            for number in models
        ]
        asked |= zip(models, self._together(tasks), strict=True)
        self._weights.note(tokens, asked)
        union = _Grafted()
        for number, nodes in shares.items():
            union.graft(asked[number], nodes, self._drafters[number].name)
        add_beside(union.proposal, effort, "beside")
        return union.proposal

    def _shares(
        self, order: Sequence[int], asked: dict[int, Proposal], effort: Effort
    ) -> dict[int, int]:
        """How many nodes each drafter may bring, in that order; decided before any is drawn."""
        shares: dict[int, int] = {}
        left = effort.nodes
        for number in order:
            share = left if number == order[-1] else min(left, effort.depth)
            if number in asked:
                share = min(share, len(asked[number].tokens))
            if share:
                shares[number] = share
                left -= share
                if effort.nodes <= effort.depth:
                    break
        return shares

    def _together(self, tasks: Sequence[Callable[[], _T]]) -> list[_T]:
        if self._pool is None or len(tasks) < 2:
            return [task() for task in tasks]
        futures = [self._pool.submit(task) for task in tasks]
        wait(futures)  # where one fails, no other may still be at work when the next round begins
        return [future.result() for future in futures]


class _Grafted:
    """A proposal that takes in others."""

    def __init__(self) -> None:
        self.proposal = Proposal()
        self._certain: dict[tuple[int, int], int] = {}  # nodes that were not drawn

    def graft(self, other: Proposal, count: int, name: str) -> None:
        """Add the first `count` nodes of a proposal of the drafter `name`."""
        numbers = [0]
        nodes = zip(other.tokens[:count], other.parents, other.laws, strict=False)
        for index, (token, before, law) in enumerate(nodes):
            parent = numbers[before]
            node = self._certain.get((parent, token)) if law is None else None
            if node is None:
                source = other.sources[index] if other.sources else name
                node = self.proposal.add(token, parent, law, source)
                if law is None:
                    self._certain[parent, token] = node
            numbers.append(node)
