"""Bring a checkpoint's tensors to the precision a role asks for, and write them once.

* ``fp32``, ``fp16``: matrices are rounded to that type. A value that fp16 cannot hold is an error
  that names the tensor, never a silent infinity.
* ``int8``: bitsandbytes' LLM.int8 row-wise absmax (arXiv 2208.07339): every output row of a matrix
  is scaled so that its largest magnitude becomes 127.

Norm vectors stay fp32: they are small, and fp16 norms are where models overflow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.weights import SCALE_SUFFIX, WEIGHTS_FILE
from speccompile.runtime.errors import SpeccompileError

__all__ = ["TensorReader", "quantize_int8", "write_weights"]

TensorReader = Callable[[str], NDArray[np.float32]]


def write_weights(config: DecoderConfig, read: TensorReader, precision: str, folder: Path) -> None:
    """Write ``folder/weights.safetensors`` with every tensor of `config` in `precision`."""
    tensors: dict[str, NDArray[np.generic]] = {}
    for name in tensor_shapes(config):
        tensors.update(_converted(name, read(name), precision))
    save_file(tensors, folder / WEIGHTS_FILE)


def quantize_int8(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Row-wise absmax int8 of ``[out, in]``: values ``[out, in]`` and scales fp32 ``[out]``."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_concerns_int8)
    # Imported here: bitsandbytes brings torch, which takes seconds and which only this needs.
    import torch
    from bitsandbytes.functional import int8_vectorwise_quant

    # The operator takes fp16, as the paper does. Every row is first scaled to a peak of 1, so that
    # no weight leaves the range of fp16, above or below, and the scale keeps fp32's precision.
    peaks = np.abs(matrix).max(axis=1, initial=0.0)
    empty = peaks < np.finfo(np.float32).tiny
    peaks[empty] = 1.0
    half = torch.from_numpy(matrix / peaks[:, None]).to(torch.float16)
    values = int8_vectorwise_quant(half)[0].numpy()
    values[empty] = 0  # the operator divides by the peak, here 0
    return values, peaks / np.float32(127.0)


def _concerns_int8(record: logging.LogRecord) -> bool:
    """Whether to log what bitsandbytes says: it warns of a missing 4-bit kernel, used nowhere."""
    return "gemm_4bit_forward" not in record.msg


def _converted(
    name: str, tensor: NDArray[np.float32], precision: str
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    if not np.isfinite(tensor).all():
        raise SpeccompileError(f"{name}: holds values that are not finite; get the model again")
    if tensor.ndim < 2 or precision == "fp32":
        yield name, np.ascontiguousarray(tensor, dtype=np.float32)
    elif precision == "fp16":
        yield name, _half(name, tensor)
    else:
        values, scales = quantize_int8(tensor)
        yield name, values
        yield name + SCALE_SUFFIX, scales


def _half(name: str, tensor: NDArray[np.float32]) -> NDArray[np.float16]:
    limit = float(np.finfo(np.float16).max)
    peak = float(np.abs(tensor).max(initial=0.0))
    if peak > limit:
        raise SpeccompileError(
            f'{name}: holds {peak:g}, beyond the {limit:g} of fp16; use precision = "fp32"'
        )
    return tensor.astype(np.float16)
