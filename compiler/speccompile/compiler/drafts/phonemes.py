"""A text-to-text task that is small enough to learn in minutes: how English words are spoken.

A text is a row of words of a pronouncing dictionary in the form of CMUdict, its answer the same
words in the letters of the International Phonetic Alphabet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from speccompile.runtime.errors import SpeccompileError

__all__ = ["Pair", "read_dictionary", "sentences", "split_words"]

_MOST = 8  # words of a sentence
_FEWEST = 100  # words
_LETTERS = {
    **{"AA": "ɑ", "AE": "æ", "AH": "ʌ", "AO": "ɔ", "AW": "aʊ", "AY": "aɪ", "B": "b", "CH": "tʃ"},
    **{"D": "d", "DH": "ð", "EH": "ɛ", "ER": "ɝ", "EY": "eɪ", "F": "f", "G": "ɡ", "HH": "h"},
    **{"IH": "ɪ", "IY": "i", "JH": "dʒ", "K": "k", "L": "l", "M": "m", "N": "n", "NG": "ŋ"},
    **{"OW": "oʊ", "OY": "ɔɪ", "P": "p", "R": "ɹ", "S": "s", "SH": "ʃ", "T": "t", "TH": "θ"},
    **{"UH": "ʊ", "UW": "u", "V": "v", "W": "w", "Y": "j", "Z": "z", "ZH": "ʒ"},
}
"""Of the phonemes of CMUdict."""
_PHONEME = f"(?:{'|'.join(_LETTERS)})[0-2]?"
_ENTRY = re.compile(rf"([a-z][a-z']*) ({_PHONEME}(?: {_PHONEME})*)(?: #.*)?")
_UNSTRESSED = {"AH": "ə", "ER": "ɚ"}


class Pair(NamedTuple):
    """A text and what it is to be turned into."""

    source: str
    answer: str


def read_dictionary(path: Path) -> dict[str, str]:
    """How every word is spoken: of lines ``word PH ON EM ES``, as in CMUdict, a word's first.

    Other pronunciations, ``word(2)``, and entries of other letters or phonemes are left out. Raises
    SpeccompileError for a file with less than a hundred words.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpeccompileError(f"{path}: not readable as a dictionary ({error})") from error
    entries = (_ENTRY.fullmatch(line) for line in lines)
    words = {entry[1]: _spoken(entry[2]) for entry in entries if entry}
    if len(words) < _FEWEST:
        raise SpeccompileError(
            f"{path}: has {len(words)} words, of which nothing can be learned; "
            "give a dictionary with lines like `cat K AE1 T`"
        )
    return words


def split_words(words: Mapping[str, str], share: float) -> tuple[dict[str, str], dict[str, str]]:
    """To learn from, and to hold out: about a `share`, by the word alone."""
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for word, phonemes in words.items():
        number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8]) / 2.0**64
        sides[number < share][word] = phonemes
    return sides


def sentences(words: Mapping[str, str], seed: int, *, fewest: int = 1) -> Iterator[Pair]:
    """Of `fewest` words to eight, without end; every word comes once before one comes again.

    One of n words is n² times as rare as one of a single word: on those a model finds where in a
    text its answer stands, which it hardly does on long ones alone.
    """
    rng, names, rest = np.random.default_rng(seed), sorted(words), list[str]()
    counts = np.arange(fewest, _MOST + 1)
    shares = 1.0 / counts**2
    while True:
        count = int(rng.choice(counts, p=shares / shares.sum()))
        if len(rest) < count:
            rest = [names[at] for at in rng.permutation(len(names))] + rest
        chosen = [rest.pop() for _ in range(count)]
        yield Pair(" ".join(chosen), " ".join(words[word] for word in chosen))


def _spoken(phonemes: str) -> str:
    """The letters of phonemes. Stresses are not marked, but that a vowel has none may change it."""
    letters = list[str]()
    for phoneme in phonemes.split():
        name = phoneme.rstrip("012")
        unstressed = _UNSTRESSED.get(name) if phoneme.endswith("0") else None
        letters.append(unstressed or _LETTERS[name])
    return "".join(letters)
