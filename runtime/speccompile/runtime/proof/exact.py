"""Level 0: that the rules keep the target's law, without any sampling error.

Every decision of a round is enumerated, in fp64, over models of three tokens: what the runtime's
own code proposes and accepts, followed by the target alone, has to have the target's law to the
last digits. A rule that draws anew where it should draw from the residual has to be found out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from speccompile.runtime import verify as production
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.enumeration import Decisions, deciding
from speccompile.runtime.proof.models import Model, Text, exact_law, mixed, random_model
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Guess, Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.verify import Verdict

__all__ = ["TOLERANCE", "check_exact"]

TOLERANCE = 1e-12
"""The largest error of a probability: fp64 rounds to 1e-16, and a few hundred are summed."""

_DETECTED = 1e-3  # the least error that shows the control to be wrong
_PROMPT: Text = (0,)
_CERTAIN = -1

Shape = Sequence[tuple[int, int]]
"""For each node, what it follows, 0 for the root, and which draft draws it, or `_CERTAIN`."""

_SHAPES: Mapping[str, Shape] = {
    "chain of 1": [(0, 0)],
    "chain of 2": [(0, 0), (1, 0)],
    "chain of 3": [(0, 0), (1, 0), (2, 0)],
    "siblings": [(0, 0), (0, 0), (1, 0)],
    "two drafts": [(0, 0), (1, 0), (0, 1)],
    "drawn and certain": [(0, 0), (1, 0), (0, _CERTAIN)],
    "certain tree": [(0, _CERTAIN), (0, _CERTAIN), (1, _CERTAIN), (2, _CERTAIN)],
}
_RULES: tuple[Rule, ...] = ("token", "traversal")

Verify = Callable[[Logits, Proposal, Sequence[int], Sampler, Rule], Verdict]


@dataclass(frozen=True)
class _Pair:
    """A target, and two drafts."""

    target: Model
    drafts: tuple[Model, Model]


def check_exact(progress: Progress = silent) -> Check:
    """Compare the law of a round's tokens with the target's, for every rule, shape and pair."""
    pairs = list(_pairs())
    cases: list[tuple[str, Rule]] = [(name, rule) for name in _SHAPES for rule in _rules(name)]
    errors: dict[str, float] = {}
    outcomes = 0
    with deciding() as decisions:
        for index, (name, rule) in enumerate(cases):
            progress("exact", index, len(cases))
            for pair in pairs:
                found = _error(decisions, pair, _SHAPES[name], rule, production.verify)
                label = "walk" if name == "certain tree" else rule
                errors[label] = max(errors.get(label, 0.0), found.largest)
                outcomes += found.outcomes
        control = _error(
            decisions, pairs[0], _SHAPES["chain of 2"], "token", _drawing_anew(decisions)
        ).largest
    worst = max(errors.values())
    missed = control < _DETECTED
    verdict = f"largest error {worst:.1e} (at most {TOLERANCE:g})"
    contrast = "goes unnoticed" if missed else f"errs by {control:.2f}"
    return Check(
        "exact",
        worst <= TOLERANCE and not missed,
        f"{outcomes} outcomes of {', '.join(errors)} rules on {len(_SHAPES)} shapes: {verdict}; "
        f"a wrong rule {contrast}",
        {
            "errors": errors,
            "tolerance": TOLERANCE,
            "control_error": control,
            "outcomes": outcomes,
            "shapes": list(_SHAPES),
            "pairs": len(pairs),
        },
    )


def _rules(shape: str) -> tuple[Rule, ...]:
    return ("traversal",) if shape == "certain tree" else _RULES  # nothing drawn: one walk


def _pairs() -> Iterator[_Pair]:
    """A draft close to its target, one that excludes what its target does not, and the reverse."""
    target, noise, other = (random_model(seed) for seed in (1, 2, 3))
    yield _Pair(target, (mixed(noise, target, 0.4), other))
    yield _Pair(random_model(4), (random_model(5, zeros=0.7), random_model(6)))
    yield _Pair(random_model(7, zeros=0.7), (random_model(8), random_model(9, one_hot=True)))


@dataclass(frozen=True)
class _Found:
    largest: float
    outcomes: int


def _error(decisions: Decisions, pair: _Pair, shape: Shape, rule: Rule, verify: Verify) -> _Found:
    """Of the first tokens of a round, one more than it is deep, and how many ways there were."""
    length = 1 + max(_depths(shape))
    found: dict[Text, float] = defaultdict(float)
    outcomes = 0

    def one_round() -> Text:
        sampler = Sampler(Sampling(1.0))
        proposal = _grown(shape, pair.drafts, sampler)
        nodes = range(len(proposal.tokens) + 1)
        rows = np.stack([pair.target.row((*_PROMPT, *proposal.path(node))) for node in nodes])
        path, token = verify(rows, proposal, _PROMPT, sampler, rule)
        return (*(proposal.tokens[node - 1] for node in path[1:]), token)

    for emitted, probability in decisions.runs(one_round):
        outcomes += 1
        _continue(pair.target, emitted, probability, length, found)
    expected: dict[Text, float] = defaultdict(float)
    _continue(pair.target, (), 1.0, length, expected)
    return _Found(max(abs(found[text] - expected[text]) for text in {*found, *expected}), outcomes)


def _grown(shape: Shape, drafts: Sequence[Model], sampler: Sampler) -> Proposal:
    """A tree of that shape, but for nodes for which no token is left."""
    proposal = Proposal()
    numbers: dict[int, int | None] = {0: 0}
    guesses: dict[tuple[int, int], Iterator[Guess]] = {}
    for index, (parent, source) in enumerate(shape, start=1):
        above = numbers[parent]
        guess = None
        if above is not None:
            if (parent, source) not in guesses:
                path, drafter = proposal.path(above), max(source, 0)
                found = sampler.of_drafter(drafter).guesses(
                    drafts[drafter].row((*_PROMPT, *path)),
                    _PROMPT,
                    path,
                    shape.count((parent, source)),
                    node=index,
                    certain=source == _CERTAIN,
                )
                guesses[parent, source] = iter(found)
            guess = next(guesses[parent, source], None)
        numbers[index] = (
            None if guess is None or above is None else proposal.add(guess.token, above, guess.law)
        )
    return proposal


def _continue(
    target: Model, text: Text, probability: float, length: int, into: dict[Text, float]
) -> None:
    """Add the law of the first `length` tokens, where the target goes on behind shorter texts."""
    if len(text) >= length:
        into[text[:length]] += probability
        return
    for token, each in enumerate(target.law((*_PROMPT, *text))):
        if each > 0.0:
            _continue(target, (*text, token), probability * float(each), length, into)


def _drawing_anew(decisions: Decisions) -> Verify:
    """After a rejection, from the target's own law: the most common mistake."""

    def verify(
        rows: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
    ) -> Verdict:
        path = production.verify(rows, proposal, tokens, sampler, rule).path
        return Verdict(path, decisions.choose(exact_law(rows[path[-1]]).tolist()))

    return verify


def _depths(shape: Shape) -> list[int]:
    depths = [0]
    for parent, _ in shape:
        depths.append(depths[parent] + 1)
    return depths
