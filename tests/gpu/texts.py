"""What generated tokens are compared with: decoding as it is defined, without caches or kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins import laws
from speccompile.plugins.spec_verify import Tree, spec_verify
from speccompile.runtime.sampling import Randomness, Sampling
from tests.gpu.sections import Task

__all__ = ["TIE", "TIE_HALF", "DraftRows", "Rows", "greedy_text", "same_text", "sampled_text"]

Rows = Callable[[Sequence[int]], NDArray[np.float32]]
"""The logits [N, V] of all rows of a sequence."""

DraftRows = Callable[[Sequence[int], int], NDArray[np.float32]]
"""Likewise, but told how many rows the target has committed: a draft in its cache reads those."""

TIE = 1e-4
"""Logits in fp32 that are closer, as a share of the largest, are told apart by the order of sums
alone."""
TIE_HALF = 1e-2
"""Likewise of a decoder whose arithmetic is fp16."""


def greedy_text(rows: Rows, prompt: Sequence[int], count: int) -> list[int]:
    """Plain decoding, every token from the whole sequence."""
    tokens = [*prompt]
    for _ in range(count):
        tokens.append(int(rows(tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def sampled_text(
    target: Rows,
    draft: DraftRows,
    prompt: Sequence[int],
    sampling: Sampling,
    proposals: int,
    count: int,
) -> list[int]:
    """Rounds of so many proposals, by the rule "traversal" as numpy has it."""
    numbers = Randomness(sampling.seed)

    def drawn(rows: NDArray[np.float32], number: int) -> int:
        law = laws.law(rows[-1], sampling.filters)
        token = None if law is None else laws.draw(law, number)
        if token is None:
            raise RuntimeError("the decoder's logits make no law")
        return token

    tokens = [*prompt]
    tokens.append(drawn(target(tokens), numbers.emit(len(tokens))))
    while len(tokens) < len(prompt) + count:
        root, guessed = len(tokens) - 1, [*tokens]
        nodes = range(proposals + 1)
        for node in nodes[1:]:
            guessed.append(drawn(draft(guessed, root), numbers.draft(root, node)))
        tree = Tree(np.array(guessed[root:]), np.arange(-1, proposals))
        pairs = [[numbers.accept(root, node), numbers.emit(root + node + 1)] for node in nodes]
        rows, draft_rows = target(guessed)[root:], draft(guessed, root)[root:]
        verdict = spec_verify(
            "traversal", rows, tree, np.array(pairs), sampling.filters, draft_rows
        )
        tokens += verdict.emitted(tree)
    return tokens[len(prompt) : len(prompt) + count]


def same_text(
    task: Task,
    what: str,
    found: Sequence[int],
    expected: Sequence[int],
    prompt: Sequence[int],
    rows: Rows,
    tie: float,
) -> int:
    """Compare greedy texts; returns how many tokens they begin with in common.

    Where they part, both tokens must be within `tie` of the largest logit that `rows` has there;
    what follows is another text.
    """
    both = zip(found, expected, strict=False)
    common = next((i for i, (ours, theirs) in enumerate(both) if ours != theirs), len(expected))
    if len(found) != len(expected):
        task.wrong(f"{what}: {len(found)} tokens instead of {len(expected)}")
    elif common < len(expected):
        logits = rows([*prompt, *expected[:common]])[-1]
        least = min(float(logits[found[common]]), float(logits[expected[common]]))
        margin = float(logits.max() - least) / float(np.abs(logits).max())
        if margin > tie:
            task.wrong(
                f"{what}: token {common} is {found[common]} instead of {expected[common]}, "
                f"{margin:.1e} of the largest logit away"
            )
    return common
