"""What an artifact takes, where the head of a draft is a matrix of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speccompile.compiler.memory import weight_bytes
from tests.unit.compiler.lower.graphs import CONFIG

_HELD = {"fp16": 2, "int8": 1}
ENGINES = ("onnxruntime",)


@pytest.mark.parametrize("precision", _HELD)
def test_a_restricted_head_adds_rows_to_a_tied_model_and_takes_some_from_others(
    precision: str,
) -> None:
    row = CONFIG.hidden_size * _HELD[precision]
    whole = weight_bytes(CONFIG, precision, {}, ENGINES)
    assert weight_bytes(CONFIG, precision, {}, ENGINES, head_rows=10) == whole + 10 * row
    untied = replace(CONFIG, tied_embeddings=False)
    whole = weight_bytes(untied, precision, {}, ENGINES)
    left_out = untied.vocab_size - 10
    assert weight_bytes(untied, precision, {}, ENGINES, head_rows=10) == whole - left_out * row


def test_it_has_the_precision_of_its_matrix() -> None:
    untied = replace(CONFIG, tied_embeddings=False)
    layers = {"*": "int8", "lm_head": "fp16"}
    whole = weight_bytes(untied, "mixed", layers, ENGINES)
    restricted = weight_bytes(untied, "mixed", layers, ENGINES, head_rows=10)
    assert whole - restricted == 2 * (untied.vocab_size - 10) * untied.hidden_size


def test_openvino_converts_what_has_16_bits() -> None:
    both = (*ENGINES, "openvino")
    single = weight_bytes(CONFIG, "fp32", {}, ENGINES)
    assert (
        weight_bytes(CONFIG, "fp16", {}, both) == single > weight_bytes(CONFIG, "fp16", {}, ENGINES)
    )
    held = weight_bytes(CONFIG, "int8", {}, ENGINES)
    assert weight_bytes(CONFIG, "int8", {}, both) == held
