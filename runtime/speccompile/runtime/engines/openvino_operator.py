"""OpenVINO's paged attention, built for the node that stands for it in a lowered graph."""

from __future__ import annotations

import numpy as np
import openvino as ov
from openvino import opset13 as ops
from openvino.frontend import NodeContext

__all__ = ["attends_in_windows", "paged_attention"]

_WINDOW = 10  # the input of the operator


def paged_attention(node: NodeContext) -> list[ov.Output]:
    """One ``speccompile::PagedAttention`` node as OpenVINO's operator."""
    query, key, value, *given = (node.get_input(index) for index in range(node.get_input_size()))
    *cache, length = given[:7]
    tree = given[7:] or [_empty(np.uint8), _empty(np.int32)]  # none in graphs of older versions
    names = ("heads", "kv_heads", "head_dim", "window")
    heads, kv_heads, head_dim, window = (int(node.get_attribute(name)) for name in names)
    # The operator has no public constructor.
    operator = ov.op._PagedAttentionExtension(  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        [
            _flat(query, heads * head_dim),
            _flat(key, kv_heads * head_dim),
            _flat(value, kv_heads * head_dim),
            *cache,
            _scalar(float(node.get_attribute("scale")), np.float32),
            _scalar(window, np.int32),
            _empty(np.float32),  # ALiBi slopes
            length,  # max_context_len
            *_unused_inputs(),
            *tree,
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


def attends_in_windows(model: ov.Model) -> bool:
    """Whether any paged attention sees a window only, which the operator counts in slots."""
    windows = (
        operator.input_value(_WINDOW).get_node()
        for operator in model.get_ops()
        if operator.get_type_name() == "PagedAttentionExtension"
    )
    return any(int(window.data) for window in windows)


def _flat(rows: ov.Output, width: int) -> ov.Output:
    """[1, heads, N, D] -> [N, heads x D], the layout of the operator."""
    ordered = ops.transpose(rows, np.array([0, 2, 1, 3]))
    return ops.reshape(ordered, np.array([-1, width]), special_zero=False).output(0)


def _unused_inputs() -> list[ov.Output]:
    """Inputs 13 to 25 of the operator: score output, cache rotation, sparse attention, eviction,
    sinks and token types, all absent."""
    return [
        _empty(np.int32),
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
    ]


def _scalar(value: float, dtype: type[np.generic]) -> ov.Output:
    return ops.constant(np.array(value, dtype)).output(0)


def _empty(dtype: type[np.generic]) -> ov.Output:
    return ops.constant(np.zeros(0, dtype)).output(0)
