"""The exact law of production code, measured: nothing of it is replaced but its random numbers.

Whenever code asks for a number that has no value yet, the range of 53 bits is cut by bisection
where what the code does next changes: what `draw` and `accepts` return, and which number it asks
for then. Each is followed with the share of its pieces as probability. This takes far more runs
than `runtime.proof.enumeration`, and shows that what that assumes of both is true.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Generic, ParamSpec, TypeVar
from unittest import mock

from speccompile.plugins import laws, spec_verify
from speccompile.runtime import sampler, sampling

__all__ = ["measured"]

T = TypeVar("T", bound=Hashable)
D = TypeVar("D", bound=Hashable)
P = ParamSpec("P")

_ALL = 1 << 53
_GRID = 8  # parts, of which one whose both edges end alike is not looked into


def measured(act: Callable[[], T]) -> dict[T, float]:
    """What `act` returns, with probabilities."""
    run = _Run()
    found: dict[T, float] = defaultdict(float)

    def end(values: Mapping[Hashable, int]) -> tuple[_Unknown | _Returned[T], Hashable]:
        run.values = values
        run.decided.clear()
        try:
            return _Returned(act()), tuple(run.decided)
        except _UnknownError as error:
            return _Unknown(error.name), tuple(run.decided)

    def follow(values: Mapping[Hashable, int], probability: float) -> None:
        last, _ = end(values)
        if isinstance(last, _Returned):
            found[last.result] += probability
            return
        pieces: dict[Hashable, tuple[int, int]] = {}
        for ended, start, width in _pieces(lambda value: end({**values, last.name: value})):
            value, before = pieces.get(ended, (start, 0))
            pieces[ended] = value, before + width
        for value, width in pieces.values():
            follow({**values, last.name: value}, probability * width / _ALL)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(sampling, "uniform_bits", run.bits))
        stack.enter_context(mock.patch.object(sampler, "draw", run.noted(laws.draw)))
        stack.enter_context(mock.patch.object(spec_verify, "draw", run.noted(laws.draw)))
        stack.enter_context(mock.patch.object(spec_verify, "accepts", run.noted(laws.accepts)))
        follow({}, 1.0)
    return found


@dataclass(frozen=True)
class _Unknown:
    """The run was interrupted: it asked for a number."""

    name: Hashable


@dataclass(frozen=True)
class _Returned(Generic[T]):
    result: T


class _UnknownError(Exception):
    def __init__(self, name: Hashable) -> None:
        self.name = name


@dataclass
class _Run:
    """The numbers that a run may know, and what it has decided."""

    values: Mapping[Hashable, int] = field(default_factory=dict[Hashable, int])
    decided: list[Hashable] = field(default_factory=list[Hashable])

    def bits(self, seed: int, position: int, purpose: int, *, request: int, branch: int) -> int:
        """In place of `philox.uniform_bits`."""
        name = seed, position, purpose, request, branch
        if name not in self.values:
            raise _UnknownError(name)
        return self.values[name]

    def noted(self, decide: Callable[P, D]) -> Callable[P, D]:
        """A function, whose results are noted."""

        def noting(*arguments: P.args, **named: P.kwargs) -> D:
            self.decided.append(decision := decide(*arguments, **named))
            return decision

        return noting


def _pieces(end: Callable[[int], Hashable]) -> Iterator[tuple[Hashable, int, int]]:
    """All numbers, cut where `end` changes: (end, start, width) of each piece."""
    edges = [_ALL // _GRID * index for index in range(_GRID)] + [_ALL - 1]
    ends = [end(edge) for edge in edges]
    for index in range(_GRID):
        yield from _cut(end, edges[index], edges[index + 1], ends[index], ends[index + 1])
    yield ends[-1], _ALL - 1, 1


def _cut(
    end: Callable[[int], Hashable], low: int, high: int, at_low: Hashable, at_high: Hashable
) -> Iterator[tuple[Hashable, int, int]]:
    if at_low == at_high or high - low == 1:
        yield at_low, low, high - low
        return
    middle = (low + high) // 2
    at_middle = end(middle)
    yield from _cut(end, low, middle, at_low, at_middle)
    yield from _cut(end, middle, high, at_middle, at_high)
