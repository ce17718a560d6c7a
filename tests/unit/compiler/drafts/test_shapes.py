from __future__ import annotations

import pytest

from speccompile.compiler.drafts.shapes import Shape, Space, own_shape, spread
from speccompile.compiler.drafts.student import default_layers
from speccompile.compiler.recipe import DistilTable
from speccompile.runtime.errors import SpeccompileError
from tests.families import tiny

CONFIG = tiny("llama-tied", num_hidden_layers=6).config
SETTINGS = DistilTable(count=3, vocabulary=200)


def test_layers_are_spread_evenly() -> None:
    assert spread(1, 30) == (0,)
    assert spread(2, 30) == (0, 29)
    assert spread(4, 30) == (0, 10, 19, 29)
    for count in range(2, 13):
        chosen = spread(count, 12)
        assert len(set(chosen)) == count
        assert (chosen[0], chosen[-1]) == (0, 11)
        assert list(chosen) == sorted(chosen)


def test_every_shape_comes_once_and_first_the_recipes_own() -> None:
    space = Space(counts=(2, 3), layers=((1, 4),), vocabularies=(200, 400))
    found = space.shapes(SETTINGS, CONFIG)
    assert found[0] == own_shape(SETTINGS, CONFIG) == Shape(default_layers(3, 6), 200)
    assert len(found) == len(set(found)) == 2 * 4  # two of 2 layers are the same
    assert {each.layers for each in found} == {(0, 5), (0, 1, 5), (0, 2, 5), (1, 4)}
    assert {each.vocabulary for each in found} == {200, 400}
    [only, same, more] = Space(layers=((1, 4),), vocabularies=(0, 512, 4096, 200)).shapes(
        DistilTable(layers=(2, 3), vocabulary=9999), CONFIG
    )
    assert only == Shape((2, 3), 0)  # a head of all tokens, however that is said
    assert (same, more) == (Shape((1, 4), 0), Shape((1, 4), 200))


def test_without_being_told_it_takes_counts_that_the_target_has() -> None:
    found = Space().shapes(SETTINGS, CONFIG)
    assert {len(each.layers) for each in found[1:]} == {2, 4}
    small = tiny("llama-tied", num_hidden_layers=2).config
    found = Space(vocabularies=(300,)).shapes(DistilTable(layers=(1,)), small)
    assert found[1:] == [Shape((0,), 300)]  # what was asked for takes part


def test_layers_that_are_not_there_are_refused() -> None:
    for space, message in (
        (Space(counts=(2, 7)), "--count is 7, but the target has 6 layers"),
        (Space(layers=((0, 6),)), "--layers has 6, but the target's are 0 to 5"),
        (Space(layers=((3, 0),)), "--layers 3,0 must rise"),
    ):
        with pytest.raises(SpeccompileError, match=message):
            space.shapes(SETTINGS, CONFIG)
    with pytest.raises(SpeccompileError, match=r"distil\.layers has 9, but the target's are 0"):
        Space().shapes(DistilTable(layers=(0, 9)), CONFIG)
