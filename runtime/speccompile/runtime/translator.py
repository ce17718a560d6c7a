"""From options, which are texts and numbers, to a request, which is tokens and processors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from secrets import randbits

from tokenizers import Tokenizer

from speccompile.runtime.errors import RequestError
from speccompile.runtime.options import Options
from speccompile.runtime.processors.bias import LogitBias
from speccompile.runtime.processors.checks import require_tokens
from speccompile.runtime.processors.grammar import Grammar, Grammars
from speccompile.runtime.processors.minimum import MinNewTokens
from speccompile.runtime.processors.penalties import OutputPenalty, RepetitionPenalty
from speccompile.runtime.processors.processor import Processor
from speccompile.runtime.processors.words import BadWords
from speccompile.runtime.request import Request

__all__ = ["Translator"]

_SEED_BITS = 32  # short enough to be typed


class Translator:
    """Makes requests to one model with one tokenizer."""

    def __init__(
        self, tokenizer: Tokenizer, vocabulary: int, stop_tokens: Collection[int] = ()
    ) -> None:
        """`stop_tokens` are the model's own: they end every output."""
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._stop_tokens = frozenset(stop_tokens)
        self._grammars: dict[frozenset[int], Grammars] = {}

    def request(self, options: Options, prompt: Sequence[int]) -> Request:
        """What a session takes to continue `prompt` in this way, and no other prompt.

        Raises RequestError for a token that the model does not have, and for a grammar that cannot
        be followed.
        """
        require_tokens("stop_tokens", options.stop_tokens, self._vocabulary)
        stop_tokens = self._stop_tokens | frozenset(options.stop_tokens)
        return replace(
            options.request(randbits(_SEED_BITS)),
            stop_tokens=stop_tokens,
            processors=tuple(self._processors(options, len(prompt), stop_tokens)),
        )

    def _processors(
        self, options: Options, prompt_length: int, stop_tokens: frozenset[int]
    ) -> Iterator[Processor]:
        """Those that change anything. Bans come last: no bias lifts one."""
        if options.repetition_penalty != 1.0:
            yield RepetitionPenalty(options.repetition_penalty)
        if options.presence_penalty or options.frequency_penalty:
            yield OutputPenalty(prompt_length, options.presence_penalty, options.frequency_penalty)
        if options.logit_bias:
            yield LogitBias(self._bias(options.logit_bias), self._vocabulary)
        if options.bad_words:
            yield BadWords(self._words(options.bad_words), self._vocabulary)
        if options.min_new_tokens:
            yield MinNewTokens(options.min_new_tokens, prompt_length, stop_tokens, self._vocabulary)
        grammar = self._grammar(options, prompt_length, stop_tokens)
        if grammar:
            yield grammar

    def _bias(self, given: Mapping[int | str, float]) -> dict[int, float]:
        bias: dict[int, float] = {}
        for name, value in given.items():
            token = self._token(name) if isinstance(name, str) else name
            if token in bias:
                raise RequestError(f"logit_bias names token {token} twice; leave one out")
            bias[token] = value
        return bias

    def _token(self, text: str) -> int:
        tokens = self._encode(text)
        if len(tokens) != 1:
            raise RequestError(
                f"logit_bias: {text!r} is {len(tokens)} tokens {tokens}; name one token, or its id"
            )
        return tokens[0]

    def _words(self, texts: Sequence[str]) -> list[list[int]]:
        """As they begin a text, and as they follow a word."""
        return [self._encode(form) for text in texts for form in (text, f" {text}")]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _grammar(
        self, options: Options, prompt_length: int, stop_tokens: frozenset[int]
    ) -> Grammar | None:
        if options.json_schema is not None:
            return self._made(stop_tokens).json_schema(options.json_schema, prompt_length)
        if options.regex is not None:
            return self._made(stop_tokens).regex(options.regex, prompt_length)
        if options.grammar is not None:
            return self._made(stop_tokens).lark(options.grammar, prompt_length)
        return None

    def _made(self, stop_tokens: frozenset[int]) -> Grammars:
        """Those that end with `stop_tokens`; the last are kept."""
        if stop_tokens not in self._grammars:
            self._grammars = {stop_tokens: Grammars(self._tokenizer, self._vocabulary, stop_tokens)}
        return self._grammars[stop_tokens]
