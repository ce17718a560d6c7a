"""Run a decoder over whole texts one layer at a time: the full-precision reference of any size.

A layer is read, run over all windows of the text and forgotten, so that memory holds one layer and
the hidden states. The parts are those of the contract (`emit.py`), with weights as graph inputs:
nothing is copied into a graph, folded or packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.emit_encoder import EncoderEmitter
from speccompile.compiler.graph import declare
from speccompile.runtime.engines.ort import ort

__all__ = ["Layerwise", "Observer"]

_Floats = NDArray[np.float32]
_Observed = Literal["nothing", "inputs", "everything"]
_Part = Callable[[EncoderEmitter, ir.Value, ir.Value], ir.Value]

_ROWS_AT_ONCE = 2048
_COMPUTED = frozenset(
    {
        *("Add", "Attention", "Gelu", "LayerNormalization", "MatMul", "Mul", "RMSNormalization"),
        *("Relu", "Swish"),
    }
)

Observer = Callable[[str, _Floats], None]
"""Is told largest magnitudes: [in], by input column, under the name of a linear layer
(``model.layers.0.mlp.up_proj``); and [], of all its output, under that of a node (``/model/...``).
"""


class Layerwise:
    """The decoder `config` with the fp32 tensors that `read` gives, over windows of tokens."""

    def __init__(
        self, config: DecoderConfig, read: Callable[[str], _Floats], *, threads: int = 0
    ) -> None:
        self._config = config
        self._read = read
        self._threads = threads

    def hidden_states(
        self,
        windows: NDArray[np.int64],
        observe: Observer | None = None,
        *,
        sources: NDArray[np.int64] | None = None,
    ) -> _Floats:
        """The last layer's rows [W, T, hidden] for `windows` [W, T], each a text of its own, or
        what follows one of the `sources` [W, S].

        `observe` is called once for every group of windows: the caller takes the largest.
        """
        count = max(windows.size // _ROWS_AT_ONCE, 1)
        groups, read = np.array_split(windows, count), list[_Floats]()
        if self._config.encoder and sources is not None:
            parts = [*map(_encoder_layer, range(self._config.encoder.layers)), _encoder_norm]
            read = self._through(parts, np.array_split(sources, count), observe)
        layers = [_layer(index) for index in range(self._config.layers)]
        states = self._through(layers, groups, observe, read)
        if observe:
            head = self._piece(_head, windows.shape[1], observed="inputs")
            for group, hidden in zip(groups, states, strict=True):
                for name, peak in zip(head.observed, head.run(group, hidden), strict=True):
                    observe(name, peak)
        return np.concatenate(states)

    def logits(self, hidden: Iterable[_Floats]) -> Iterator[_Floats]:
        """Logits [N, V] of each [N, hidden]; the head is read once."""
        head = self._piece(_head, 1)
        for rows in hidden:
            yield head.run(np.zeros((1, len(rows)), np.int64), rows[None])[0][0]

    def _through(
        self,
        parts: Iterable[_Part],
        groups: Sequence[NDArray[np.int64]],
        observe: Observer | None,
        read: Sequence[_Floats] = (),
    ) -> list[_Floats]:
        """What the `parts` make of the embedded `groups`, one after the other."""
        width = groups[0].shape[1]
        embedding = self._piece(_embedding, width)
        states = [embedding.run(group)[0] for group in groups]
        for part in parts:
            piece = self._piece(part, width, observed="everything" if observe else "nothing")
            for number, group in enumerate(groups):
                source = read[number] if read else None
                states[number], *peaks = piece.run(group, states[number], source)
                for name, peak in zip(piece.observed, peaks, strict=True):
                    if observe:
                        observe(name, peak)
        return states

    def _piece(self, part: _Part, width: int, *, observed: _Observed = "nothing") -> _Piece:
        return _Piece(self._config, self._read, part, width, self._threads, observed)


class _Piece:
    """One part of the decoder, for windows of `width` tokens, as a session of its own."""

    def __init__(
        self,
        config: DecoderConfig,
        read: Callable[[str], _Floats],
        part: _Part,
        width: int,
        threads: int,
        observed: _Observed,
    ) -> None:
        hidden, source = (
            declare(name, ir.DataType.FLOAT, ("B", length, config.hidden_size))
            for name, length in (("hidden", "N"), ("source", "L"))
        )
        emitter = EncoderEmitter(config, _OnDemand(config, read), width)
        result = part(emitter, hidden, source)
        peaks = dict(_peaks(emitter)) if observed != "nothing" else {}
        if observed == "inputs":  # the session leaves out what no output needs: all the products
            peaks = {name: peak for name, peak in peaks.items() if not name.startswith("/")}
        self.observed = list(peaks)
        outputs = [*peaks.values()] if observed == "inputs" else [result, *peaks.values()]
        self._weights = _as_inputs(emitter, tensor_shapes(config).keys())
        controls = [hidden, source, *emitter.controls, *emitter.caches]
        inputs = [value for value in controls if value.uses()]
        self._names = frozenset(str(value.name) for value in inputs)
        self._config, self._width = config, width
        self._caches = [str(cache.name) for cache in emitter.caches]
        weights = [emitter.graph.initializers.pop(name) for name in self._weights]
        model = emitter.graph.model("part", [*inputs, *weights], outputs)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._session = ort.InferenceSession(
            ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(
        self,
        tokens: NDArray[np.int64],
        hidden: _Floats | None = None,
        source: _Floats | None = None,
    ) -> list[Any]:
        """The part's output for `tokens` [W, T], unless only inputs are observed, then the peaks of
        what is observed. `source` are the encoder's rows."""
        slots, places = np.arange(self._width), np.arange(tokens.shape[1])
        seen = slots <= places[:, None]
        near = slots > places[:, None] - (self._config.window(self._width) or self._width)
        cache = (len(tokens), self._config.kv_heads, self._width, self._config.head_dim)
        values: dict[str, Any] = {
            "input_ids": tokens,
            "position_ids": np.tile(places, (len(tokens), 1)),
            "attention_mask": np.tile(seen, (len(tokens), 1, 1, 1)),
            "sliding_mask": np.tile(seen & near, (len(tokens), 1, 1, 1)),
            "write_index": np.zeros(len(tokens), np.int64),
            "hidden": hidden,
            "source": source,
            **{name: np.zeros(cache, np.float32) for name in self._caches},
        }
        feeds = {name: _value(values[name]) for name in self._names}
        outputs = self._session.run_with_ort_values(None, feeds | self._weights)
        # Copies: an output is in the session's arena, all of which would live on with it.
        return [np.array(output.numpy()) for output in outputs]


