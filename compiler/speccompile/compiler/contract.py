"""The ONNX contract: the one graph that every engine's own graph is lowered from (opset 24).

==================  ================  =======  =====================================================
input               shape             type     meaning
==================  ================  =======  =====================================================
input_ids           [B, N]            int64    query rows: the last committed token, then proposals
position_ids        [B, N]            int64    position of each row in its sequence
attention_mask      [B, 1, N, S]      bool     cache slots a row may see, its own included
sliding_mask        [B, 1, N, S]      bool     of those, the ones within the window of sliding
                                               layers; absent where no window is below S
write_index         [B]               int64    first free cache slot; row n is written to slot + n
key_cache.i         [B, Hkv, S, D]    float32  static capacity S, updated in place (TensorScatter)
value_cache.i       [B, Hkv, S, D]    float32  the same for values
source_key.i        [B, Hkv, L, D]    float32  keys of a source of L tokens, for layer i; these two
                                               for a decoder with an encoder alone
source_value.i      [B, Hkv, L, D]    float32  the same for values
==================  ================  =======  =====================================================

Outputs are ``logits`` [B, N, V] in float32 and the updated caches, ``new_key_cache.i`` and
``new_value_cache.i``. An input that the decoder does not use (positions, where it neither rotates
nor learns them) is absent.

The graph of an encoder takes ``input_ids`` [B, L], a source, and returns ``source_key.i`` and
``source_value.i`` of every layer of its decoder: each source is read once, however many steps
attend to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.emit import DecoderEmitter
from speccompile.compiler.emit_encoder import EncoderEmitter

__all__ = ["KEEP_FP32_KEY", "WINDOW_KEY", "build_contract", "build_encoder"]

KEEP_FP32_KEY = "speccompile.keep_fp32"
"""Of the metadata of a node whose output fp16 cannot hold: its largest magnitude, as observed."""

WINDOW_KEY = "speccompile.sliding_window"
"""Of the model's metadata: the window that `sliding_mask` stands for, in positions; 0 for none."""


def build_contract(
    config: DecoderConfig, weights: Mapping[str, ir.TensorProtocol], capacity: int
) -> ir.Model:
    """The decoder as an ONNX model of `capacity` cache slots."""
    emitter = DecoderEmitter(config, weights, capacity)
    hidden = emitter.embedding()
    for index in range(config.layers):
        hidden = emitter.layer(index, hidden)
    logits = emitter.head(hidden)
    used = [value for value in emitter.controls if value.uses()]
    inputs = [*used, *emitter.source, *emitter.caches]
    model = emitter.graph.model("decoder", inputs, [logits, *emitter.updated])
    model.metadata_props[WINDOW_KEY] = str(config.window(capacity) or 0)
    return model


def build_encoder(config: DecoderConfig, weights: Mapping[str, ir.TensorProtocol]) -> ir.Model:
    """The encoder of `config` as an ONNX model, with the decoder's projections of what it reads."""
    if config.encoder is None:
        raise ValueError("the decoder has no encoder")
    emitter = EncoderEmitter(config, weights, 0)
    hidden = emitter.embedding()
    for index in range(config.encoder.layers):
        hidden = emitter.encoder_layer(index, hidden)
    read = emitter.encoder_norm(hidden)
    shape = ("B", config.kv_heads, "L", config.head_dim)
    outputs: list[ir.Value] = []
    for index in range(config.layers):
        for kind, rows in zip(("key", "value"), emitter.source_rows(index, read), strict=True):
            output = emitter.graph.op("Identity", f"source_{kind}.{index}", rows)
            output.type, output.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(shape)
            outputs.append(output)
    emitter.ids.shape = ir.Shape(("B", "L"))
    return emitter.graph.model("encoder", [emitter.ids], outputs)
