"""Bring a checkpoint's tensors to the precision a role asks for, and write them once.

* ``fp32``, ``fp16``: matrices are rounded to that type. A value that fp16 cannot hold is an error
  that names the tensor, never a silent infinity.
* ``int8``: bitsandbytes' LLM.int8 row-wise absmax (arXiv 2208.07339): every output row of a matrix
  is scaled so that its largest magnitude becomes 127.

Norm vectors stay fp32: they are small, and fp16 norms are where models overflow.
"""

from __future__ import annotations

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
    # Imported here: bitsandbytes brings torch, which takes seconds and which only this needs.
    import torch
    from bitsandbytes.functional import int8_vectorwise_quant

    # The operator takes fp16, as the paper does; scale first, so that no weight leaves its range.
    peak = float(np.abs(matrix).max(initial=0.0)) or 1.0
    half = torch.from_numpy(np.ascontiguousarray(matrix / peak)).to(torch.float16)
    values, row_peaks, _ = int8_vectorwise_quant(half)
    scales = row_peaks.to(torch.float32).numpy().reshape(-1) * np.float32(peak / 127.0)
    return values.numpy(), scales.astype(np.float32)


def _converted(
    name: str, tensor: NDArray[np.float32], precision: str
) -> Iterator[tuple[str, NDArray[np.generic]]]:
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
    if not peak <= limit:
        raise SpeccompileError(
            f"{name}: holds {peak:g}, beyond the {limit:g} of fp16; use precision = \"fp32\""
        )
    return tensor.astype(np.float16)
