"""A Llama in plain torch, on any device: over static caches, and over whole sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Caches", "Decoder", "Shape", "first_layers", "noisy", "random_weights"]

Weights = Mapping[str, Tensor]
"""By the names of transformers' `LlamaForCausalLM`."""

Caches = Sequence[tuple[Tensor, Tensor]]
"""Keys and values [B, Hkv, S, D] of every layer."""

Update = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From a layer's new keys and values to all that its queries see."""

_EPSILON, _THETA = 1e-6, 10_000.0  # transformers' defaults
_PER_LAYER = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """The shape of every weight; the head is not tied to the embedding."""
        hidden, inner = self.hidden, self.intermediate
        keys = self.kv_heads * self.head_dim
        sizes = (hidden,), (hidden, hidden), (keys, hidden), (keys, hidden), (hidden, hidden)
        of_layer = *sizes, (hidden,), (inner, hidden), (inner, hidden), (hidden, inner)
        return {
            "model.embed_tokens.weight": (self.vocabulary, hidden),
            **{
                f"model.layers.{layer}.{name}.weight": shape
                for layer in range(self.layers)
                for name, shape in zip(_PER_LAYER, of_layer, strict=True)
            },
            "model.norm.weight": (hidden,),
            "lm_head.weight": (self.vocabulary, hidden),
        }


def random_weights(shape: Shape, seed: int, *, quiet_from: int | None = None) -> dict[str, Tensor]:
    """fp32 weights on the CPU, the same each time, that keep activations near to 1.

    Layers from `quiet_from` on add little to their input, so that the layers before them make a
    draft that is often right.
    """
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}
    for name, size in shape.parameters().items():
        if len(size) == 1:
            weights[name] = 0.5 + torch.rand(size, generator=generator)
            continue
        values = torch.randn(size, generator=generator)
        layer = int(name.split(".")[2]) if ".layers." in name else -1
        is_quiet = quiet_from is not None and layer >= quiet_from
        ends_branch = name.endswith(("o_proj.weight", "down_proj.weight"))
        gain = 0.05 if is_quiet and ends_branch else 2.0 if "lm_head" in name else 1.0
        weights[name] = values if "embed" in name else values * (gain * size[1] ** -0.5)
    return weights


