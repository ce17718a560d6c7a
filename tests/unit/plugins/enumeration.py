"""The exact law of a verification rule, measured from outside and without sampling.

A rule reads uniform numbers. Whenever it reads one that has no value yet, the interval [0, 1) is
cut by bisection where the rule's next act (to read another number, or to return) changes, and each
act is followed with the measure of its pieces as probability. This holds for every rule, right or
wrong, that spends each number on one decision; thresholds are found to 2^-52.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import nextafter, prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.reference import Verdict

__all__ = ["Law", "Rule", "chain_law", "distance", "outcomes", "round_law"]

Law = NDArray[np.float64]
Context = tuple[int, ...]
Model = Mapping[Context, Law]
"""The law of the next token after each short context, the empty one included."""

Rule = Callable[
    [Sequence[Law], Sequence[Law], Sequence[int], Sequence[float], Sequence[float]], Verdict
]
"""Of target laws, draft laws, proposal, accept uniforms and emit uniforms, as `token_rule`."""

_GRID = 8
_RESOLUTION = 2.0**-52


def round_law(rule: Rule, target: Model, draft: Model, length: int) -> dict[Context, float]:
    """The law of the first `length` + 1 tokens: a drafted round, then the target alone."""
    law: dict[Context, float] = defaultdict(float)
    vocabulary = range(len(target[()]))
    for proposal in product(vocabulary, repeat=length):
        prefixes = [proposal[:index] for index in range(length + 1)]
        drawn = prod(
            float(draft[prefix][token]) for prefix, token in zip(prefixes, proposal, strict=False)
        )
        if drawn == 0.0:
            continue
        p, q = [target[prefix] for prefix in prefixes], [draft[prefix] for prefix in prefixes[:-1]]
        for verdict, mass in outcomes(rule, p, q, proposal).items():
            emitted = (*proposal[: verdict.accepted], verdict.token)
            for tail, probability in chain_law(target, emitted, length + 1).items():
                law[tail] += drawn * mass * probability
    return law


def outcomes(
    rule: Rule, target: Sequence[Law], draft: Sequence[Law], proposal: Sequence[int]
) -> dict[Verdict, float]:
    """What `rule` makes of one proposal, with probabilities."""

    def act(values: Mapping[_Key, float]) -> _Act:
        accept, emit = _Uniforms("accept", values), _Uniforms("emit", values)
        try:
            return rule(
                target,
                draft,
                proposal,
                cast("Sequence[float]", accept),
                cast("Sequence[float]", emit),
            )
        except _UnreadError as unread:
            return unread.key

    law: dict[Verdict, float] = defaultdict(float)

    def follow(values: Mapping[_Key, float], mass: float) -> None:
        key = act(values)
        if isinstance(key, Verdict):
            law[key] += mass
            return
        for uniform, width in _decisions(lambda value: act({**values, key: value})):
            follow({**values, key: uniform}, mass * width)

    follow({}, 1.0)
    return law


def chain_law(model: Model, start: Context, length: int) -> dict[Context, float]:
    """The law of the `length` tokens that begin with `start` and go on as `model` draws them."""
    law = {start: 1.0}
    while len(next(iter(law))) < length:
        law = {
            (*context, token): mass * float(probability)
            for context, mass in law.items()
            for token, probability in enumerate(model[context])
        }
    return law


def distance(left: Mapping[Context, float], right: Mapping[Context, float]) -> float:
    """The largest difference of a probability."""
    return max(abs(left.get(key, 0.0) - right.get(key, 0.0)) for key in {*left, *right})


_Key = tuple[str, int]
_Act = _Key | Verdict


class _UnreadError(Exception):
    def __init__(self, key: _Key) -> None:
        self.key = key


class _Uniforms:
    """Numbers known so far; reading another one interrupts the rule."""

    def __init__(self, name: str, values: Mapping[_Key, float]) -> None:
        self._name = name
        self._values = values

    def __getitem__(self, index: int) -> float:
        key = self._name, index
        if key not in self._values:
            raise _UnreadError(key)
        return self._values[key]


def _decisions(act: Callable[[float], _Act]) -> Iterable[tuple[float, float]]:
    """For each different act: a number that leads to it, and the measure of all that do."""
    edges = [*np.linspace(0.0, 1.0, _GRID, endpoint=False).tolist(), nextafter(1.0, 0.0)]
    acts = [act(edge) for edge in edges]
    decisions: dict[_Act, tuple[float, float]] = {}
    for index in range(_GRID):
        pieces = _bisect(act, edges[index], edges[index + 1], acts[index], acts[index + 1])
        for chosen, start, width in pieces:
            uniform, measure = decisions.get(chosen, (start, 0.0))
            decisions[chosen] = uniform, measure + width
    return decisions.values()


def _bisect(
    act: Callable[[float], _Act], low: float, high: float, at_low: _Act, at_high: _Act
) -> Iterator[tuple[_Act, float, float]]:
    """Cut [low, high) where `act` changes: (act, start, width) of each piece."""
    if at_low == at_high or high - low <= _RESOLUTION:
        yield at_low, low, high - low
        return
    middle = (low + high) / 2
    at_middle = act(middle)
    yield from _bisect(act, low, middle, at_low, at_middle)
    yield from _bisect(act, middle, high, at_middle, at_high)
