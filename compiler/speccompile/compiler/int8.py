"""Row-wise int8 of a matrix: LLM.int8 (arXiv 2208.07339), by bitsandbytes."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

__all__ = ["quantize_int8"]

_BLOCK_BYTES = 1 << 24


def quantize_int8(
    matrix: NDArray[np.float32], apart: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Row-wise absmax int8 of ``[out, in]``: values ``[out, in]`` and scales fp32 ``[out]``.

    The columns `apart` are 0 in the values, and do not widen the range of any row. Rows are
    independent, so they are taken by blocks: the copies this needs stay small.
    """
    values = np.empty(matrix.shape, np.int8)
    scales = np.empty(len(matrix), np.float32)
    rows = max(1, _BLOCK_BYTES // (4 * matrix.shape[1]))
    for start in range(0, len(matrix), rows):
        block = matrix[start : start + rows]
        if apart is not None and apart.size:
            block = block.copy()
            block[:, apart] = 0.0
        values[start : start + rows], scales[start : start + rows] = _quantize_block(block)
    return values, scales


def _quantize_block(block: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_concerns_int8)
    # Imported here: bitsandbytes brings torch, which takes seconds and which only this needs.
    import torch
    from bitsandbytes.functional import int8_vectorwise_quant

    # The operator takes fp16, as the paper does. Every row is first scaled to a peak of 1, so that
    # no weight leaves the range of fp16, above or below, and the scale keeps fp32's precision.
    peaks = np.abs(block).max(axis=1, initial=0.0)
    empty = peaks < np.finfo(np.float32).tiny
    peaks[empty] = 1.0
    half = torch.from_numpy(block / peaks[:, None]).to(torch.float16)
    # Its `threshold` is of no use here. It is for activations at run time: it looks for large
    # values in what it is given, and takes those alone out of a row's range. The columns of a
    # weight are chosen by the activations they meet, and leave as a whole.
    values: NDArray[np.int8] = int8_vectorwise_quant(half)[0].numpy()
    values[empty] = 0  # the operator divides by the peak, here 0
    return values, peaks / np.float32(127.0)


def _concerns_int8(record: logging.LogRecord) -> bool:
    """Whether to log what bitsandbytes says: it warns of a missing 4-bit kernel, used nowhere."""
    return "gemm_4bit_forward" not in record.msg
