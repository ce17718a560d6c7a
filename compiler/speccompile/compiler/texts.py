"""The texts that come with the compiler: to calibrate on, to evaluate on, to compare with."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from speccompile.runtime.errors import SpeccompileError

__all__ = ["builtin_text", "paired_windows", "probe_text", "token_windows"]

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
    pieces = _pieces(tokenizer, text, count, width - len(opening))
    return np.array([[*opening, *piece] for piece in pieces], np.int64)


def paired_windows(
    tokenizer: Tokenizer, text: str, count: int, width: int, start: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for a model with an encoder: sources [W, `width` / 2] and what follows [W, as many].

    A source ends as the tokenizer ends a text, and the token `start` opens what follows: it is
    what the text goes on with. Raises SpeccompileError if the text is too short for one window.
    """
    closing, half = tokenizer.encode("").ids, width // 2
    first = half - len(closing)
    pieces = _pieces(tokenizer, text, count, first + half - 1)
    sources = [[*piece[:first], *closing] for piece in pieces]
    return np.array(sources, np.int64), np.array([[start, *each[first:]] for each in pieces])


def _pieces(tokenizer: Tokenizer, text: str, count: int, size: int) -> list[list[int]]:
    """The first `count` tokens of `text`, in whole pieces of `size`."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids[:count]
    pieces = [ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
    if not pieces:
        raise SpeccompileError(
            f"a text of {len(ids)} tokens is too short to measure on; give one of at least {size}"
        )
    return pieces
