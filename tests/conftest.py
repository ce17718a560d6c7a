"""A tiny Llama of random weights: as transformers runs it, and as a contract in any precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from speccompile.compiler.contract import build_contract
from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.weights import Weights
from tests.llama import transformers_llama

if TYPE_CHECKING:  # imported where used: they take seconds, which most tests need not wait
    from transformers import LlamaForCausalLM

CAPACITY = 96


@dataclass(frozen=True)
class Tiny:
    """transformers' model, the oracle of the contract, and its dimensions in our words."""

    model: LlamaForCausalLM
    config: DecoderConfig

    def read(self, name: str) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self.model.state_dict()[name].numpy()
        return values

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """[N, V] of a whole sequence, computed without a cache."""
        import torch

        with torch.inference_mode():
            rows: NDArray[np.float32] = self.model(torch.tensor([tokens])).logits[0].numpy()
        return rows


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

        tiny = _tiny(self.tiny.config.tied_embeddings)
        with torch.no_grad():
            for name, parameter in tiny.model.named_parameters():
                parameter.copy_(torch.tensor(self.weights.dense(name)))
        return tiny


@pytest.fixture(scope="session")
def tokens() -> list[int]:
    """A sequence that fills the cache."""
    return [int(token) for token in np.random.default_rng(1).integers(0, 512, CAPACITY)]


@pytest.fixture(scope="session", params=[True, False], ids=["tied", "untied"])
def tiny(request: pytest.FixtureRequest) -> Tiny:
    return _tiny(request.param)


@pytest.fixture(scope="session")
def contract_of(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Contract]:
    """The contract of the tiny model in a precision, written once; not to be changed."""

    @cache
    def write(precision: str) -> Contract:
        contract = Contract(tiny, precision, tmp_path_factory.mktemp(precision))
        write_weights(tiny.config, tiny.read, precision, contract.folder)
        ir.save(contract.graph(), contract.path)
        return contract

    return write


def _tiny(tied: bool) -> Tiny:
    import torch

    config = DecoderConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=96,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=16,
        context_length=CAPACITY,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        tied_embeddings=tied,
    )
    torch.manual_seed(0)
    # Attention far from uniform, so that an error in it shows.
    model = transformers_llama(config, initializer_range=0.2)
    for name, parameter in model.named_parameters():
        if "norm" in name:  # all ones otherwise, and two norms could be exchanged unseen
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return Tiny(model, config)
