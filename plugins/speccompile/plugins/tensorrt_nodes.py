"""What each operator adds to the TensorRT plugin: attributes, sizes, workspace and launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.launches import (
    Launch,
    LogitsType,
    tree_mask_launches,
    verify_launches,
    verify_workspace,
)
from speccompile.plugins.schema import RULES, TREE_MASK, Argument, Operator, Rule, spec_verify

__all__ = [
    "ATTRIBUTES",
    "MaskNode",
    "Node",
    "VerifyNode",
    "by_dimension",
    "decode",
    "encode",
    "make_node",
]

ATTRIBUTES: Mapping[str, Mapping[str, type]] = {
    "SpecVerify": {"rule": str},
    "TreeMask": {"capacity": int, "window": int},
}
"""Of every operator that has a plugin."""


@dataclass(frozen=True)
class VerifyNode:
    """A node SpecVerify."""

    rule: Rule

    @property
    def operator(self) -> Operator:
        return spec_verify(self.rule)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Of the dimensions that no input has."""
        return {}

    def workspace(self, sizes: Mapping[str, int]) -> int:
        """Bytes, for inputs of these `sizes`, by the schema's names of dimensions."""
        return verify_workspace(sizes["B"], sizes["N"])

    def launches(
        self, sizes: Mapping[str, int], first_type: str, addresses: Mapping[str, int], space: int
    ) -> list[Launch]:
        """`first_type` is the first input's, `space` the address of the workspace."""
        logits = cast(LogitsType, first_type)
        batch, nodes, vocabulary = sizes["B"], sizes["N"], sizes["V"]
        return verify_launches(self.rule, logits, batch, nodes, vocabulary, addresses, space)


@dataclass(frozen=True)
class MaskNode:
    """A node TreeMask; see `VerifyNode`."""

    capacity: int
    window: int

    @property
    def operator(self) -> Operator:
        return TREE_MASK

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"S": self.capacity}

    def workspace(self, sizes: Mapping[str, int]) -> int:
        del sizes
        return 0

    def launches(
        self, sizes: Mapping[str, int], first_type: str, addresses: Mapping[str, int], space: int
    ) -> list[Launch]:
        del first_type, space
        return tree_mask_launches(sizes["B"], sizes["N"], self.capacity, self.window, addresses)


Node = VerifyNode | MaskNode


def make_node(operator: str, attributes: Mapping[str, object]) -> Node:
    """The node `operator` with `attributes`; ValueError where they are not the operator's."""
    for name, kind in ATTRIBUTES[operator].items():
        if not isinstance(attributes.get(name), kind):
            raise ValueError(f"{operator} needs the attribute {name}, of type {kind.__name__}")
    if operator == "TreeMask":
        return MaskNode(cast(int, attributes["capacity"]), cast(int, attributes["window"]))
    rule = attributes["rule"]
    if rule not in RULES:
        raise ValueError(f"SpecVerify has no rule {rule!r}; it has {', '.join(RULES)}")
    return VerifyNode(rule)


_Size = TypeVar("_Size")


def by_dimension(
    arguments: Iterable[Argument], shapes: Iterable[Iterable[_Size]]
) -> dict[str, _Size]:
    """What `shapes` say of the dimensions that the schema's `arguments` name. There may be too few
    of them: TensorRT asks before it lets a plugin refuse."""
    return {
        name: size
        for argument, shape in zip(arguments, shapes, strict=False)
        for name, size in zip(argument.shape, shape, strict=False)
    }


def encode(value: str | int) -> NDArray[np.generic]:
    """An attribute as the data of a field."""
    if isinstance(value, str):
        return np.frombuffer(value.encode(), np.int8)
    return np.array([value], np.int32)


def decode(data: NDArray[np.generic]) -> str | int:
    """The reverse of `encode`; text comes with or without its closing zero."""
    if data.dtype.itemsize == 1:
        return data.tobytes().rstrip(b"\0").decode()
    return int(data[0])
