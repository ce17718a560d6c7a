"""A decoder in torch, to generate from in batches and to train: the same parts that `emit` emits.

Tensors are kept under their canonical names, so that what was trained is what is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.compiler.decoder import DecoderConfig, LayerKind, Rope, layer_norms

__all__ = ["Context", "Decoder", "KeyValues", "Places"]


@dataclass
class KeyValues:
    """The keys and values [layers, B, kv heads, capacity, D] of the first `length` slots."""

    keys: Tensor
    values: Tensor
    length: int = 0

    @classmethod
    def of(cls, config: DecoderConfig, batch: int, capacity: int, dtype: torch.dtype) -> KeyValues:
        """An empty cache."""
        shape = (config.layers, batch, config.kv_heads, capacity, config.head_dim)
        return cls(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype))

    def keep(self, rows: Tensor) -> None:
        """Go on with these sequences [b] only."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]

    def appended(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Those of a layer, with `key` and `value` [B, kv heads, N, D] behind the first `length`,
        which stays what it is until all layers are done."""
        here = slice(self.length, self.length + key.shape[2])
        self.keys[layer][:, :, here], self.values[layer][:, :, here] = key, value
        return self.keys[layer][:, :, : here.stop], self.values[layer][:, :, : here.stop]


@dataclass(frozen=True)
class Context:
    """What another decoder made of the same N rows: of each layer the keys and values
    [B, kv heads, N, D], of which a row sees those in `seen` [N, N], and of its own the others up to
    itself."""

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    seen: Tensor


@dataclass(frozen=True)
class Decoder:
    """A decoder of `config` over `tensors` by canonical name."""

    config: DecoderConfig
    tensors: Mapping[str, Tensor]

    def hidden(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        visible: Tensor | None = None,
        cache: KeyValues | None = None,
        context: Context | None = None,
    ) -> Tensor:
        """What the head gets [B, N, hidden] for `tokens` [B, N].

        Without a cache every row sees those before it, or what a `context` lets it see. With one,
        the rows are appended to it; `positions` [B, N] and `visible` [B, N, slots] then say where
        they are and which slots they see, windows apart.
        """
        rows, places = self.begin(
            tokens, positions=positions, visible=visible, cache=cache, context=context
        )
        for index in range(self.config.layers):
            rows = self.layer(index, rows, places, cache=cache, context=context)
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.end(rows)

    def begin(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        visible: Tensor | None = None,
        cache: KeyValues | None = None,
        context: Context | None = None,
    ) -> tuple[Tensor, Places]:
        """What the first layer gets [B, N, hidden], and the places that `layer` takes."""
        config = self.config
        if positions is None:
            positions = torch.arange(tokens.shape[1])[None].expand_as(tokens)
        rows = functional.embedding(tokens, self.tensors["model.embed_tokens.weight"])
        rows = rows.to(self.tensors["model.norm.weight"].dtype)  # of sums, where tables are short
        rows = rows * config.embedding_scale if config.embedding_scale != 1.0 else rows
        if config.learned_positions:
            rows = rows + self.tensors["model.embed_positions.weight"][positions]
        start = cache.length if cache else 0
        return rows, _places(config.kinds, positions, visible, start, context)

    def layer(
        self,
        index: int,
        rows: Tensor,
        places: Places,
        *,
        cache: KeyValues | None = None,
        context: Context | None = None,
    ) -> Tensor:
        """What layer `index` makes of `rows` [B, N, hidden]."""
        name, norms = f"model.layers.{index}", layer_norms(self.config)
        place = places[self.config.layer_kinds[index]]
        branch = self._norm(norms.before_attention, name, rows)
        branch = self._attention(index, branch, place, cache, context)
        rows = self._residual(rows, self._norm(norms.after_attention, name, branch))
        branch = self._norm(norms.before_mlp, name, rows)
        branch = self._mlp(f"{name}.mlp", branch)
        return self._residual(rows, self._norm(norms.after_mlp, name, branch))

    def end(self, rows: Tensor) -> Tensor:
        """What the head gets of the last layer's `rows`."""
        return self._norm("norm", "model", rows)

    def logits(self, hidden: Tensor, head: Tensor | None = None) -> Tensor:
        """Those [..., V] of rows of `hidden`; of a `head` with some of its rows only, as many."""
        config = self.config
        if head is None:
            name = "model.embed_tokens" if config.tied_embeddings else "lm_head"
            head = self.tensors[f"{name}.weight"]
        logits = functional.linear(hidden, head)
        logits = logits * config.logit_scale if config.logit_scale != 1.0 else logits
        if config.logit_softcap is not None:
            logits = config.logit_softcap * torch.tanh(logits / config.logit_softcap)
        return logits

    def _residual(self, rows: Tensor, branch: Tensor) -> Tensor:
        scale = self.config.residual_scale
        return rows + (branch if scale == 1.0 else branch * scale)

    def _attention(
        self,
        index: int,
        rows: Tensor,
        place: _Place,
        cache: KeyValues | None,
        context: Context | None,
    ) -> Tensor:
        config = self.config
        name = f"model.layers.{index}.self_attn"
        query = self._heads(f"{name}.q_proj", f"{name}.q_norm", rows, config.heads)
        key = self._heads(f"{name}.k_proj", f"{name}.k_norm", rows, config.kv_heads)
        value = self._heads(f"{name}.v_proj", None, rows, config.kv_heads)
        if place.turn is not None:
            query, key = place.turn.of(query), place.turn.of(key)
        if cache is not None:
            key, value = cache.appended(index, key, value)
        if context is not None:
            key = torch.cat((context.keys[index], key), 2)
            value = torch.cat((context.values[index], value), 2)
        mixed = self._mixed(query, key, value, place.seen)
        return self._output(name, mixed)

    def _output(self, attention: str, mixed: Tensor) -> Tensor:
        """[B, N, hidden] of what heads [B, heads, N, D] found."""
        return self._linear(f"{attention}.o_proj", mixed.transpose(1, 2).flatten(2))

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
        scale, softcap = self.config.attention_scale, self.config.attention_softcap
        if softcap is None and seen is not None and query.shape[2] == 1:
            # The heads of a group as rows of one: their keys are read once.
            grouped = query.reshape(*key.shape[:2], -1, key.shape[3])
            mixed = functional.scaled_dot_product_attention(grouped, key, value, seen, scale=scale)
            return mixed.reshape(query.shape)
        if softcap is None:
            return functional.scaled_dot_product_attention(
                query, key, value, seen, is_causal=seen is None, scale=scale, enable_gqa=True
            )
        groups = self.config.heads // self.config.kv_heads
        key, value = (each.repeat_interleave(groups, 1) for each in (key, value))
        scores = softcap * torch.tanh(query @ key.transpose(2, 3) * (scale / softcap))
        if seen is None:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return scores.masked_fill(~seen, -torch.inf).softmax(-1).to(value.dtype) @ value

    def _heads(self, name: str, norm: str | None, rows: Tensor, heads: int) -> Tensor:
        """[B, heads, N, D] of a projection, normalized where the family does."""
        config = self.config
        rows = self._linear(name, rows)
        if norm and config.query_key_norm == "all_heads":
            rows = self._rms_norm(norm, rows)
        rows = rows.reshape(*rows.shape[:2], heads, config.head_dim)
        if norm and config.query_key_norm == "head":
            rows = self._rms_norm(norm, rows)
        return rows.transpose(1, 2)

    def _mlp(self, name: str, rows: Tensor) -> Tensor:
        up = self._linear(f"{name}.up_proj", rows)
        acted = self._linear(f"{name}.gate_proj", rows) if self.config.gated else up
        if self.config.activation == "silu":
            acted = functional.silu(acted)
        elif self.config.activation == "relu":
            acted = functional.relu(acted)
        else:
            tanh = self.config.activation == "gelu_tanh"
            acted = functional.gelu(acted, approximate="tanh" if tanh else "none")
        return self._linear(f"{name}.down_proj", acted * up if self.config.gated else acted)

    def _norm(self, norm: str | None, owner: str, rows: Tensor) -> Tensor:
        if norm is None:
            return rows
        name = f"{owner}.{norm}"
        if self.config.norm == "rms":
            return self._rms_norm(name, rows)
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return functional.layer_norm(rows, weight.shape, weight, bias, self.config.norm_epsilon)

    def _rms_norm(self, name: str, rows: Tensor) -> Tensor:
        weight = self.tensors[f"{name}.weight"]
        return functional.rms_norm(rows, weight.shape, weight, self.config.norm_epsilon)

    def _linear(self, name: str, rows: Tensor) -> Tensor:
        return functional.linear(
            rows, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        )


@dataclass(frozen=True)
class _Turn:
    """A rotary embedding at the rows' positions: `cosine` and `sine` [B, 1, N, channels / 2]."""

    cosine: Tensor
    sine: Tensor

    @classmethod
    def at(cls, positions: Tensor, rope: Rope) -> _Turn:
        frequencies = torch.tensor(rope.frequencies, dtype=torch.float32)
        angles = positions[:, None, :, None].float() * frequencies
        scale = rope.attention_factor
        return cls(torch.cos(angles) * scale, torch.sin(angles) * scale)

    def of(self, rows: Tensor) -> Tensor:
        """[B, heads, N, D] turned; channels half of the rotated ones apart are a pair."""
        cosine, sine = self.cosine.to(rows.dtype), self.sine.to(rows.dtype)
        half = cosine.shape[3]
        first, second, rest = rows.tensor_split((half, 2 * half), 3)
        turned = (first * cosine - second * sine, second * cosine + first * sine, rest)
        return torch.cat(turned, 3)


@dataclass(frozen=True)
class _Place:
    """What layers of a kind make of where rows are: how they turn, and which slots they see, to be
    broadcast over heads; None is all up to their own."""

    turn: _Turn | None
    seen: Tensor | None


Places = Sequence[_Place]
"""Of every kind of layer."""


def _places(
    kinds: Sequence[LayerKind],
    positions: Tensor,
    visible: Tensor | None,
    start: int,
    context: Context | None,
) -> Places:
    """The rows [B, N] go into the slots from `start` on, or stand behind those of a context."""
    count = positions.shape[1]
    slots = torch.arange(start + count)
    distance = slots[start:, None] - slots  # of a slot before a row
    if context is not None:
        visible = torch.cat((context.seen, (distance >= 0) & ~context.seen), 1)
        distance = torch.cat((distance, distance), 1)

    def seen(window: int | None) -> Tensor | None:
        mask = visible
        if window is not None and window < start + count:
            mask = (distance < window) & ((distance >= 0) if mask is None else mask)
        return None if mask is None else mask.expand(len(positions), -1, -1)[:, None]

    return [
        _Place(_Turn.at(positions, kind.rope) if kind.rope else None, seen(kind.window))
        for kind in kinds
    ]
