"""What TensorRT refuses, in words that say what to do; its own words follow.

Everything here was provoked, see the tests: the messages are TensorRT-RTX 1.7's, and TensorRT's
where both share their sources. What a library would take without a word and do wrong stands in
`check_graph`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx

from speccompile.compiler.tensorrt.network import NetworkFacts
from speccompile.plugins import schema
from speccompile.runtime.errors import EngineError

__all__ = ["REFUSALS", "Refusal", "check_graph", "check_plugins", "ignored_plugin", "refusal"]

_KEY_LENGTHS = 6
"""Input of Attention: `nonpad_kv_seqlen`."""
_MOST_QUOTED = 240


@dataclass(frozen=True)
class Refusal:
    """`pattern` is searched for in ``OPERATOR: MESSAGE``; `meaning` says what, and the way out.
    Where the library names no node, one of type `operator` is meant."""

    pattern: str
    meaning: str
    operator: str = ""


REFUSALS = (
    # attention
    Refusal(
        r"Option mask cannot be used together with CausalMaskKind",
        "a mask excludes is_causal; give one explicit mask that is causal itself",
    ),
    Refusal(
        r"softcap is not supported",
        "attention with a softcap is not supported; lower it to matrix products",
    ),
    Refusal(
        r"only supports Attention nodes with one output",
        "attention cannot append to a cache itself; use TensorScatter ahead of it",
    ),
    Refusal(
        r"composite_op->is_decomposable",
        "no kernel does attention in this type, width and number of heads; compute it in float16, "
        "or give the node TRT_decomposable=1, which takes it apart",
        operator="Attention",
    ),
    Refusal(
        r"Graph contains more than one op named \S*_iota",
        "layers that share a mask cannot have a short range of rows for one batch size; give the "
        "profile one number of rows, more rows, or a range of batch sizes",
    ),
    # caches
    Refusal(
        r"must have a static sequence length",
        "a cache that is updated in place needs a fixed capacity",
    ),
    Refusal(
        r"Only linear mode is supported",
        "caches are written from start to end only; use TensorScatter's mode 'linear'",
    ),
    Refusal(
        r"Sequence dimension must be -2",
        "a cache has to be [batch, heads, slots, channels]; use TensorScatter's axis -2",
    ),
    Refusal(
        r"cache has type \w+ but must have type",
        "a cache has to be of float32, float16 or bfloat16",
    ),
    Refusal(
        r"output tensor must be a network output",
        "a cache is updated in place only if it leaves the graph; make the result a graph output",
    ),
    Refusal(
        r"cache tensor must be a network input",
        "a cache is updated in place only as it comes in; move what changes it, such as compaction "
        "of an accepted path, out of this graph",
    ),
    # numbers
    Refusal(
        r"Non-zero zero point",
        "INT8 has to be symmetric; quantize without zero points",
    ),
    Refusal(
        r"^(DynamicQuantizeLinear|MatMulInteger|DynamicQuantizeMatMul)\b",
        "activations cannot be quantized by what they turn out to be; use static scales, or "
        "quantize the weights alone",
    ),
    Refusal(
        r"^(De)?[Qq]uantizeLinear: [^:]*\bdims\.h::volume",
        "scales cannot be computed in the graph, such as one a token; use static ones",
    ),
    Refusal(
        r"Unsupported data type for the Cast operator|Unsupported ONNX data type",
        "it uses a type that TensorRT does not have; use int64, int32, bool or a floating type",
    ),
    Refusal(
        r"^\w+: false",
        "TensorRT has no such operator; lower it to others",
    ),
    # plugins
    Refusal(
        r"Plugin not found",
        "neither TensorRT nor a plugin has this operator; lower it, or register its plugin (nodes "
        "name it by plugin_namespace and plugin_version)",
    ),
    Refusal(
        r"Failed to find any supported plugin/custom tactic format",
        "a plugin takes other types, or another number of inputs; see speccompile.plugins.schema",
    ),
    Refusal(
        r"kALIASED_PLUGIN_IO_10_03 not enabled",
        "a plugin writes into its input, which these plans do not allow; give it an output",
    ),
    # flags
    Refusal(
        r"graph_jit\.cpp:\d+: CHECK\(status == CUDA_SUCCESS\)",
        "the flags REFIT, REFIT_IDENTICAL and STRIP_PLAN need a GPU while building; leave them out",
    ),
    Refusal(
        r"not compatible with BuilderFlag::kWEIGHT_STREAMING",
        "the flag WEIGHT_STREAMING allocates while a plan runs, which a CUDA graph cannot; leave "
        "it out",
    ),
    Refusal(
        r"Distributive independence is not supported",
        "the flag DISTRIBUTIVE_INDEPENDENCE allows one profile; leave it out, or the others",
    ),
    Refusal(
        r"libnvinfer_lean",
        "the flag VERSION_COMPATIBLE needs a library that is not installed; leave it out",
    ),
)


def refusal(
    graph: Path, model: onnx.ModelProto, node: onnx.NodeProto | None, title: str, said: list[str]
) -> EngineError:
    """The error for what the library `title` said of `graph`, or of a `node` of it.

    The first that is known counts, or else the first. A node that none is given for is looked for.
    """
    for text in said:
        for entry in REFUSALS:
            if re.search(entry.pattern, text):
                node = node or _find(model, text, entry.operator)
                where = _place(graph, node)
                return EngineError(f"{where}: {entry.meaning} ({title}: {_quote(text)})")
    first = _quote(said[0]) if said else "it gives no reason"
    return EngineError(f"{_place(graph, node)}: {title} refuses it: {first}")


def _place(graph: Path, node: onnx.NodeProto | None) -> str:
    """Where an error is, for its message."""
    if node is None:
        return str(graph)
    name = repr(node.name) if node.name else f"of {node.output[0]!r}"
    return f"{graph}: node {name} ({node.op_type})"


def check_graph(graph: Path, model: onnx.ModelProto) -> None:
    """Refuse what would be built, and be wrong."""
    for node in _nodes(model):
        if node.op_type == "Attention" and any(node.input[_KEY_LENGTHS:]):
            raise EngineError(
                f"{_place(graph, node)}: nonpad_kv_seqlen gives wrong tokens in TensorRT, and no "
                f"error; use a mask (NVIDIA/TensorRT-Model-Connect issue 955)"
            )


def check_plugins(graph: Path, model: onnx.ModelProto, facts: NetworkFacts) -> None:
    """Refuse a network in which function bodies have silently taken the place of plugins."""
    for node in _nodes(model):
        if node.domain == schema.DOMAIN and node.name not in facts.plugins:
            raise ignored_plugin(graph, node)


def ignored_plugin(graph: Path, node: onnx.NodeProto) -> EngineError:
    return EngineError(
        f"{_place(graph, node)}: TensorRT took its function body, not the plugin; give the node a "
        f"name, plugin_namespace='{schema.NAMESPACE}' and plugin_version='{schema.VERSION}'"
    )


def _find(model: onnx.ModelProto, text: str, operator: str) -> onnx.NodeProto | None:
    """The node whose name stands in `text` as the library writes it, or the first `operator`."""
    for node in _nodes(model):
        name = node.name or f"node_of_{node.output[0]}"
        if f"({name}: " in text or node.op_type == operator:
            return node
    return None


def _nodes(model: onnx.ModelProto) -> Iterable[onnx.NodeProto]:
    nodes: Iterable[onnx.NodeProto] = model.graph.node
    return nodes


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_QUOTED else f"{line[: _MOST_QUOTED - 1]}…"
