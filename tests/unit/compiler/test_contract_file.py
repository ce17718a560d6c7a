"""A contract apart from its weights: opened for lowering and run, from another folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from speccompile.compiler.contract_file import open_contract
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.weights import WEIGHTS_FILE
from speccompile.runtime.errors import EngineError

if TYPE_CHECKING:
    from tests.conftest import Contract


@pytest.fixture
def apart(contract_of: Callable[[str], Contract], tmp_path: Path) -> Path:
    """The graph alone."""
    return Path(shutil.copy(contract_of("int8").path, tmp_path / "graph.onnx"))


def test_weights_are_read_where_they_are(
    contract_of: Callable[[str], Contract], apart: Path
) -> None:
    contract = contract_of("int8")
    initializers = open_contract(apart, contract.folder).graph.initializers
    for name in contract.weights:
        stored = initializers[name].const_value
        assert stored is not None
        np.testing.assert_array_equal(stored.numpy(), contract.weights.array(name))


def test_runs_as_beside_them(
    contract_of: Callable[[str], Contract], apart: Path, tokens: list[int]
) -> None:
    contract = contract_of("int8")
    logits = ContractEngine(apart, contract.folder, threads=1).step(tokens)
    expected = ContractEngine(contract.path, threads=1).step(tokens)
    np.testing.assert_array_equal(logits, expected)


def test_a_folder_without_them_is_refused(apart: Path) -> None:
    assert not apart.with_name(WEIGHTS_FILE).exists()
    with pytest.raises(EngineError, match=r"\A.*graph\.onnx: not a contract.*\Z"):
        ContractEngine(apart)
