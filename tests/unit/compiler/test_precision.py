from __future__ import annotations

import pytest

from speccompile.compiler.decoder import DecoderConfig, LayerKind, tensor_shapes
from speccompile.compiler.precision import tensor_precisions
from speccompile.runtime.errors import SpeccompileError

CONFIG = DecoderConfig(
    vocab_size=16,
    hidden_size=8,
    intermediate_size=12,
    heads=2,
    kv_heads=1,
    head_dim=4,
    context_length=32,
    kinds=(LayerKind(None),),
    layer_kinds=(0,) * 12,
    tied_embeddings=False,
    norm_epsilon=1e-5,
    attention_scale=0.5,
    qkv_bias=True,
)
QUERY = "model.layers.1.self_attn.q_proj"


def test_one_precision_is_that_of_every_matrix() -> None:
    precisions = tensor_precisions(CONFIG, "int8")
    assert list(precisions) == list(tensor_shapes(CONFIG))
    assert {
        precisions[name] for name, shape in tensor_shapes(CONFIG).items() if len(shape) == 2
    } == {"int8"}
    assert precisions[f"{QUERY}.bias"] == "fp32"
    assert precisions["model.norm.weight"] == "fp32"


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({"*": "fp16"}, "fp16"),
        ({"*": "fp16", "model.layers.1.*": "int8"}, "int8"),
        ({"*": "int8", "*.q_proj": "fp32", "model.*": "bf16"}, "bf16"),  # the last, not the longest
        ({"*": "fp16", "model.layers.11.*": "int8"}, "fp16"),
        ({"*": "fp16", "model.layers.[02].*": "int8"}, "fp16"),
    ],
)
def test_the_last_match_wins(layers: dict[str, str], expected: str) -> None:
    precisions = tensor_precisions(CONFIG, "mixed", layers)
    assert precisions[f"{QUERY}.weight"] == expected
    assert precisions[f"{QUERY}.bias"] == "fp32"


@pytest.mark.parametrize(
    ("precision", "layers", "message"),
    [
        ("int4", None, r"precision int4 does not exist; choose of fp32, .*, int8, mixed"),
        ("mixed", {"*": "mixed"}, r"precision mixed does not exist"),
        ("mixed", {"*": "fp16", "*.q": "int8"}, r'layers: "\*\.q" matches no matrix.*lm_head'),
        ("mixed", {"*": "fp16", "*norm": "int8"}, r'layers: "\*norm" matches no matrix'),
        ("mixed", {"model.*": "fp16"}, r'nothing matches lm_head; let the first pattern be "\*"'),
        ("mixed", None, r"nothing matches model\.embed_tokens"),
        ("fp16", {"*": "int8"}, r'precision is "fp16"; set precision = "mixed"'),
    ],
)
def test_mistakes_say_the_way_out(
    precision: str, layers: dict[str, str] | None, message: str
) -> None:
    with pytest.raises(SpeccompileError, match=message):
        tensor_precisions(CONFIG, precision, layers)
