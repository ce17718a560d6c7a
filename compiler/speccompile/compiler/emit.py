"""The parts of a decoder as ONNX nodes: embedding, layers, head. `contract.py` puts them together.

Arithmetic is fp32 whatever the weights are stored in. Nodes are named by their path in the model,
such as ``/model/layers.0/self_attn/q_proj``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from speccompile.compiler.decoder import DecoderConfig, LayerKind, layer_norms
from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.position_bias import bias_of_distances
from speccompile.compiler.rope import rope_tables
from speccompile.compiler.weights import (
    INPUT_SCALE_SUFFIX,
    OUTLIER_VALUES_SUFFIX,
    OUTLIERS_SUFFIX,
    SCALE_SUFFIX,
)

__all__ = ["DecoderEmitter"]

_FLOAT, _INT64, _BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL


class DecoderEmitter:
    """Emits parts of the decoder `config` into `graph`, and collects its inputs and caches."""

    def __init__(
        self, config: DecoderConfig, weights: Mapping[str, ir.TensorProtocol], capacity: int
    ) -> None:
        self.config = config
        self.weights = weights
        self.capacity = capacity
        self.graph = GraphBuilder()
        self.ids = declare("input_ids", _INT64, ("B", "N"))
        self.positions = declare("position_ids", _INT64, ("B", "N"))
        self.mask = declare("attention_mask", _BOOL, ("B", 1, "N", capacity))
        self.sliding_mask = declare("sliding_mask", _BOOL, ("B", 1, "N", capacity))
        self.write_index = declare("write_index", _INT64, ("B",))
        self.controls = (self.ids, self.positions, self.mask, self.sliding_mask, self.write_index)
        self.caches: list[ir.Value] = []
        self.updated: list[ir.Value] = []
        self.source: list[ir.Value] = []
        self._biased_mask: ir.Value | None = None

    def embedding(self) -> ir.Value:
        """[B, N, hidden] of the input ids."""
        graph, config = self.graph, self.config
        hidden = self._rows("model.embed_tokens.weight", self.ids)
        hidden = self._scaled("/model/embed_tokens/scaled", hidden, config.embedding_scale)
        if config.learned_positions:
            # The rows that pad a step at the end of the cache are past the table, and forgotten.
            last = graph.constant("positions.last", np.array(config.learned_positions - 1))
            places = graph.op("Min", "/model/embed_positions/Min", self.positions, last)
            places = self._rows("model.embed_positions.weight", places)
            hidden = graph.op("Add", "/model/embed_positions/Add", hidden, places)
        return hidden

    def layer(self, index: int, hidden: ir.Value, read: ir.Value | None = None) -> ir.Value:
        """One decoder layer; [B, N, hidden] to the same.

        With an encoder, its keys and values of the source are those of the encoder's rows `read`
        [B, S, hidden], by default inputs of the graph.
        """
        name, norms = f"model.layers.{index}", layer_norms(self.config)
        branch = self._norm(norms.before_attention, name, hidden)
        branch = self._attention(index, branch)
        branch = self._norm(norms.after_attention, name, branch)
        hidden = self._residual(f"{_path(name)}/attention_residual", hidden, branch)
        if self.config.encoder:
            branch = self._norm("cross_attn_layernorm", name, hidden)
            branch = self._cross_attention(index, branch, read)
            hidden = self._residual(f"{_path(name)}/cross_attention_residual", hidden, branch)
        return self._feed_forward(name, hidden)

    def head(self, hidden: ir.Value) -> ir.Value:
        """``logits`` [B, N, V] of the last layer's rows."""
        graph, config = self.graph, self.config
        hidden = self._norm("norm", "model", hidden)
        name = "model.embed_tokens" if config.tied_embeddings else "lm_head"
        logits = self._linear(name, hidden, path="/lm_head")
        logits = self._scaled("/lm_head/scaled", logits, config.logit_scale)
        if config.logit_softcap is not None:
            logits = self._scaled("/lm_head/inverse_cap", logits, 1.0 / config.logit_softcap)
            logits = graph.op("Tanh", "/lm_head/Tanh", logits)
            logits = self._scaled("/lm_head/softcap", logits, config.logit_softcap)
        logits = graph.op("Identity", "logits", logits)
        logits.type, logits.shape = ir.TensorType(_FLOAT), ir.Shape(("B", "N", config.vocab_size))
        return logits

    def source_rows(self, index: int, read: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What a decoder layer attends to of the encoder's rows `read`: keys and values
        [B, Hkv, S, D]."""
        name, heads = f"model.layers.{index}.cross_attn", self.config.kv_heads
        key = self._heads(f"{name}.k_proj", None, read, heads)
        return key, self._heads(f"{name}.v_proj", None, read, heads)

    def _feed_forward(self, name: str, hidden: ir.Value) -> ir.Value:
        """The second half of the layer `name`."""
        norms = layer_norms(self.config)
        branch = self._norm(norms.before_mlp, name, hidden)
        branch = self._mlp(f"{name}.mlp", branch)
        branch = self._norm(norms.after_mlp, name, branch)
        return self._residual(f"{_path(name)}/mlp_residual", hidden, branch)

    def _attention(self, index: int, hidden: ir.Value) -> ir.Value:
        config, kind = self.config, self.config.kind(index)
        name = f"model.layers.{index}.self_attn"
        path = _path(name)
        query = self._heads(f"{name}.q_proj", f"{name}.q_norm", hidden, config.heads)
        key = self._heads(f"{name}.k_proj", f"{name}.k_norm", hidden, config.kv_heads)
        value = self._heads(f"{name}.v_proj", None, hidden, config.kv_heads)
        query = self._rotate(f"{path}/q_rope", query, kind)
        key = self._rotate(f"{path}/k_rope", key, kind)
        keys = self._append(f"key_cache.{index}", key)
        values = self._append(f"value_cache.{index}", value)
        sliding = kind.window is not None and kind.window < self.capacity
        mask = self.sliding_mask if sliding else self.mask
        if config.position_bias:
            mask = self._biased(mask)
        return self._attend(name, query, keys, values, mask)

    def _cross_attention(self, index: int, hidden: ir.Value, read: ir.Value | None) -> ir.Value:
        name = f"model.layers.{index}.cross_attn"
        query = self._heads(f"{name}.q_proj", None, hidden, self.config.heads)
        if read is not None:
            keys, values = self.source_rows(index, read)
        else:
            shape = ("B", self.config.kv_heads, "L", self.config.head_dim)
            keys, values = (
                declare(f"source_{kind}.{index}", _FLOAT, shape) for kind in ("key", "value")
            )
            self.source += [keys, values]
        return self._attend(name, query, keys, values, None)

    def _attend(
        self, name: str, query: ir.Value, keys: ir.Value, values: ir.Value, mask: ir.Value | None
    ) -> ir.Value:
        """[B, N, hidden] of the attention layer `name`; `mask` is boolean, or added to scores."""
        graph, path = self.graph, _path(name)
        mixed = graph.op(
            "Attention",
            f"{path}/Attention",
            query,
            keys,
            values,
            mask,
            scale=self.config.attention_scale,
            softcap=self.config.attention_softcap or 0.0,
        )
        mixed = graph.op("Transpose", f"{path}/Transpose", mixed, perm=[0, 2, 1, 3])
        merged = graph.constant("shape.merged", np.array([0, 0, -1]))
        mixed = graph.op("Reshape", f"{path}/Reshape", mixed, merged)
        return self._linear(f"{name}.o_proj", mixed)

    def _biased(self, mask: ir.Value) -> ir.Value:
        """What is added to scores, [B, H, N, S]: the position bias, or minus infinity outside of
        `mask`. The same in all layers. A slot's position is its number: rows are a chain."""
        if self._biased_mask is None:
            graph, path = self.graph, "/model/position_bias"
            slots = graph.constant("slots", np.arange(self.capacity))
            last = graph.constant("axes.last", np.array([-1]))
            rows = graph.op("Unsqueeze", f"{path}/rows", self.positions, last)
            distances = graph.op("Sub", f"{path}/distances", rows, slots)
            bias = self._position_bias("model", distances, both_ways=False)
            hidden = graph.constant("score.hidden", np.array(-np.inf, np.float32))
            self._biased_mask = graph.op("Where", f"{path}/masked", mask, bias, hidden)
        return self._biased_mask

    def _position_bias(self, stack: str, distances: ir.Value, *, both_ways: bool) -> ir.Value:
        bias, table = self.config.position_bias, f"{stack}.layers.0.self_attn.position_bias"
        if bias is None:
            raise ValueError("the decoder has no position bias")
        return bias_of_distances(
            self.graph, bias, self._stored(table), f"/{stack}/position_bias", distances, both_ways
        )

    def _heads(self, name: str, norm: str | None, hidden: ir.Value, heads: int) -> ir.Value:
        """[B, heads, N, D] of a projection, normalized where the family does."""
        graph, path, config = self.graph, _path(name), self.config
        rows = self._linear(name, hidden)
        if norm and config.query_key_norm == "all_heads":
            rows = self._rms_norm(norm, rows)
        shape = graph.constant(f"shape.heads.{heads}", np.array([0, 0, heads, -1]))
        rows = graph.op("Reshape", f"{path}/Reshape", rows, shape)
        if norm and config.query_key_norm == "head":
            rows = self._rms_norm(norm, rows)
        return graph.op("Transpose", f"{path}/heads", rows, perm=[0, 2, 1, 3])

    def _rotate(self, path: str, rows: ir.Value, kind: LayerKind) -> ir.Value:
        if kind.rope is None:
            return rows
        number = self.config.kinds.index(kind)
        cosines, sines = rope_tables(kind.rope, self.capacity)
        cosines_of_kind = self.graph.constant(f"rope.{number}.cos", cosines)
        sines_of_kind = self.graph.constant(f"rope.{number}.sin", sines)
        channels = 2 * len(kind.rope.frequencies)
        return self.graph.op(
            "RotaryEmbedding",
            path,
            rows,
            cosines_of_kind,
            sines_of_kind,
            self.positions,
            rotary_embedding_dim=0 if channels == self.config.head_dim else channels,
        )

    def _append(self, cache: str, rows: ir.Value) -> ir.Value:
        shape = ("B", self.config.kv_heads, self.capacity, self.config.head_dim)
        past = declare(cache, _FLOAT, shape)
        updated = self.graph.op(
            "TensorScatter", f"new_{cache}", past, rows, self.write_index, axis=-2
        )
        updated.type, updated.shape = ir.TensorType(_FLOAT), ir.Shape(shape)
        self.caches.append(past)
        self.updated.append(updated)
        return updated

    def _mlp(self, name: str, rows: ir.Value) -> ir.Value:
        graph, path, config = self.graph, _path(name), self.config
        up = self._linear(f"{name}.up_proj", rows)
        acted = self._linear(f"{name}.gate_proj", rows) if config.gated else up
        if config.activation == "silu":
            acted = graph.op("Swish", f"{path}/act", acted)
        elif config.activation == "relu":
            acted = graph.op("Relu", f"{path}/act", acted)
        else:
            approximate = "tanh" if config.activation == "gelu_tanh" else "none"
            acted = graph.op("Gelu", f"{path}/act", acted, approximate=approximate)
        inner = graph.op("Mul", f"{path}/Mul", acted, up) if config.gated else acted
        return self._linear(f"{name}.down_proj", inner)

    def _norm(self, norm: str | None, owner: str, rows: ir.Value) -> ir.Value:
        if norm is None:
            return rows
        name = f"{owner}.{norm}"
        if self.config.norm == "rms":
            return self._rms_norm(name, rows)
        weight, bias = self._stored(f"{name}.weight"), self._stored(f"{name}.bias")
        epsilon = self.config.norm_epsilon
        return self.graph.op("LayerNormalization", _path(name), rows, weight, bias, epsilon=epsilon)

    def _rms_norm(self, name: str, rows: ir.Value) -> ir.Value:
        weight = self._stored(f"{name}.weight")
        epsilon = self.config.norm_epsilon
        return self.graph.op("RMSNormalization", _path(name), rows, weight, epsilon=epsilon)

    def _residual(self, path: str, hidden: ir.Value, branch: ir.Value) -> ir.Value:
        branch = self._scaled(f"{path}/scaled", branch, self.config.residual_scale)
        return self.graph.op("Add", path, hidden, branch)

    def _scaled(self, path: str, rows: ir.Value, factor: float) -> ir.Value:
        if factor == 1.0:
            return rows
        scale = self.graph.constant(f"scale.{factor!r}", np.array(factor, np.float32))
        return self.graph.op("Mul", path, rows, scale)

    def _linear(self, name: str, rows: ir.Value, path: str | None = None) -> ir.Value:
        """``rows @ weight.T + bias``; an int8 weight may have columns of its own precision."""
        graph, weight = self.graph, f"{name}.weight"
        node = path or _path(name)
        rounded = rows
        if weight + INPUT_SCALE_SUFFIX in self.weights:
            rounded = self._rounded(f"{node}/input", rows, weight + INPUT_SCALE_SUFFIX)
        product = f"{node}/MatMul" if path else node
        result = graph.op("MatMul", product, rounded, self._matrix(weight, node))
        if weight + OUTLIERS_SUFFIX in self.weights:
            columns = self._stored(weight + OUTLIERS_SUFFIX)
            apart = graph.op("Gather", f"{node}/outliers", rows, columns, axis=-1)
            matrix = self._matrix(weight + OUTLIER_VALUES_SUFFIX, f"{node}/outliers")
            apart = graph.op("MatMul", f"{node}/outliers/MatMul", apart, matrix)
            result = graph.op("Add", f"{node}/with_outliers", result, apart)
        if f"{name}.bias" in self.weights:
            result = graph.op("Add", f"{node}/bias", result, self._stored(f"{name}.bias"))
        return result

    def _matrix(self, name: str, node: str) -> ir.Value:
        """A stored ``[out, in]`` as fp32 ``[in, out]``."""
        graph, weight = self.graph, self._stored(name)
        if name + SCALE_SUFFIX in self.weights:
            scale = self._stored(name + SCALE_SUFFIX)
            weight = graph.op("DequantizeLinear", f"{node}/dequantize", weight, scale, axis=0)
        elif self.weights[name].dtype != _FLOAT:
            weight = graph.op("Cast", f"{node}/Cast", weight, to=_FLOAT)
        return graph.op("Transpose", f"{node}/weight", weight, perm=[1, 0])

    def _rounded(self, path: str, rows: ir.Value, scale: str) -> ir.Value:
        """Rows rounded to int8 with a scale known beforehand."""
        graph, step = self.graph, self._stored(scale)
        zero = graph.constant("zero_point", np.array(0, np.int8))
        codes = graph.op("QuantizeLinear", f"{path}/quantize", rows, step, zero)
        return graph.op("DequantizeLinear", f"{path}/dequantize", codes, step, zero)

    def _rows(self, name: str, index: ir.Value) -> ir.Value:
        """fp32 rows of a stored table."""
        graph, path = self.graph, _path(name.removesuffix(".weight"))
        rows = graph.op("Gather", f"{path}/Gather", self._stored(name), index)
        scale = name + SCALE_SUFFIX
        if scale not in self.weights and self.weights[name].dtype == _FLOAT:
            return rows
        rows = graph.op("Cast", f"{path}/Cast", rows, to=_FLOAT)
        if scale not in self.weights:
            return rows
        scales = graph.op("Gather", f"{path}/scale", self._stored(scale), index)
        last = graph.constant("axes.last", np.array([-1]))
        scales = graph.op("Unsqueeze", f"{path}/Unsqueeze", scales, last)
        return graph.op("Mul", f"{path}/Mul", rows, scales)

    def _stored(self, name: str) -> ir.Value:
        return self.graph.weight(name, self.weights[name])


def _path(name: str) -> str:
    """``model.layers.0.mlp.up_proj`` -> ``/model/layers.0/mlp/up_proj``."""
    return "/" + name.replace(".", "/").replace("layers/", "layers.")
