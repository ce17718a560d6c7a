"""The operators that surround a decoder, in the domain ``speccompile``: what goes in and comes out.

A round gives the target N query rows, the nodes of a proposal tree: node 0 is the root, the last
committed token; a node's parent comes before it, and the children of one node stand in the order
in which they were drawn. A chain is a tree. Topology is data, not structure: one graph serves every
tree of N nodes, and a node of parent -1 other than node 0 is padding, whose results are ignored.

`TreeMask` stands ahead of the decoder and makes its positions and its mask; `SpecVerify` stands
behind it and says which path of the tree the target agrees with; `CompactRows` moves the rows of
that path to the front of a cache. numpy says what they compute (`tree`, `spec_verify`); the ONNX
function bodies and the CUDA kernels compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = [
    "COMPACT_ROWS",
    "DOMAIN",
    "DRAFT_LAW_RULES",
    "INVALID",
    "MOST_NODES",
    "NAMESPACE",
    "RULES",
    "SAMPLED_RULES",
    "TREE_MASK",
    "VERSION",
    "Argument",
    "Operator",
    "Rule",
    "spec_verify",
]

DOMAIN = "speccompile"
"""Of the ONNX operators."""

NAMESPACE = "speccompile"
VERSION = "1"
"""Of the TensorRT plugins; nodes carry both as ``plugin_namespace`` and ``plugin_version``, without
which TensorRT takes the function body and says nothing."""

INVALID = -1
"""In place of a token where a row's logits are NaN or have no finite maximum, and behind the end of
every list of nodes or tokens."""

MOST_NODES = 1024
"""N is at most this."""

Rule = Literal["greedy", "walk", "token", "traversal"]
"""How a tree is judged.

``greedy``: at every node, follow the child that is the target's argmax; the lowest id of equals.
``walk``: at every node, draw the target's token and follow the child that has it. For proposals
that follow from the context alone (n-grams, the best k of a draft).
``token``: ask the children, which were drawn from the draft's law without replacement, one after
the other (arXiv 2211.17192; for trees 2402.12374).
``traversal``: ask paths as a whole, from the leaves up (arXiv 2505.12398); on a chain this is block
verification (arXiv 2403.10444).
"""

RULES: tuple[Rule, ...] = get_args(Rule)
SAMPLED_RULES: frozenset[Rule] = frozenset({"walk", "token", "traversal"})
"""Rules that take `uniforms` and `sampling`; a temperature of 0 makes them greedy."""
DRAFT_LAW_RULES: frozenset[Rule] = frozenset({"token", "traversal"})
"""Rules that take `draft_logits` too."""

Type = Literal["bool", "int64", "float32", "logits", "cache"]
"""``logits`` and ``cache`` are float32, float16 or bfloat16."""


@dataclass(frozen=True)
class Argument:
    """One input or output. Dimensions are B sequences, N nodes, V tokens, S cache slots, H heads
    and D channels."""

    name: str
    type: Type
    shape: tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """One operator; `attributes` are the names of what a node says beside its inputs."""

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    attributes: Sequence[str] = ()


_TOKENS = Argument("tokens", "int64", ("B", "N"))  # of every node
_PARENTS = Argument("parents", "int64", ("B", "N"))
# Leading nodes, a chain, that are not in question: 1 is the root, N are those of a prompt.
_GIVEN = Argument("given", "int64", ("B",))
_LENGTHS = Argument("lengths", "int64", ("B",))  # committed rows in the cache
_LOGITS = Argument("logits", "logits", ("B", "N", "V"))  # row n: the target's, behind node n
# Row n: the draft's, that the children of node n were drawn from.
_DRAFT_LOGITS = Argument("draft_logits", "logits", ("B", "N", "V"))
# Whole numbers below 2^53, of every node: one to accept it by, one to draw the token behind it.
_UNIFORMS = Argument("uniforms", "int64", ("B", "N", "2"))
# Temperature, top-k (0: off), top-p (1: off), min-p (0: off).
_SAMPLING = Argument("sampling", "float32", ("B", "4"))

_PATH = Argument("path", "int64", ("B", "N"))  # accepted nodes from the root on, then INVALID
_COUNT = Argument("count", "int64", ("B",))  # of nodes in the path

TREE_MASK = Operator(
    "TreeMask",
    (_PARENTS, _LENGTHS),
    (
        Argument("position_ids", "int64", ("B", "N")),  # length + depth
        # Slots that a node sees: the committed ones, its ancestors' and its own. Node n has the
        # slot length + n.
        Argument("attention_mask", "bool", ("B", "1", "N", "S")),
        # Of those, the ones of the last `window` positions, for sliding layers.
        Argument("sliding_mask", "bool", ("B", "1", "N", "S")),
    ),
    ("capacity", "window"),
)
"""`capacity` is S; `window` 0 makes the sliding mask equal to the other."""

COMPACT_ROWS = Operator(
    "CompactRows",
    (Argument("cache", "cache", ("B", "H", "S", "D")), _PATH, _COUNT, _LENGTHS),
    (Argument("compacted", "cache", ("B", "H", "S", "D")),),
)
"""Row ``length + path[i]`` goes to ``length + i`` for every i below `count`; the others stay."""


def spec_verify(rule: Rule) -> Operator:
    """The operator ``SpecVerify`` as `rule` has it, which the attribute ``rule`` repeats.

    `next_token` is the token that the target puts behind the path; `emitted` are the tokens of the
    path without its given nodes, `next_token`, then INVALID: ``count - given + 1`` tokens.
    """
    inputs = [_LOGITS, _TOKENS, _PARENTS, _GIVEN]
    if rule in SAMPLED_RULES:
        inputs += [_UNIFORMS, _SAMPLING]
    if rule in DRAFT_LAW_RULES:
        inputs.append(_DRAFT_LOGITS)
    outputs = (
        _PATH,
        _COUNT,
        Argument("next_token", "int64", ("B",)),
        Argument("emitted", "int64", ("B", "N")),
    )
    return Operator("SpecVerify", tuple(inputs), outputs, ("rule",))
