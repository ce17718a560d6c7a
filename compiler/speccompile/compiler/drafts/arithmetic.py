"""In which numbers a target and its student are computed while a draft is made."""

from __future__ import annotations

from functools import cache

import torch

__all__ = ["mixed", "working_type"]

_MULTIPLIES = ("amx_bf16", "avx512_bf16", "sve_bf16", "bf16")
"""What a processor that multiplies bfloat16 calls it."""


@cache
def working_type() -> torch.dtype:
    """bfloat16 where the processor multiplies it, which is fastest there, and close enough to
    learn; fp32 elsewhere, where bfloat16 would be several times slower."""
    can = torch.cpu.get_capabilities()
    return torch.bfloat16 if any(can.get(name) for name in _MULTIPLIES) else torch.float32


def mixed() -> torch.autocast:
    """Products in the working type, of tensors that are kept in fp32."""
    working = working_type()
    return torch.autocast("cpu", working, enabled=working != torch.float32)
