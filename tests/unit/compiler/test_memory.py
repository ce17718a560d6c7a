"""What an artifact takes, where the head of a draft is a matrix of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speccompile.compiler.memory import weight_bytes
from tests.unit.compiler.lower.graphs import CONFIG

_HELD = {"fp16": 4, "int8": 1}


@pytest.mark.parametrize("precision", _HELD)
def test_a_restricted_head_adds_rows_to_a_tied_model_and_takes_some_from_others(
    precision: str,
) -> None:
    row = CONFIG.hidden_size * _HELD[precision]
    whole = weight_bytes(CONFIG, precision, {})
    assert weight_bytes(CONFIG, precision, {}, head_rows=10) == whole + 10 * row
    untied = replace(CONFIG, tied_embeddings=False)
    whole = weight_bytes(untied, precision, {})
    left_out = untied.vocab_size - 10
    assert weight_bytes(untied, precision, {}, head_rows=10) == whole - left_out * row


def test_it_has_the_precision_of_its_matrix() -> None:
    untied = replace(CONFIG, tied_embeddings=False)
    layers = {"*": "int8", "lm_head": "fp16"}
    whole = weight_bytes(untied, "mixed", layers)
    restricted = weight_bytes(untied, "mixed", layers, head_rows=10)
    assert whole - restricted == 4 * (untied.vocab_size - 10) * untied.hidden_size
