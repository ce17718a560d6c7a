"""The texts that come with the compiler: to calibrate on, to evaluate on, to compare with."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from speccompile.runtime.errors import SpeccompileError

__all__ = ["builtin_text", "probe_text", "token_windows"]

_PROBE = (
    "It's  we'll I'M 12345 3.14 0x7F\n\n\n\tdef f(x):\r\n        return x+1  # ok\n"
    "na\u00efve caf\u00e9 Stra\u00dfe \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f "
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 "
    "\U0001f469\u200d\U0001f680 e\u0301 \u00a0 \u2003x\n"
)


def builtin_text(name: str) -> str:
    """ "calibration" or "evaluation": prose, code, dialogue and several languages."""
    return (files("speccompile.compiler") / "texts" / f"{name}.txt").read_text("utf-8")


def probe_text() -> str:
    """A text on which tokenizers that differ split differently."""
    return _PROBE + builtin_text("evaluation")


def token_windows(tokenizer: Tokenizer, text: str, count: int, width: int) -> NDArray[np.int64]:
    """About the first `count` tokens of `text`, or all of them, in windows [W, `width`].

    Each begins as the tokenizer begins a text, with the token that models are lost without. Raises
    SpeccompileError if the text is too short for one window.
    """
    opening = tokenizer.encode("").ids
    ids = tokenizer.encode(text, add_special_tokens=False).ids[:count]
    step = width - len(opening)
    windows = [[*opening, *ids[start : start + step]] for start in range(0, len(ids), step)]
    whole = [window for window in windows if len(window) == width]
    if not whole:
        raise SpeccompileError(
            f"a text of {len(ids)} tokens is too short to measure on; give one of at least {width}"
        )
    return np.array(whole, np.int64)
