"""Output that follows a grammar: a JSON schema, a regular expression or a Lark grammar."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.checks import require_tokens
from speccompile.runtime.processors.trail import Trail

if TYPE_CHECKING:
    from llguidance import LLMatcher

__all__ = ["Grammar", "Grammars"]

_LONGEST_REASON = 200  # characters


class Grammars:
    """Makes the grammars of one tokenizer. Reading its vocabulary takes a second or so: keep it.

    Grammars are those of llguidance. Each method raises RequestError for one it does not take.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, stop_tokens: Collection[int]) -> None:
        """Complete output ends with any of `stop_tokens`.

        Raises RequestError without llguidance, and for a tokenizer it cannot read.
        """
        try:
            from llguidance import LLTokenizer
        except ImportError as error:
            raise RequestError(
                "grammars need llguidance: pip install 'speccompile[grammar]'"
            ) from error
        if not stop_tokens:
            raise RequestError("a grammar needs a stop token to end with; name one")
        require_tokens("stop_tokens", stop_tokens, vocabulary)
        self._stop_tokens = sorted(stop_tokens)
        try:
            self._tokenizer = LLTokenizer(
                tokenizer.to_str(),
                n_vocab=max(vocabulary, tokenizer.get_vocab_size()),
                eos_token=self._stop_tokens,
            )
        except ValueError as error:
            raise RequestError(f"grammars cannot use this tokenizer: {error}") from error

    def json_schema(self, schema: str | Mapping[str, object], prompt_length: int) -> Grammar:
        """JSON that is valid by a schema, itself JSON or what that parses to."""
        try:
            text = json.dumps(json.loads(schema) if isinstance(schema, str) else schema)
        except (ValueError, TypeError, RecursionError) as error:
            raise RequestError(f"json_schema is not JSON: {error}") from error
        grammar = f'{{"grammars":[{{"json_schema":{text}}}]}}'
        return self._grammar("json_schema", grammar, prompt_length)

    def regex(self, pattern: str, prompt_length: int) -> Grammar:
        """Text that a regular expression matches as a whole."""
        from llguidance import LLMatcher

        return self._grammar("regex", LLMatcher.grammar_from_regex(pattern), prompt_length)

    def lark(self, grammar: str, prompt_length: int) -> Grammar:
        """Text of a context-free grammar as Lark writes it; `start` is its first rule."""
        return self._grammar("lark", grammar, prompt_length)

    def _grammar(self, name: str, grammar: str, prompt_length: int) -> Grammar:
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise RequestError(f"{name}: {_reason(matcher)}; correct or simplify it")
        return Grammar(matcher, self._stop_tokens, prompt_length)


class Grammar:
    """Forbids what cannot follow in text of a grammar; where nothing can, all but the stop tokens.

    The matcher stands behind the last sequence. For the next one it is rolled back to what both
    begin with: branches of a tree cost their own tokens alone, and every row has the mask that a
    new matcher would give it. Behind a token that is itself forbidden, so that no output gets
    there, only stop tokens may follow.
    """

    def __init__(self, matcher: LLMatcher, stop_tokens: Sequence[int], prompt_length: int) -> None:
        """The matcher is new, and belongs to this grammar from now on."""
        self._matcher = matcher
        self._stop_tokens = list(stop_tokens)
        self._trail = Trail(prompt_length)
        self._consumed = 0

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        """As `Processor`; raises RequestError where the grammar takes too much to follow."""
        allowed = np.zeros(len(logits), np.bool_)
        allowed[self._stop_tokens] = True
        if self._follow(tokens):
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            allowed = np.unpackbits(bits, count=len(logits), bitorder="little").astype(np.bool_)
        if self._matcher.is_error():  # then its mask means nothing
            raise RequestError(f"the grammar: {_reason(self._matcher)}; simplify it")
        logits[~allowed] = -np.inf

    def _follow(self, tokens: Sequence[int]) -> bool:
        """Bring the matcher behind `tokens`; whether the grammar has them all."""
        change = self._trail.follow(tokens)
        if self._consumed > change.kept:
            self._matcher.rollback(self._consumed - change.kept)
            self._consumed = change.kept
        if self._consumed == change.kept:
            self._consumed += self._matcher.try_consume_tokens(change.added)
        return self._consumed == change.kept + len(change.added)


def _reason(matcher: LLMatcher) -> str:
    """Its error in one line, without the excerpts and dumps that follow it, indented or tagged."""
    message = matcher.get_error().partition("\n<")[0]
    lines = [line for line in message.splitlines() if line and not line[0].isspace()]
    return " ".join(lines)[:_LONGEST_REASON]
