"""Which kernels make an operator or a step of a round, and with what grids and arguments.

Nothing here touches a device: addresses come in as numbers, launches go out as data, for the
TensorRT plugin, the runtime and the tests to carry out in order. `addresses` has the operator's own
argument names (`schema`); what a round has besides, its functions name.
"""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Literal, get_args

from speccompile.plugins.schema import MOST_NODES, RULES, Rule

__all__ = [
    "KERNELS",
    "Argument",
    "Launch",
    "LogitsType",
    "commit_launches",
    "compact_launches",
    "draft_step_launches",
    "keep_logits_launches",
    "ring_words",
    "tree_mask_launches",
    "uniforms_launches",
    "verify_launches",
    "verify_workspace",
]

Argument = c_void_p | c_int32 | c_int64
LogitsType = Literal["float32", "float16", "bfloat16"]
Dimensions = tuple[int, int, int]
Addresses = Mapping[str, int]

_LOGITS_TYPES: tuple[LogitsType, ...] = get_args(LogitsType)
KERNELS = (
    *(f"{kernel}_{type}" for kernel in ("rows", "walk") for type in _LOGITS_TYPES),
    *("tree_mask", "compact_rows", "draft_step", "keep_logits", "commit"),
)
"""The symbols of a cubin."""

_ROW_BYTES = 16  # of one `Row` (law.cuh)
_PIECE = 16  # bytes of one load or store
_ROW_THREADS = 1024  # the one block of a row, or of a sequence, has a multiprocessor to itself
_COPY_THREADS = 256
_WARP = 32


@dataclass(frozen=True)
class Launch:
    """One kernel launch; `arguments` in the kernel's order, addresses among them as pointers."""

    kernel: str
    grid: Dimensions
    block: Dimensions
    shared_bytes: int
    arguments: tuple[Argument, ...]


def verify_launches(
    rule: Rule,
    logits_type: LogitsType,
    batch: int,
    nodes: int,
    vocabulary: int,
    addresses: Addresses,
    workspace: int,
) -> list[Launch]:
    """SpecVerify: what a row's law needs to be known, of all rows at once; then the walk.

    `workspace` is the address of `verify_workspace` bytes, aligned to 16.
    """
    _check_nodes(nodes)
    draft = addresses.get("draft_logits")
    sampling = _pointer(addresses, "sampling")
    tree = _pointers(addresses, "parents", "given")
    logits = _pointer(addresses, "logits"), c_void_p(draft)
    sizes = c_int32(nodes), c_int32(vocabulary)
    block = (_ROW_THREADS, 1, 1)
    rows = Launch(
        f"rows_{logits_type}",
        (nodes, batch, 1 if draft is None else 2),
        block,
        0,
        (*logits, *tree, sampling, c_void_p(workspace), *sizes),
    )
    walk = Launch(
        f"walk_{logits_type}",
        (batch, 1, 1),
        block,
        0,
        (
            *logits,
            _pointer(addresses, "tokens"),
            *tree,
            _pointer(addresses, "uniforms"),
            sampling,
            c_void_p(workspace),
            *_pointers(addresses, "path", "count", "next_token", "emitted"),
            *sizes,
            c_int32(RULES.index(rule)),
        ),
    )
    return [rows, walk]


def verify_workspace(batch: int, nodes: int) -> int:
    """Bytes: one record for every row of the target, and as many of a draft, if there is one."""
    return 2 * batch * nodes * _ROW_BYTES


def tree_mask_launches(
    batch: int, nodes: int, capacity: int, window: int, addresses: Addresses
) -> list[Launch]:
    """TreeMask; without an address for `sliding_mask` that one is not written."""
    _check_nodes(nodes)
    arguments: tuple[Argument, ...] = (
        *_pointers(addresses, "parents", "lengths", "position_ids", "attention_mask"),
        c_void_p(addresses.get("sliding_mask")),
        *(c_int32(size) for size in (nodes, capacity, window)),
    )
    return [Launch("tree_mask", (nodes, batch, 1), (_COPY_THREADS, 1, 1), 0, arguments)]


