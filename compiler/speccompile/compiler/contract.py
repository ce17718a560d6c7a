"""The ONNX contract: the one graph that every engine's own graph is lowered from (opset 24).

==================  ================  =======  =====================================================
input               shape             type     meaning
==================  ================  =======  =====================================================
input_ids           [B, N]            int64    query rows: the last committed token, then proposals
position_ids        [B, N]            int64    position of each row in its sequence
attention_mask      [B, 1, N, S]      bool     cache slots a row may see, its own included
write_index         [B]               int64    first free cache slot; row n is written to slot + n
key_cache.i         [B, Hkv, S, D]    float32  static capacity S, updated in place (TensorScatter)
value_cache.i       [B, Hkv, S, D]    float32  the same for values
==================  ================  =======  =====================================================

Outputs are ``logits`` [B, N, V] in float32 and the updated caches, ``new_key_cache.i`` and
``new_value_cache.i``. Weights may be fp32, fp16 or int8 with scales; arithmetic is fp32. Nodes are
named by their path in the model, such as ``/model/layers.0/self_attn/q_proj``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.weights import SCALE_SUFFIX

__all__ = ["build_contract", "rope_tables"]

_FLOAT, _INT64, _BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL


def build_contract(
    config: DecoderConfig, weights: Mapping[str, ir.TensorProtocol], capacity: int
) -> ir.Model:
    """The decoder as an ONNX model of `capacity` cache slots."""
    return _Contract(config, weights, capacity).build()


def rope_tables(config: DecoderConfig, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [positions, D / 2], fp32, of the rotary embedding (arXiv 2104.09864).

    The angles are computed in fp32, as the reference implementation does: at position 2,000 an
    fp64 angle differs by more than the tolerance of the equality test. The power alone is taken in
    fp64 and rounded: torch's fp32 power is that, numpy's is often one unit off in the last place.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    powers = np.power(np.float64(config.rope_theta), exponents.astype(np.float64))
    frequencies = np.float32(1.0) / powers.astype(np.float32)
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies).astype(np.float32)
    return np.cos(angles), np.sin(angles)


class _Contract:
    def __init__(
        self, config: DecoderConfig, weights: Mapping[str, ir.TensorProtocol], capacity: int
    ) -> None:
        self.config = config
        self.weights = weights
        self.graph = GraphBuilder()
        self.cache_shape = ("B", config.kv_heads, capacity, config.head_dim)
        self.ids = declare("input_ids", _INT64, ("B", "N"))
        self.positions = declare("position_ids", _INT64, ("B", "N"))
        self.mask = declare("attention_mask", _BOOL, ("B", 1, "N", capacity))
        self.write_index = declare("write_index", _INT64, ("B",))
        self.inputs = [self.ids, self.positions, self.mask, self.write_index]
        self.outputs: list[ir.Value] = []
        cosines, sines = rope_tables(config, capacity)
        self.cosines = self.graph.constant("rope.cos", cosines)
        self.sines = self.graph.constant("rope.sin", sines)

    def build(self) -> ir.Model:
        config, graph = self.config, self.graph
        hidden = self._embedding()
        for index in range(config.layers):
            hidden = self._layer(index, hidden)
        hidden = self._norm("model.norm", hidden)
        head = "model.embed_tokens" if config.tied_embeddings else "lm_head"
        logits = self._linear(head, hidden, node="/lm_head")
        logits = graph.op("Identity", "logits", logits)
        logits.type, logits.shape = ir.TensorType(_FLOAT), ir.Shape(("B", "N", config.vocab_size))
        return graph.model("decoder", self.inputs, [logits, *self.outputs])

    def _embedding(self) -> ir.Value:
        name, graph = "model.embed_tokens.weight", self.graph
        path = "/model/embed_tokens"
        rows = graph.op("Gather", f"{path}/Gather", self._stored(name), self.ids)
        scale = self.weights.get(name + SCALE_SUFFIX)
        if scale is None and self.weights[name].dtype == _FLOAT:
            return rows
        rows = graph.op("Cast", f"{path}/Cast", rows, to=_FLOAT)
        if scale is None:
            return rows
        scales = graph.op("Gather", f"{path}/scale", self._stored(name + SCALE_SUFFIX), self.ids)
        last = graph.constant("axes.last", np.array([-1]))
        scales = graph.op("Unsqueeze", f"{path}/Unsqueeze", scales, last)
        return graph.op("Mul", f"{path}/Mul", rows, scales)

    def _layer(self, index: int, hidden: ir.Value) -> ir.Value:
        graph, name = self.graph, f"model.layers.{index}"
        path = _path(name)
        attended = self._attention(index, self._norm(f"{name}.input_layernorm", hidden))
        hidden = graph.op("Add", f"{path}/attention_residual", hidden, attended)
        normed = self._norm(f"{name}.post_attention_layernorm", hidden)
        gate = self._linear(f"{name}.mlp.gate_proj", normed)
        up = self._linear(f"{name}.mlp.up_proj", normed)
        gate = graph.op("Swish", f"{path}/mlp/act", gate)
        inner = graph.op("Mul", f"{path}/mlp/Mul", gate, up)
        down = self._linear(f"{name}.mlp.down_proj", inner)
        return graph.op("Add", f"{path}/mlp_residual", hidden, down)

    def _attention(self, index: int, hidden: ir.Value) -> ir.Value:
        config, graph = self.config, self.graph
        name = f"model.layers.{index}.self_attn"
        path = _path(name)
        query = self._heads(f"{name}.q_proj", hidden, config.heads)
        key = self._heads(f"{name}.k_proj", hidden, config.kv_heads)
        value = self._heads(f"{name}.v_proj", hidden, config.kv_heads)
        query = self._rotate(f"{path}/q_rope", query)
        key = self._rotate(f"{path}/k_rope", key)
        keys = self._append(f"key_cache.{index}", key)
        values = self._append(f"value_cache.{index}", value)
        mixed = graph.op("Attention", f"{path}/Attention", query, keys, values, self.mask)
        mixed = graph.op("Transpose", f"{path}/Transpose", mixed, perm=[0, 2, 1, 3])
        merged = graph.constant("shape.merged", np.array([0, 0, -1]))
        mixed = graph.op("Reshape", f"{path}/Reshape", mixed, merged)
        return self._linear(f"{name}.o_proj", mixed)

    def _heads(self, name: str, hidden: ir.Value, heads: int) -> ir.Value:
        graph, path = self.graph, _path(name)
        rows = self._linear(name, hidden)
        shape = graph.constant(f"shape.heads.{heads}", np.array([0, 0, heads, -1]))
        rows = graph.op("Reshape", f"{path}/Reshape", rows, shape)
        return graph.op("Transpose", f"{path}/heads", rows, perm=[0, 2, 1, 3])

    def _rotate(self, path: str, rows: ir.Value) -> ir.Value:
        return self.graph.op(
            "RotaryEmbedding", path, rows, self.cosines, self.sines, self.positions
        )

    def _append(self, cache: str, rows: ir.Value) -> ir.Value:
        past = declare(cache, _FLOAT, self.cache_shape)
        self.inputs.append(past)
        updated = self.graph.op(
            "TensorScatter", f"new_{cache}", past, rows, self.write_index, axis=-2
        )
        updated.type, updated.shape = ir.TensorType(_FLOAT), ir.Shape(self.cache_shape)
        self.outputs.append(updated)
        return updated

    def _norm(self, name: str, hidden: ir.Value) -> ir.Value:
        weight = self._stored(f"{name}.weight")
        epsilon = self.config.rms_norm_eps
        return self.graph.op("RMSNormalization", _path(name), hidden, weight, epsilon=epsilon)

    def _linear(self, name: str, rows: ir.Value, node: str | None = None) -> ir.Value:
        graph, path = self.graph, node or _path(name)
        weight = self._stored(f"{name}.weight")
        scale = f"{name}.weight{SCALE_SUFFIX}"
        if scale in self.weights:
            weight = graph.op(
                "DequantizeLinear", f"{path}/dequantize", weight, self._stored(scale), axis=0
            )
        elif self.weights[f"{name}.weight"].dtype != _FLOAT:
            weight = graph.op("Cast", f"{path}/Cast", weight, to=_FLOAT)
        weight = graph.op("Transpose", f"{path}/weight", weight, perm=[1, 0])
        return graph.op("MatMul", path if node is None else f"{node}/MatMul", rows, weight)

    def _stored(self, name: str) -> ir.Value:
        return self.graph.weight(name, self.weights[name])


def _path(name: str) -> str:
    """``model.layers.0.mlp.up_proj`` -> ``/model/layers.0/mlp/up_proj``."""
    return "/" + name.replace(".", "/").replace("layers/", "layers.")
