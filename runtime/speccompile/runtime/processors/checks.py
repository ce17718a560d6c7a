"""What parameters of processors may be."""

from __future__ import annotations

from collections.abc import Iterable

from speccompile.runtime.errors import RequestError

__all__ = ["require_tokens", "require_within"]


def require_within(name: str, value: float, low: float, high: float) -> None:
    """Raise RequestError unless `value` is a number from `low` to `high`."""
    if not low <= value <= high:
        raise RequestError(f"{name} is {value}; it must be from {low:g} to {high:g}")


def require_tokens(name: str, tokens: Iterable[int], vocabulary: int) -> None:
    """Raise RequestError unless the model has all of `tokens`."""
    for token in tokens:
        if not 0 <= token < vocabulary:
            raise RequestError(f"{name} names token {token}; tokens are from 0 to {vocabulary - 1}")
