"""What a call of several sequences says to the graph."""

from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.engines.openvino_feeds import begins, feeds, share_of

CHAIN = share_of([7, 2], 40, [5, 6, 7], None, 1, 2)
LONE = share_of([3], 9, [8], None, None, 2)
TREE = share_of([1], 20, [1, 2, 3, 4], [-1, 0, 0, 1], None, 2)


def test_rows_stand_behind_one_another() -> None:
    fed = feeds([CHAIN, LONE], 2)
    expected = {
        "input_ids": [[5, 6, 7, 8, 8]],
        "position_ids": [[40, 41, 42, 9, 10]],
        "logit_rows": [2, 3],
        "past_lens": [40, 9],
        "subsequence_begins": [0, 3, 5],
        "block_indices": [7, 2, 3],
        "block_indices_begins": [0, 2, 3],
        "max_context_len": 43,
        "qq_bias": [],
        "qq_bias_begins": [],
    }
    assert {name: value.tolist() for name, value in fed.items()} == expected


def test_the_head_computes_enough_rows_too() -> None:
    assert feeds([CHAIN], 4)["logit_rows"].tolist() == [2, 2, 2, 2]


def test_a_tree_says_what_its_rows_see() -> None:
    fed = feeds([CHAIN, TREE], 2)
    assert fed["position_ids"].tolist() == [[40, 41, 42, 20, 21, 21, 22]]
    assert fed["qq_bias_begins"].tolist() == [0, 0, 16]
    seen = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    assert fed["qq_bias"].reshape(4, 4).tolist() == seen


def test_inputs_have_the_graph_s_types() -> None:
    types = {name: value.dtype for name, value in feeds([CHAIN, TREE], 2).items()}
    wide = {"input_ids", "position_ids", "logit_rows"}
    assert {name for name, dtype in types.items() if dtype == np.int64} == wide
    assert types["qq_bias"] == np.uint8
    assert all(types[name] == np.int32 for name in types.keys() - wide - {"qq_bias"})


@pytest.mark.parametrize(
    ("parents", "chained"),
    [(None, 4), ([-1, 0, 1, 2], 4), ([-1, 0, 0, 2], 2), ([-1, -1, 1, 2], 1), ([-1, 0, 1, 1], 3)],
)
def test_the_chain_that_comes_first(parents: list[int] | None, chained: int) -> None:
    assert share_of([0], 0, [1, 2, 3, 4], parents, None, 6).chained == chained


def test_padding_follows_the_last_row() -> None:
    share = share_of([0], 5, [1, 2], [-1, -1], None, 4)
    assert (share.tokens, share.rows, share.wanted, share.end) == ([1, 2, 2, 2], 2, 2, 9)
    assert share.positions.tolist() == [5, 5, 6, 7]


@pytest.mark.parametrize("parents", [[-1], [-1, 0, 2], [-1, 0, 1, 2], [-2, 0, 1]])
def test_what_is_no_tree_is_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match="of a tree of 3 cannot follow"):
        share_of([0], 0, [1, 2, 3], parents, None, 2)


def test_begins() -> None:
    assert begins([]).tolist() == [0]
    assert begins(len(each.tokens) for each in (CHAIN, TREE)).tolist() == [0, 3, 7]
