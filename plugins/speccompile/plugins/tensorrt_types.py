"""What the plugins use of TensorRT's objects; the library itself publishes no types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Expressions", "Field", "Named", "Range", "Registry", "Tensor"]


class Named(Protocol):
    """A member of an enumeration."""

    @property
    def name(self) -> str: ...


class Tensor(Protocol):
    """PluginTensorDesc."""

    @property
    def dims(self) -> Iterable[int]: ...
    @property
    def type(self) -> Named: ...
    @property
    def format(self) -> Named: ...


class Range(Protocol):
    """DynamicPluginTensorDesc: a tensor while the plan is built, and its largest dimensions."""

    @property
    def desc(self) -> Tensor: ...
    @property
    def max(self) -> Sequence[int]: ...


class Field(Protocol):
    """PluginField."""

    @property
    def name(self) -> str: ...
    @property
    def data(self) -> NDArray[np.generic]: ...


class Expressions(Protocol):
    """IExprBuilder."""

    def constant(self, value: int) -> object: ...


class Registry(Protocol):
    """IPluginRegistry."""

    def register_creator(self, creator: object, namespace: str) -> bool: ...
    def deregister_creator(self, creator: object) -> bool: ...
