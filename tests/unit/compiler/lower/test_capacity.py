from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speccompile.compiler.lower.capacity import capacity_of
from speccompile.compiler.lower.passes import LoweringError, run_passes
from tests.unit.compiler.lower.graphs import (
    CAPACITY,
    CONFIG,
    STORAGES,
    TOKENS,
    contract,
    logits,
    write,
)


def test_a_smaller_cache_gives_the_same_values(tmp_path: Path) -> None:
    config = replace(CONFIG, kinds=(replace(CONFIG.kinds[0], window=6),))
    write(tmp_path, STORAGES["fp32"], config)
    expected = logits(contract(tmp_path, config), tmp_path)
    model = contract(tmp_path, config)
    slots = len(TOKENS)
    # Two layers' caches, coming in and going out, and the mask.
    assert run_passes(model, [capacity_of(slots)]) == {f"capacity_{slots}": 9}
    for value in (*model.graph.inputs, *model.graph.outputs):
        assert value.shape is not None
        assert CAPACITY not in value.shape
    np.testing.assert_allclose(logits(model, tmp_path), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("slots", [0, CAPACITY + 1])
def test_more_than_the_contract_has_is_refused(tmp_path: Path, slots: int) -> None:
    write(tmp_path, STORAGES["fp32"])
    with pytest.raises(LoweringError, match=rf"32 slots, which cannot become {slots}; choose"):
        run_passes(contract(tmp_path), [capacity_of(slots)])
