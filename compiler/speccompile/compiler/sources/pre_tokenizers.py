"""How text is split before byte-level BPE merges it, by the names that GGUF files use.

GGUF names the rule instead of describing it. The names are llama.cpp's (src/llama-vocab.cpp); the
patterns are those of the tokenizer.json files that the models' authors published, of which
llama.cpp's are approximations where its regular expressions lack a Unicode category.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

__all__ = ["SPLITTINGS", "Splitting"]


@dataclass(frozen=True)
class Splitting:
    """What a name stands for."""

    patterns: tuple[str, ...]
    """Text is cut at the matches of each in turn; matches and what lies between them are kept."""

    digits: bool = False
    """Every digit is cut off first."""

    composed: bool = False
    """Text is brought to Unicode's composed form (NFC) before it is split."""

    whole_tokens: bool = False
    """A piece that is a token becomes it even where no merges lead there."""

    adds_bos: bool = False
    """Where the file does not say, text begins with the begin-of-sequence token."""

    def pre_tokenizer(self) -> PreTokenizer:
        steps: list[PreTokenizer] = [Digits(individual_digits=True)] if self.digits else []
        steps += [Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return Sequence([*steps, ByteLevel(add_prefix_space=False, use_regex=False)])


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LOWER_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+"
_UPPER_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_SYMBOLS, _SYMBOLS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_CL100K = "|".join([_CONTRACTIONS, _WORD, r"\p{N}{1,3}", _SYMBOLS, _SPACE])
_QWEN2 = "|".join([_CONTRACTIONS, _WORD, r"\p{N}", _SYMBOLS, _SPACE])
_TEKKEN = "|".join([_LOWER_WORD, _UPPER_WORD, r"\p{N}", _SYMBOLS_AND_SLASHES, _SPACE])
_O200K = "|".join(
    [
        *(f"{_LOWER_WORD}{_CONTRACTIONS}?", f"{_UPPER_WORD}{_CONTRACTIONS}?"),
        *(r"\p{N}{1,3}", _SYMBOLS_AND_SLASHES, _SPACE),
    ]
)

_LLAMA3 = Splitting((_CL100K,), whole_tokens=True, adds_bos=True)
_STARCODER = Splitting((_GPT2,), digits=True)

SPLITTINGS: Mapping[str, Splitting] = {
    "gpt-2": Splitting((_GPT2,)),
    "smollm": _STARCODER,  # SmolLM, SmolLM2
    "refact": _STARCODER,  # Granite
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    # Llama 3's, but without its begin-of-sequence token: SmolLM3. llama.cpp leaves `whole_tokens`
    # out here; the published tokenizers have it.
    "smaug-bpe": Splitting((_CL100K,), whole_tokens=True),
    "dbrx": Splitting((_CL100K,)),  # Phi-4, OLMo 2, Granite 4
    "gpt-4o": Splitting((_O200K,)),  # Phi-4-mini
    "qwen2": Splitting((_QWEN2,), composed=True),  # Qwen2, 2.5, 3
    "tekken": Splitting((_TEKKEN,), whole_tokens=True, adds_bos=True),  # Mistral since Nemo
    # What llama.cpp applies to a file whose converter did not know the tokenizer.
    "default": Splitting(
        (
            r"[\p{P}\$\+<=>\^~\|]+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
            *(r"\p{N}+", r"[0-9][0-9][0-9]"),
        )
    ),
}
