"""Everything that TensorRT refuses, provoked: our words have to stand in front of its own.

A library that changes its messages, or its mind, makes one of these fail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.tensorrt.builder import Profile
from speccompile.compiler.tensorrt.refusals import REFUSALS
from speccompile.runtime.errors import EngineError
from tests.foreign_plugins import foreign_plugins
from tests.plans import ATTENTION, HEAD, NEEDS_RTX, RANGES, ROUND, build, model

pytestmark = NEEDS_RTX

_SECOND_LAYER = """
    sum = Add (mixed, mixed)
    [keys_1] new_key_cache_1 = TensorScatter <axis = -2> (key_cache_1, key, lengths)
    [values_1] new_value_cache_1 = TensorScatter <axis = -2> (value_cache_1, value, lengths)
    [attend_1] mixed_1 = Attention (sum, new_key_cache_1, new_value_cache_1, mask)
}
"""

_TWO_LAYERS = (
    ATTENTION.replace("}", _SECOND_LAYER)
    .replace("[B,4,N,64] mixed", "[B,4,N,64] mixed_1")
    .replace("value_cache\n", "value_cache, {0}key_cache_1, {0}value_cache_1\n")
    .replace("{0}", "float16[B,2,128,64] ", 2)
    .replace("{0}", "float16[B,2,128,64] new_", 2)
)

_LINEAR = """
<ir_version: 10, opset_import: ["" : 24, "test" : 1]>
linear (float16[B,N,64] x) => (float16[B,N,32] y) {{
    {nodes}
}}
"""

_WEIGHTS: dict[str, NDArray[np.generic]] = {
    "weight": np.ones((64, 32), np.int8),
    "scale": np.full(32, 0.5, np.float16),
    "zero": np.full(32, 3, np.int8),
    "last": np.array([-1]),
    "full": np.ones((64, 32), np.float16),
}


@dataclass(frozen=True)
class _Case:
    """A graph that is refused; `place` is how the message goes on behind the file's name."""

    graph: str
    place: str = ""
    weights: dict[str, NDArray[np.generic]] = field(default_factory=dict[str, NDArray[np.generic]])
    profiles: tuple[Profile, ...] = RANGES
    flags: tuple[str, ...] = ()


def _attention(old: str, new: str, place: str) -> _Case:
    assert old in ATTENTION
    return _Case(ATTENTION.replace(old, new), place)


def _linear(nodes: str, place: str) -> _Case:
    weights = {name: array for name, array in _WEIGHTS.items() if name in nodes}
    return _Case(_LINEAR.format(nodes=nodes), place, weights)


_CACHE, _NEW_CACHE = "float16[B,2,128,64] key_cache", "float16[B,2,128,64] new_key_cache"

CASES: dict[str, _Case] = {
    "explicit mask that is causal itself": _attention(
        "Attention (", "Attention <is_causal = 1> (", "node 'attend' (Attention)"
    ),
    "attention with a softcap": _attention(
        "Attention (", "Attention <softcap = 30.0> (", "node 'attend' (Attention)"
    ),
    "cannot append to a cache itself": _Case(
        """
        <ir_version: 10, opset_import: ["" : 24]>
        step (float16[B,4,N,64] q, float16[B,2,N,64] k, float16[B,2,N,64] v,
              float16[B,2,128,64] past_k, float16[B,2,128,64] past_v)
        => (float16[B,4,N,64] mixed, float16[B,2,M,64] new_k, float16[B,2,M,64] new_v) {
            [attend] mixed, new_k, new_v = Attention (q, k, v, , past_k, past_v)
        }
        """,
        "node 'attend' (Attention)",
    ),
    "no kernel does attention in this type": _Case(
        ATTENTION.replace("float16", "float"), "node 'attend' (Attention)"
    ),
    "layers that share a mask": _Case(_TWO_LAYERS, profiles=(Profile((1, 1, 1), (1, 2, 4)),)),
    "needs a fixed capacity": _Case(ATTENTION.replace("128", "S"), "node 'keys' (TensorScatter)"),
    "written from start to end only": _attention(
        "<axis = -2> (key_cache", '<axis = -2, mode = "circular"> (key_cache', "node 'keys'"
    ),
    "[batch, heads, slots, channels]": _attention(
        "<axis = -2> (key_cache", "<axis = 1> (key_cache", "node 'keys' (TensorScatter)"
    ),
    "has to be of float32, float16 or bfloat16": _Case(
        ATTENTION.replace(_CACHE, _CACHE.replace("float16", "int8"))
        .replace(_NEW_CACHE, _NEW_CACHE.replace("float16", "int8"))
        .replace("float16[B,2,N,64] key", "int8[B,2,N,64] key")
        .replace("[attend]", "keys = Cast <to = 10> (new_key_cache)\n[attend]")
        .replace("(query, new_key_cache", "(query, keys"),
        "node 'keys' (TensorScatter)",
    ),
    "make the result a graph output": _attention(
        f"{_NEW_CACHE}, ", "", "node 'keys' (TensorScatter)"
    ),
    "compaction of an accepted path": _attention(
        "[keys] new_key_cache = TensorScatter <axis = -2> (key_cache",
        "old = Add (key_cache, key_cache)\n[keys] new_key_cache = TensorScatter <axis = -2> (old",
        "node 'keys' (TensorScatter)",
    ),
    "INT8 has to be symmetric": _linear(
        "[scaled] w = DequantizeLinear <axis = 1> (weight, scale, zero) y = MatMul (x, w)",
        "node 'scaled' (DequantizeLinear)",
    ),
    "activations cannot be quantized": _linear(
        "wide = Cast <to = 1> (x) [round] q, s, z = DynamicQuantizeLinear (wide)"
        " back = DequantizeLinear (q, s, z) half = Cast <to = 10> (back) y = MatMul (half, full)",
        "node 'round' (DynamicQuantizeLinear)",
    ),
    "scales cannot be computed in the graph": _linear(
        "size = Abs (x) most = ReduceMax <keepdims = 0> (size, last) s = Reshape (most, last)"
        " [round] q = QuantizeLinear <axis = 1> (x, s) r = DequantizeLinear <axis = 1> (q, s)"
        " y = MatMul (r, full)",
        "node 'round' (QuantizeLinear)",
    ),
    "uses a type that TensorRT does not have": _linear(
        "[bits] u = Cast <to = 13> (x) h = Cast <to = 10> (u) y = MatMul (h, full)",
        "node 'bits' (Cast)",
    ),
    "no such operator; lower it": _Case(
        """
        <ir_version: 10, opset_import: ["" : 24]>
        shift (uint8[B,N] x) => (uint8[B,N] y) {
            [shift] y = BitShift <direction = "LEFT"> (x, x)
        }
        """,
        "node 'shift' (BitShift)",
    ),
    "register its plugin": _linear("[odd] y = test.Unheard (x)", "node 'odd' (Unheard)"),
    "a plugin takes other types": _linear(
        '[picky] y = test.Picky <plugin_namespace = "test", plugin_version = "1"> (x)', ""
    ),
    "a plugin writes into its input": _linear(
        '[writer] y = test.InPlace <plugin_namespace = "test", plugin_version = "1"> (x)', ""
    ),
    "REFIT, REFIT_IDENTICAL and STRIP_PLAN need a GPU": _Case(ATTENTION, flags=("REFIT",)),
    "flag WEIGHT_STREAMING allocates": _Case(ATTENTION, flags=("WEIGHT_STREAMING",)),
    "DISTRIBUTIVE_INDEPENDENCE allows one profile": _Case(
        ATTENTION, profiles=RANGES * 2, flags=("DISTRIBUTIVE_INDEPENDENCE",)
    ),
    "VERSION_COMPATIBLE needs a library": _Case(ATTENTION, flags=("VERSION_COMPATIBLE",)),
}
"""By a part of the meaning that is given to each."""


