"""transformers' model of real weights, the oracle of what is built of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.sources.checkpoint import Checkpoint, TokenizerFiles
from speccompile.runtime.chat import ChatTemplate
from speccompile.runtime.errors import SpeccompileError

__all__ = ["TIE", "Choice", "Difference", "Greedy", "chat_tokens", "greedy", "transformers_model"]

TIE = 1e-4
"""Logits closer than this share of the largest one are told apart by the order of sums alone: it is
also how far an engine that sums in fp32 may be from the contract."""


@dataclass(frozen=True)
class Choice:
    """A token that was chosen, the best of the others, and how much less that one's logit was, as a
    share of the largest magnitude of all."""

    token: int
    second: int
    margin: float


@dataclass(frozen=True)
class Difference:
    """Where a text first departs from transformers'. Tokens are None where a text ended instead."""

    position: int
    expected: int | None
    found: int | None
    margin: float
    tie: bool
    """What was found is transformers' second choice, within `TIE` of its first."""


@dataclass(frozen=True)
class Greedy:
    """transformers' greedy continuation: every choice it made, that of a stop token included."""

    choices: tuple[Choice, ...]
    stop: frozenset[int]

    @property
    def tokens(self) -> list[int]:
        """Without the stop token, as a `Session` yields them."""
        return [choice.token for choice in self.choices if choice.token not in self.stop]

    def difference(self, found: Sequence[int]) -> Difference | None:
        """From a continuation that had the same limit and the same stop tokens."""
        expected = self.tokens
        if found == expected:
            return None
        both = min(len(found), len(expected))
        position = next((i for i in range(both) if found[i] != expected[i]), both)
        theirs, ours = (
            text[position] if position < len(text) else None for text in (expected, found)
        )
        choice = self.choices[position]
        is_second = choice.second in self.stop if ours is None else choice.second == ours
        return Difference(position, theirs, ours, choice.margin, is_second and choice.margin <= TIE)


def chat_tokens(files: TokenizerFiles, text: str) -> list[int]:
    """`text` as a user's first message; as it is for a model without a chat template."""
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    if files.chat_template is None:
        return list(tokenizer.encode(text).ids)
    chat = ChatTemplate(
        files.chat_template, bos_token=files.bos_token or "", eos_token=files.eos_token or ""
    )
    rendered = chat.render([{"role": "user", "content": text}])
    return list(tokenizer.encode(rendered, add_special_tokens=False).ids)


def greedy(
    model: Any,  # noqa: ANN401 - transformers has no types
    prompt: Sequence[int],
    limit: int,
    stop: Collection[int],
) -> Greedy:
    """What transformers' `generate` makes of `prompt`: at most `limit` tokens, or to a stop."""
    import torch

    tokens = torch.tensor([prompt])
    with torch.inference_mode():
        output = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=list(stop) or None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
    chosen: list[int] = output.sequences[0, len(prompt) :].tolist()
    steps = zip(chosen, output.logits, strict=True)
    choices = tuple(_choice(token, logits[0].numpy()) for token, logits in steps)
    return Greedy(choices, frozenset(stop))


def _choice(token: int, logits: np.ndarray[Any, np.dtype[np.float32]]) -> Choice:
    others = logits.copy()
    others[token] = -np.inf
    second = int(others.argmax())
    margin = float(logits[token] - logits[second]) / float(np.abs(logits).max())
    return Choice(token, second, margin)


def transformers_model(checkpoint: Checkpoint) -> Any:  # noqa: ANN401 - transformers has no types
    """A Llama or a Qwen2, by its biases, in fp32, with unscaled RoPE and full attention.

    Raises SpeccompileError for a checkpoint of another kind.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = checkpoint.config
    theta = _rope_theta(config)
    build: Any = AutoModelForCausalLM.from_config
    model = build(
        AutoConfig.for_model(
            "qwen2" if config.qkv_bias else "llama",
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.context_length,
            rms_norm_eps=config.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            tie_word_embeddings=config.tied_embeddings,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(checkpoint.tensor(name)))
    return model


def _rope_theta(config: DecoderConfig) -> float:
    """Of a decoder that is plain but for its biases; anything else is refused, not run wrongly."""
    # The parts of a decoder that have a default are those that a Llama does without.
    parts = {field.name: field.default for field in fields(config) if field.default is not MISSING}
    own = {name for name, default in parts.items() if getattr(config, name) != default}
    own.discard("qkv_bias")
    kind, *others = config.kinds
    if own or others or kind.window or kind.rope is None:
        parted = ", ".join(sorted(own)) or "how its layers attend"
        raise SpeccompileError(
            f"neither a Llama nor a Qwen2, for {parted}; give a model of one of these families"
        )
    # The last frequency is theta ^ -((dim - 2) / dim).
    frequencies, dim = kind.rope.frequencies, config.head_dim
    theta = float(round(frequencies[-1] ** (-dim / (dim - 2)), -1))
    unscaled = theta ** -(np.arange(0, dim, 2) / dim)
    if not np.allclose(frequencies, unscaled, rtol=1e-5) or kind.rope.attention_factor != 1.0:
        raise SpeccompileError("its rotary embedding is scaled; give a model without")
    return theta
