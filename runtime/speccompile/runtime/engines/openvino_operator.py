"""OpenVINO's paged attention, built for the node that stands for it in a lowered graph."""

from __future__ import annotations

import numpy as np
import openvino as ov
from openvino import opset13 as ops
from openvino.frontend import NodeContext

__all__ = ["paged_attention"]


def paged_attention(node: NodeContext) -> list[ov.Output]:
    """One ``speccompile::PagedAttention`` node as OpenVINO's operator."""
    query, key, value, *cache = (node.get_input(index) for index in range(10))
    names = ("heads", "kv_heads", "head_dim", "window")
    heads, kv_heads, head_dim, window = (int(node.get_attribute(name)) for name in names)
    # The operator has no public constructor.
    operator = ov.op._PagedAttentionExtension(  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        [
            _flat(query, heads * head_dim),
            _flat(key, kv_heads * head_dim),
            _flat(value, kv_heads * head_dim),
            *cache[:-1],
            _scalar(float(node.get_attribute("scale")), np.float32),
            _scalar(window, np.int32),
            _empty(np.float32),  # ALiBi slopes
            cache[-1],  # max_context_len
            *_unused_inputs(),
        ]
    )
    facts = operator.get_rt_info()
    for side in ("k", "v"):
        facts[f"num_{side}_heads"] = kv_heads
        facts[f"{side}_head_size"] = head_dim
    shape = np.array([1, -1, heads, head_dim])
    mixed = ops.reshape(operator.output(0), shape, special_zero=False)
    outputs: list[ov.Output] = ops.transpose(mixed, np.array([0, 2, 1, 3])).outputs()
    return outputs


def _flat(rows: ov.Output, width: int) -> ov.Output:
    """[1, heads, N, D] -> [N, heads x D], the layout of the operator."""
    ordered = ops.transpose(rows, np.array([0, 2, 1, 3]))
    return ops.reshape(ordered, np.array([-1, width]), special_zero=False).output(0)


def _unused_inputs() -> list[ov.Output]:
    """Inputs 13 to 27 of the operator: score output, cache rotation, sparse attention, eviction,
    sinks, token types and query-query bias, all absent."""
    return [
        _scalar(0, np.int32),
        _empty(np.int32),
        _empty(np.int32),
        _empty(np.float32),
        _empty(np.float32),
        _scalar(0, np.int32),
        _scalar(0, np.int32),
        _empty(np.float32),
        _scalar(0, np.int32),
        _empty(np.int32),
        _empty(np.int32),
        _empty(np.int32),
        _empty(np.int32),
        _empty(np.uint8),
        _empty(np.int32),
    ]


def _scalar(value: float, dtype: type[np.generic]) -> ov.Output:
    return ops.constant(np.array(value, dtype)).output(0)


def _empty(dtype: type[np.generic]) -> ov.Output:
    return ops.constant(np.zeros(0, dtype)).output(0)
