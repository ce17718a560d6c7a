"""A tiny Llama of random weights: as transformers runs it, and as a contract in any precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.contract import build_contract
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.weights import Weights
from tests.families import CONTEXT, Tiny, tiny

CAPACITY = CONTEXT


@dataclass(frozen=True)
class Contract:
    """A contract on disk, ``folder/model.onnx`` beside its weights."""

    tiny: Tiny
    precision: str
    folder: Path

    @property
    def weights(self) -> Weights:
        return Weights(self.folder)

    @property
    def path(self) -> Path:
        return self.folder / "model.onnx"

    def graph(self) -> ir.Model:
        """The contract to be lowered, a new one each time."""
        return build_contract(self.tiny.config, self.weights, CAPACITY)

    def dense(self) -> Tiny:
        """transformers' model of the same weights, in fp32."""
        import torch

        dense = _llama(self.tiny.config.tied_embeddings)
        with torch.no_grad():
            for name, parameter in dense.model.named_parameters():
                parameter.copy_(torch.tensor(self.weights.dense(name)))
        return dense


@pytest.fixture(scope="session")
def tokens() -> list[int]:
    """A sequence that fills the cache."""
    return [int(token) for token in np.random.default_rng(1).integers(0, 512, CAPACITY)]


@pytest.fixture(scope="session", params=[True, False], ids=["tied", "untied"])
def llama(request: pytest.FixtureRequest) -> Tiny:
    return _llama(request.param)


@pytest.fixture(scope="session")
def contract_of(llama: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Contract]:
    """The contract of the tiny model in a precision, written once; not to be changed."""

    @cache
    def write(precision: str) -> Contract:
        contract = Contract(llama, precision, tmp_path_factory.mktemp(precision))
        write_weights(llama.config, llama.read, precision, contract.folder)
        ir.save(contract.graph(), contract.path)
        return contract

    return write


def _llama(tied: bool) -> Tiny:
    return tiny("llama-tied" if tied else "llama")