class _OnDemand(Mapping[str, ir.TensorProtocol]):
    """The decoder's tensors, read when they are asked for."""

    def __init__(self, config: DecoderConfig, read: Callable[[str], _Floats]) -> None:
        self._names = tensor_shapes(config)
        self._read = read

    def __getitem__(self, name: str) -> ir.TensorProtocol:
        return ir.tensor(self._read(name), name=name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _embedding(emitter: EncoderEmitter, rows: ir.Value, source: ir.Value) -> ir.Value:
    return emitter.embedding()


def _layer(index: int) -> _Part:
    return lambda emit, rows, source: emit.layer(index, rows, source)


def _encoder_layer(index: int) -> _Part:
    return lambda emit, rows, source: emit.encoder_layer(index, rows)


def _encoder_norm(emitter: EncoderEmitter, rows: ir.Value, source: ir.Value) -> ir.Value:
    return emitter.encoder_norm(rows)


def _head(emitter: EncoderEmitter, rows: ir.Value, source: ir.Value) -> ir.Value:
    return emitter.head(rows)


def _peaks(emitter: EncoderEmitter) -> Iterator[tuple[str, ir.Value]]:
    """Nodes that reduce what is observed, with the names it is reported under."""
    graph, nodes = emitter.graph, list(emitter.graph.nodes)
    rows_axes = graph.constant("axes.rows", np.array([0, 1]))
    for node in nodes:
        if node.op_type == "MatMul":  # all are linear layers: attention is one node
            rows, matrix = node.inputs[0], _stored(node)
            name = str(matrix.name).removesuffix(".weight")
            size = graph.op("Abs", f"{name}/magnitude", rows)
            yield name, graph.op("ReduceMax", f"{name}/peaks", size, rows_axes, keepdims=0)
    for node in nodes:
        if node.op_type in _COMPUTED:
            path = str(node.name)
            size = graph.op("Abs", f"{path}/magnitude", node.outputs[0])
            yield path, graph.op("ReduceMax", f"{path}/peak", size, keepdims=0)


def _stored(matmul: ir.Node) -> ir.Value:
    """The weight ``[out, in]`` that `matmul` reads transposed."""
    transposed = matmul.inputs[1]
    transpose = transposed.producer() if transposed else None
    weight = transpose.inputs[0] if transpose else None
    if weight is None:
        raise ValueError(f"{matmul.name} is not a linear layer")
    return weight


def _as_inputs(emitter: EncoderEmitter, names: Iterable[str]) -> dict[str, ort.OrtValue]:
    """Take the weights out of the graph: they are fed, without a copy."""
    fed: dict[str, ort.OrtValue] = {}
    for name in names:
        value = emitter.graph.initializers.get(name)
        if value is not None and value.const_value is not None:
            fed[name] = _value(value.const_value.numpy())
            value.const_value = None
    return fed


def _value(array: NDArray[Any]) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array)