def noisy(weights: Weights, seed: int, share: float) -> dict[str, Tensor]:
    """Weights of which every one was changed by a `share` of their size."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: weight + share * weight.std() * torch.randn(weight.shape, generator=generator)
        for name, weight in weights.items()
    }


def first_layers(weights: Weights, layers: int) -> dict[str, Tensor]:
    """The weights of a model of so many layers."""
    return {
        name: weight
        for name, weight in weights.items()
        if ".layers." not in name or int(name.split(".")[2]) < layers
    }


class Decoder:
    """Weights on a device, and what they compute.

    Nothing in `forward` waits for the device or copies from the host, so that a graph can capture
    it once it was run.
    """

    def __init__(
        self,
        shape: Shape,
        weights: Weights,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """`capacity` is the longest sequence."""
        self.shape, self.capacity, self.device, self.dtype = shape, capacity, device, dtype
        self.weights = {name: weight.to(device, dtype) for name, weight in weights.items()}
        exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        angles = torch.arange(capacity).float()[:, None] * (_THETA**-exponents)[None]
        self._turns = torch.cat([angles.cos(), angles.sin()], -1).to(device)  # [S, D]
        self.slots = torch.arange(capacity, device=device)
        if device.type == "cuda":  # the stream of the calls does not wait for the one of these
            torch.cuda.synchronize(device)

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor, slots: Tensor, caches: Caches
    ) -> Tensor:
        """Logits [B, N, V] of `tokens` [B, N], whose keys and values go to `slots` [B, N] of the
        caches, of which `mask` [B, 1, N, S] says what each row sees.

        A token or a slot that there is not is taken for another: CUDA would fail for good.
        """
        slots = slots.clamp(0, self.capacity - 1)

        def update(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            index = slots[:, None, :, None].expand_as(keys)
            for cache, rows in zip(caches[layer], (keys, values), strict=True):
                cache.scatter_(2, index, rows)
            return caches[layer]

        return self._layers(tokens, positions, mask, update)

    def complete(self, tokens: Sequence[int], given: Caches = ()) -> Tensor:
        """Logits [N, V] in fp32 of a whole sequence, without a cache.

        The first keys and values may be `given`, as another decoder has made them.
        """

        def keep(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            if not given:
                return keys, values
            first, second = (
                torch.cat([rows, own[:, :, rows.shape[2] :]], 2)
                for rows, own in zip(given[layer], (keys, values), strict=True)
            )
            return first, second

        return self._whole(tokens, keep)

    def keys_and_values(self, tokens: Sequence[int]) -> Caches:
        """Of a whole sequence, [1, Hkv, N, D]."""
        made: list[tuple[Tensor, Tensor]] = []

        def keep(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            made.append((keys, values))
            return keys, values

        self._whole(tokens, keep)
        return made

    def _whole(self, tokens: Sequence[int], update: Update) -> Tensor:
        rows = len(tokens)
        everything = torch.ones((1, 1, rows, rows), dtype=torch.bool, device=self.device)
        ids = torch.tensor([tokens], device=self.device)
        with torch.no_grad():
            return self._layers(ids, self.slots[None, :rows], everything.tril(), update)[0].float()

    def _layers(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor,
        update: Update,
    ) -> Tensor:
        weights, last = self.weights, self.shape.vocabulary - 1
        hidden = functional.embedding(tokens.clamp(0, last), weights["model.embed_tokens.weight"])
        turns = functional.embedding(positions.clamp(0, self.capacity - 1), self._turns)[:, None]
        for layer in range(self.shape.layers):
            named = {name: weights[f"model.layers.{layer}.{name}.weight"] for name in _PER_LAYER}
            queries, keys, values = self._projected(hidden, named, turns)
            keys, values = update(layer, keys, values)
            mixed = self._attend(queries, keys, values, mask)
            hidden = hidden + functional.linear(mixed, named["self_attn.o_proj"])
            inner = _norm(hidden, named["post_attention_layernorm"])
            gate = functional.silu(functional.linear(inner, named["mlp.gate_proj"]))
            inner = gate * functional.linear(inner, named["mlp.up_proj"])
            hidden = hidden + functional.linear(inner, named["mlp.down_proj"])
        return functional.linear(
            _norm(hidden, weights["model.norm.weight"]), weights["lm_head.weight"]
        )

    def _projected(
        self, hidden: Tensor, named: Weights, turns: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, N, D], keys and values [B, Hkv, N, D], turned by their positions."""
        hidden = _norm(hidden, named["input_layernorm"])
        batch, rows, _ = hidden.shape
        queries, keys, values = (
            functional.linear(hidden, named[f"self_attn.{kind}_proj"])
            .view(batch, rows, -1, self.shape.head_dim)
            .transpose(1, 2)
            for kind in "qkv"
        )
        return _turned(queries, turns), _turned(keys, turns), values

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """[B, N, H D]; the query heads of one key head stand one behind the other."""
        batch, heads, rows, width = queries.shape
        kv_heads = self.shape.kv_heads
        grouped = queries.reshape(batch, kv_heads, -1, width)
        scores = torch.matmul(grouped, keys.transpose(-1, -2)).float() * width**-0.5
        scores = scores.view(batch, kv_heads, -1, rows, keys.shape[2])
        weights = scores.masked_fill(~mask[:, :, None], -torch.inf).softmax(-1)
        mixed = torch.matmul(weights.to(values.dtype).flatten(2, 3), values)
        return mixed.view(batch, heads, rows, width).transpose(1, 2).flatten(2)


def _norm(values: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(values, weight.shape, weight, _EPSILON)


def _turned(values: Tensor, turns: Tensor) -> Tensor:
    """Halves of a head's channels, turned into one another (RoPE)."""
    cosines, sines = turns.chunk(2, -1)
    first, second = values.float().chunk(2, -1)
    turned = first * cosines - second * sines, second * cosines + first * sines
    return torch.cat(turned, -1).to(values.dtype)