def compact_launches(
    batch: int,
    nodes: int,
    heads: int,
    capacity: int,
    width_bytes: int,
    caches: int,
    count_of_caches: int,
    addresses: Addresses,
) -> list[Launch]:
    """CompactRows in place, on all caches at once.

    `caches` is the device address of `count_of_caches` addresses of caches [B, heads, capacity,
    width_bytes], `width_bytes` a multiple of 16; `addresses` has `path`, `count` and `lengths`.
    """
    _check_nodes(nodes)
    if width_bytes % _PIECE:
        raise ValueError(f"cache rows of {width_bytes} bytes are no multiple of {_PIECE}")
    columns = heads * width_bytes // _PIECE
    arguments: tuple[Argument, ...] = (
        c_void_p(caches),
        *_pointers(addresses, "path", "count", "lengths"),
        *(c_int32(size) for size in (nodes, heads, capacity, width_bytes // _PIECE)),
    )
    grid = (-(-columns // _COPY_THREADS), batch, count_of_caches)
    return [Launch("compact_rows", grid, (_COPY_THREADS, 1, 1), 0, arguments)]


def draft_step_launches(batch: int, step: int, nodes: int, addresses: Addresses) -> list[Launch]:
    """What stands before draft step `step` of a chain of `nodes` - 1; step `nodes` - 1 is the end.

    All int64. State: `tokens` [B, N], `lengths` [B] and `seeds` [B, 2], a seed and a request. The
    number that node n is drafted with, and the one it is judged by, are those of n in the round of
    a root at `lengths`; the one to draw a token with is that of the token's position (`philox`).

    * step > 0 takes the draft's `draft_next_token` [B] as token `step`.
    * step < `nodes` - 1 writes the draft's inputs: `draft_input` [B, 1], `draft_lengths` [B] and
      `draft_uniforms` [B, 1, 2]. With an address for `catch_up` [B, 2], step 0 writes the draft two
      tokens there, `previous` [B] and the root, and `draft_uniforms` is [B, 2, 2].
    * step = `nodes` - 1 writes the target's `uniforms` [B, N, 2].
    """
    last = step == nodes - 1
    catch_up = None if step or last else addresses.get("catch_up")
    return [
        _draft_step(
            batch,
            nodes,
            step,
            (
                *_pointers(addresses, "tokens", "lengths", "seeds"),
                c_void_p(addresses["draft_next_token"] if step else None),
                c_void_p(addresses["previous"] if catch_up else None),
                c_void_p(None if last else catch_up or addresses["draft_input"]),
                c_void_p(None if last else addresses["draft_lengths"]),
                c_void_p(None if last else addresses["draft_uniforms"]),
                c_void_p(addresses["uniforms"] if last else None),
            ),
        )
    ]


def uniforms_launches(batch: int, nodes: int, addresses: Addresses) -> list[Launch]:
    """The target's `uniforms` alone, for a chain that no draft model made."""
    state = _pointers(addresses, "tokens", "lengths", "seeds")
    uniforms = _pointer(addresses, "uniforms")
    return [_draft_step(batch, nodes, 0, (*state, *[c_void_p(None)] * 5, uniforms))]


def keep_logits_launches(
    logits_type: LogitsType,
    batch: int,
    step: int,
    rows: int,
    nodes: int,
    vocabulary: int,
    addresses: Addresses,
) -> list[Launch]:
    """Copies the last of `logits` [B, rows, V] to row `step` of `draft_logits` [B, N, V]."""
    width = vocabulary * (4 if logits_type == "float32" else 2)
    arguments: tuple[Argument, ...] = (
        *_pointers(addresses, "logits", "draft_logits"),
        *(c_int32(size) for size in (step, rows, nodes, width)),
    )
    blocks = -(-width // (_COPY_THREADS * _PIECE))
    return [Launch("keep_logits", (blocks, batch, 1), (_COPY_THREADS, 1, 1), 0, arguments)]


def commit_launches(batch: int, nodes: int, slots: int, addresses: Addresses) -> list[Launch]:
    """Takes the verdict of a round over into the state, and tells the host.

    All int64. Verdict: `path`, `count`, `next_token`, `emitted` as SpecVerify puts them out. State:
    `tokens` [B, N], `lengths` [B], `previous` [B], the token of the last committed row, and `round`
    [1], which counts. `stopped` [B] is not 0 for a sequence that shall stay as it is; so does one
    whose next token is INVALID, and both have a count of 0 and no tokens in the record.

    `ring` [B, slots, `ring_words`(N)], in memory that the host sees: round r writes record
    r % slots, which is its sequence number r + 1, written last, the count, and N tokens.
    """
    arguments: tuple[Argument, ...] = (
        *_pointers(addresses, "path", "count", "next_token", "emitted", "stopped"),
        *_pointers(addresses, "tokens", "lengths", "previous", "round", "ring"),
        *(c_int32(size) for size in (batch, nodes, slots)),
    )
    return [Launch("commit", (1, 1, 1), (_COPY_THREADS, 1, 1), 0, arguments)]


def ring_words(nodes: int) -> int:
    """int64 words of one record of `commit_launches`."""
    return 2 + nodes


def _draft_step(batch: int, nodes: int, step: int, pointers: tuple[c_void_p, ...]) -> Launch:
    threads = min(-(-nodes // _WARP) * _WARP, _ROW_THREADS)
    arguments: tuple[Argument, ...] = (*pointers, c_int32(nodes), c_int32(step))
    return Launch("draft_step", (batch, 1, 1), (threads, 1, 1), 0, arguments)


def _pointer(addresses: Addresses, name: str) -> c_void_p:
    """Null for an argument that the operator does not have."""
    return c_void_p(addresses.get(name))


def _pointers(addresses: Addresses, *names: str) -> tuple[c_void_p, ...]:
    return tuple(c_void_p(addresses[name]) for name in names)


def _check_nodes(nodes: int) -> None:
    if not 1 <= nodes <= MOST_NODES:
        raise ValueError(f"{nodes} nodes; there are 1 to {MOST_NODES}")
