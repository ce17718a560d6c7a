"""An encoder as ONNX nodes: the parts of its decoder, over all of a source at once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from speccompile.compiler.decoder import layer_norms
from speccompile.compiler.emit import DecoderEmitter

__all__ = ["EncoderEmitter"]


class EncoderEmitter(DecoderEmitter):
    """Emits parts of an encoder too: embedding, layers, norm, in this order.

    `ids` [B, S] are then the source.
    """

    def encoder_layer(self, index: int, hidden: ir.Value) -> ir.Value:
        """One encoder layer; [B, S, hidden] to the same."""
        config, name = self.config, f"encoder.layers.{index}"
        attention, norms = f"{name}.self_attn", layer_norms(config)
        path = f"/encoder/layers.{index}"
        branch = self._norm(norms.before_attention, name, hidden)
        query = self._heads(f"{attention}.q_proj", f"{attention}.q_norm", branch, config.heads)
        key = self._heads(f"{attention}.k_proj", f"{attention}.k_norm", branch, config.kv_heads)
        value = self._heads(f"{attention}.v_proj", None, branch, config.kv_heads)
        mixed = self._attend(attention, query, key, value, self._source_bias())
        mixed = self._norm(norms.after_attention, name, mixed)
        hidden = self._residual(f"{path}/attention_residual", hidden, mixed)
        return self._feed_forward(name, hidden)

    def encoder_norm(self, hidden: ir.Value) -> ir.Value:
        """The rows that the decoder attends to."""
        return self._norm("norm", "encoder", hidden)

    def _source_bias(self) -> ir.Value | None:
        """[1, H, S, S], the same in all layers; None without a position bias."""
        graph, path = self.graph, "/encoder/position_bias"
        if self.config.position_bias is None:
            return None
        if self._biased_mask is None:
            zero, one = (graph.constant(f"number.{each}", np.array(each)) for each in (0, 1))
            size = graph.op("Shape", f"{path}/shape", self.ids, start=1, end=2)
            size = graph.op("Squeeze", f"{path}/size", size)
            places = graph.op("Range", f"{path}/range", zero, size, one)
            around, last = (
                graph.constant(f"axes.{name}", np.array(axes))
                for name, axes in (("around", [0, 1]), ("outer", [0, 2]))
            )
            keys = graph.op("Unsqueeze", f"{path}/keys", places, around)
            queries = graph.op("Unsqueeze", f"{path}/queries", places, last)
            behind = graph.op("Sub", f"{path}/behind", keys, queries)
            self._biased_mask = self._position_bias("encoder", behind, both_ways=True)
        return self._biased_mask