@pytest.mark.parametrize("meaning", CASES)
def test_a_refusal_says_where_what_and_the_way_out(meaning: str, tmp_path: Path) -> None:
    case = CASES[meaning]

    with foreign_plugins(), pytest.raises(EngineError) as error:
        build(model(case.graph, **case.weights), tmp_path, profiles=case.profiles, flags=case.flags)

    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{tmp_path / 'step.onnx'}: {case.place}")
    assert meaning in message
    assert re.search(r"\(TensorRT-RTX [\d.]+: .+\)$", message)


def test_every_refusal_is_provoked() -> None:
    unprovoked = [
        entry.meaning
        for entry in REFUSALS
        if not any(meaning in entry.meaning for meaning in CASES)
    ]

    assert not unprovoked


@pytest.mark.parametrize("flag", ["REFIT_IDENTICAL", "STRIP_PLAN"])
def test_flags_that_compile_on_a_gpu_are_refused(flag: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="REFIT, REFIT_IDENTICAL and STRIP_PLAN need a GPU"):
        build(model(ROUND, **HEAD), tmp_path, flags=(flag,))


def test_matrix_products_of_rounded_activations_are_refused(tmp_path: Path) -> None:
    nodes = (
        "i = Cast <to = 3> (x) [product] p = MatMulInteger (i, weight)"
        " q = Cast <to = 10> (p) y = Mul (q, scale)"
    )
    case = _linear(nodes, "")

    with pytest.raises(EngineError, match=r"node 'product' \(MatMulInteger\): activations cannot"):
        build(model(case.graph, **case.weights), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sampling, draft_logits)", "sampling)", "it has 6 inputs, and not logits, tokens, "),
        ("float[B,4] sampling", "float16[B,4] sampling", "sampling is float16, and not float32"),
        ("float16[B,N,32] draft", "float[B,N,32] draft", "draft_logits is float32, and not float1"),
        ('"traversal"', '"best"', "SpecVerify has no rule 'best'; it has greedy, walk, token, "),
        ('rule = "traversal",', "", "SpecVerify needs the attribute rule, of type str"),
    ],
)
def test_our_plugin_says_what_it_does_not_take(
    old: str, new: str, reason: str, tmp_path: Path
) -> None:
    assert old in ROUND
    made = model(ROUND.replace(old, new), **HEAD)

    with pytest.raises(EngineError, match=re.escape(f"node 'verify' (SpecVerify): {reason}")):
        build(made, tmp_path)


def test_key_lengths_that_give_wrong_tokens_are_refused(tmp_path: Path) -> None:
    graph = ATTENTION.replace("new_value_cache, mask)", "new_value_cache, mask, , , lengths)")

    with pytest.raises(EngineError, match=r"node 'attend' \(Attention\): nonpad_kv_seqlen"):
        build(model(graph), tmp_path)
