"""Words and links say what the parents say, and padding says nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from speccompile.plugins.schema import RULES, Rule
from speccompile.plugins.spec_verify import Tree
from speccompile.plugins.tree import ancestors, depths, tree_mask
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.proof.trees import Trees, random_trees
from speccompile.runtime.trees.masks import (
    BUCKETS,
    Nodes,
    ancestor_words,
    bucket,
    links,
    padded,
)


@st.composite
def trees(draw: st.DrawFn, most: int = 80) -> Nodes:
    """A root, and behind it rows with an earlier parent or with none: padding."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.integers(1, most))
    reach = draw(st.integers(1, most))
    parents = [int(rng.integers(max(-1, row - reach), row)) for row in range(1, rows)]
    return np.array([-1, *parents], np.int64)


def bits(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """[N, N] of the words [N, W]."""
    ordered = words.astype("<u8").view(np.uint8)
    return np.unpackbits(ordered, axis=1, bitorder="little")[:, : len(words)].astype(np.bool_)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(trees())
def test_the_bits_are_the_ancestors(parents: Nodes) -> None:
    words = ancestor_words(parents)
    assert words.shape == (len(parents), 1 if len(parents) <= 64 else 2)
    assert np.array_equal(bits(words), ancestors(parents))


def test_the_words_of_a_chain() -> None:
    words = ancestor_words(np.arange(-1, 65))
    assert words[:3].tolist() == [[1, 0], [3, 0], [7, 0]]
    assert words[63:].tolist() == [[2**64 - 1, 0], [2**64 - 1, 1], [2**64 - 1, 3]]


@settings(derandomize=True, max_examples=100, deadline=None)
@given(trees())
def test_links_lead_to_the_children_in_their_order(parents: Nodes) -> None:
    tree, linked = Tree(parents * 0, parents), links(parents)
    for row in range(len(parents)):
        found: list[int] = []
        child = linked.first_child[row]
        while child >= 0:
            found.append(int(child))
            child = linked.next_sibling[child]
        assert found == tree.children(row)


def test_a_bucket_is_the_least_that_holds_the_rows() -> None:
    assert [bucket(rows) for rows in (1, 2, 3, 5, 33, 64)] == [1, 2, 4, 8, 64, 64]
    assert [bucket(size) for size in BUCKETS] == list(BUCKETS)
    assert (bucket(65), bucket(128), bucket(129)) == (128, 128, 192)


def test_a_proposal_is_padded_behind_its_rows() -> None:
    proposal = Proposal([5, 6, 7], [0, 1, 0])
    assert padded([-1, *proposal.parents], 6).tolist() == [-1, 0, 1, 0, -1, -1]
    with pytest.raises(ValueError, match="broadcast"):
        padded([-1, 0, 1], 2)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(trees(most=64), st.integers(0, 5))
def test_padding_changes_no_mask(parents: Nodes, length: int) -> None:
    rows = bucket(len(parents))
    wide = padded(parents, rows)
    words, plain = ancestor_words(wide), ancestor_words(parents)
    assert np.array_equal(words[: len(parents)], plain)
    assert np.array_equal(depths(wide)[: len(parents)], depths(parents))
    for row in range(len(parents), rows):
        assert words[row].tolist() == [1 << row]
        assert not (words[:row] & np.uint64(1 << row)).any()
    plainly, widely = (
        tree_mask(tree[None], np.array([length]), length + rows, 0)[1][0, 0, : len(parents)]
        for tree in (parents, wide)
    )
    assert np.array_equal(plainly, widely)


def pad(trees: Trees, rows: int, parent: int = -1) -> Trees:
    """With rows behind those of every tree whose tokens are likely and whose logits are not."""
    batch, nodes, vocabulary = trees.logits.shape
    rng, extra = np.random.default_rng(rows), rows - nodes
    tokens = np.tile(trees.logits[:, :1].argmax(-1), extra)
    rubbish = np.full((batch, extra, vocabulary), np.nan, np.float32)
    uniforms = rng.integers(0, 2**53, (batch, extra, 2))
    return replace(
        trees,
        tokens=np.concatenate([trees.tokens, tokens], 1),
        parents=np.concatenate([trees.parents, np.full((batch, extra), parent)], 1),
        uniforms=np.concatenate([trees.uniforms, uniforms], 1),
        logits=np.concatenate([trees.logits, rubbish], 1),
        draft_logits=np.concatenate([trees.draft_logits, rubbish], 1),
    )


@pytest.mark.parametrize("rule", RULES)
def test_padding_changes_no_verdict(rule: Rule) -> None:
    trees = random_trees(4, 150, 11, 6)
    plain = trees.verdicts(rule)
    wide = pad(trees, bucket(11)).verdicts(rule)
    for name, expected in plain.items():
        found = wide[name][:, :11] if expected.ndim == 2 else wide[name]
        assert np.array_equal(found, expected), name
    # Rows that follow the root are no padding: they are judged.
    judged = pad(trees, bucket(11), parent=0).verdicts(rule)
    assert not np.array_equal(judged["next_token"], plain["next_token"])
