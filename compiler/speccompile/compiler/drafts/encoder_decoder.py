"""An encoder-decoder in torch, to train and to answer with in batches: the parts that
`emit_encoder` emits, with T5's position bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.compiler.decoder import DecoderConfig, Encoder, PositionBias
from speccompile.compiler.drafts.decoder import Decoder, KeyValues
from speccompile.compiler.position_bias import position_buckets

__all__ = ["EncoderDecoder", "Source"]


@dataclass
class Source:
    """What every layer of a decoder attends to of B sources of at most S tokens: `keys` and
    `values` [B, heads, S, D], of which those `real` [B, 1, 1, S] are no padding."""

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    real: Tensor

    def keep(self, rows: Tensor) -> None:
        """Go on with these sources [b] only."""
        self.keys = [each[rows] for each in self.keys]
        self.values = [each[rows] for each in self.values]
        self.real = self.real[rows]


@dataclass(frozen=True)
class EncoderDecoder(Decoder):
    """A model of `config`, which has an encoder and a position bias, over `tensors`."""

    @property
    def encoder(self) -> Encoder:
        if self.config.encoder is None:
            raise ValueError("the model has no encoder")
        return self.config.encoder

    def read(self, tokens: Tensor, real: Tensor) -> Source:
        """Read sources `tokens` [B, S], of which those `real` [B, S] are no padding."""
        places = torch.arange(tokens.shape[1])
        bias = self._bias("encoder", places - places[:, None], both_ways=True)
        seen = bias.masked_fill(~real[:, None, None], -torch.inf)
        rows = functional.embedding(tokens, self.tensors["model.embed_tokens.weight"])
        for index in range(self.encoder.layers):
            rows = self._attended(f"encoder.layers.{index}", rows, seen, None, index)
            rows = self._fed_forward(f"encoder.layers.{index}", rows)
        rows = self._norm("norm", "encoder", rows)
        heads = self.config.kv_heads
        keys, values = (
            [
                self._heads(f"model.layers.{index}.cross_attn.{part}", None, rows, heads)
                for index in range(self.config.layers)
            ]
            for part in ("k_proj", "v_proj")
        )
        return Source(keys, values, real[:, None, None])

    def answer(self, tokens: Tensor, source: Source, cache: KeyValues | None = None) -> Tensor:
        """What the head gets [B, N, hidden] for `tokens` [B, N] of answers to `source`, the first
        one of which is the start token. With a `cache` they are appended to it."""
        start = cache.length if cache else 0
        slots = torch.arange(start + tokens.shape[1])
        before = slots[start:, None] - slots
        bias = self._bias("model", before, both_ways=False)
        seen = bias.masked_fill(before < 0, -torch.inf)[None]
        rows = functional.embedding(tokens, self.tensors["model.embed_tokens.weight"])
        for index in range(self.config.layers):
            name = f"model.layers.{index}"
            rows = self._attended(name, rows, seen, cache, index)
            rows = self._crossed(name, rows, source, index)
            rows = self._fed_forward(name, rows)
        if cache is not None:
            cache.length = len(slots)
        return self._norm("norm", "model", rows)

    def _attended(
        self, name: str, rows: Tensor, seen: Tensor, cache: KeyValues | None, index: int
    ) -> Tensor:
        """`rows` [B, N, hidden] with what they see of each other; `seen` is added to scores."""
        config, attention = self.config, f"{name}.self_attn"
        branch = self._norm("input_layernorm", name, rows)
        query = self._heads(f"{attention}.q_proj", None, branch, config.heads)
        key = self._heads(f"{attention}.k_proj", None, branch, config.kv_heads)
        value = self._heads(f"{attention}.v_proj", None, branch, config.kv_heads)
        if cache is not None:
            key, value = cache.appended(index, key, value)
        return rows + self._output(attention, self._mixed(query, key, value, seen))

    def _crossed(self, name: str, rows: Tensor, source: Source, index: int) -> Tensor:
        attention = f"{name}.cross_attn"
        branch = self._norm("cross_attn_layernorm", name, rows)
        query = self._heads(f"{attention}.q_proj", None, branch, self.config.heads)
        mixed = self._mixed(query, source.keys[index], source.values[index], source.real)
        return rows + self._output(attention, mixed)

    def _fed_forward(self, name: str, rows: Tensor) -> Tensor:
        branch = self._norm("post_attention_layernorm", name, rows)
        return rows + self._mlp(f"{name}.mlp", branch)

    def _bias(self, stack: str, distances: Tensor, *, both_ways: bool) -> Tensor:
        """[heads, N, S] of `distances` [N, S], as `position_buckets` counts them."""
        bias = _position_bias(self.config)
        buckets = torch.from_numpy(position_buckets(bias, both_ways=both_ways))
        most = bias.max_distance
        places = distances.clamp(-most, most) + most if both_ways else distances.clamp(0, most)
        table = self.tensors[f"{stack}.layers.0.self_attn.position_bias"]
        return functional.embedding(buckets[places], table).permute(2, 0, 1)


def _position_bias(config: DecoderConfig) -> PositionBias:
    if config.position_bias is None:
        raise ValueError("the model has no position bias")
    return config.position_bias
