"""A draft of some of a target's layers works in their caches, and what is said stays the target's.

Trees are for engines that take them: OpenVINO counts the windows of gemma3 in slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from speccompile.compiler.decoder import of_layers, tensor_shapes
from speccompile.compiler.drafts.decoder import Context, Decoder, KeyValues
from speccompile.runtime.control.chains import ChainController
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.engine import CacheSharer, Engine
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Request, Session
from tests.families import CONTEXT, tiny
from tests.lowered import Backend, sharing_engine, tiny_engine

LAYERS = (1, 3)
"""Neither the first of a target nor the last, nor all."""

# Rotated in the operator; normed queries; some layers sliding; none but some, with a softcap.
SIZES = {"llama": 5, "qwen3": 5, "gemma3": 6, "gemma2": 5}
FAMILIES = pytest.mark.parametrize("family", SIZES)
BACKENDS = pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
CHAINS, TREES = ChainController(FixedController(3)), FixedController(3, 8)
SHAPES = pytest.mark.parametrize("controller", [CHAINS, TREES], ids=["chains", "trees"])
PROMPTS = [np.random.default_rng(seed).integers(3, 512, 5 + 7 * seed).tolist() for seed in range(4)]
TOLERANCE = 1e-4  # of the largest logit
OTHER = 1e-2  # what other keys change at least


class Case(NamedTuple):
    info: EngineInfo
    graph: Path
    target: Engine
    drafts: EngineInfo
    shared: Path

    def draft(self) -> CacheSharer:
        engine = open_engine(self.drafts, self.shared, threads=1, cache_of=self.target)
        assert isinstance(engine, CacheSharer)
        return engine


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Backend], Case]:
    @cache
    def build(family: str, backend: Backend) -> Case:
        model = tiny(family, num_hidden_layers=SIZES[family])
        folders = [tmp_path_factory.mktemp(f"{family}-{role}") for role in ("target", "draft")]
        info, graph = tiny_engine(model, backend, folders[0], capacity=CONTEXT, min_rows=2)
        drafts, shared = sharing_engine(model, LAYERS, backend, folders[1], capacity=CONTEXT)
        return Case(info, graph, open_engine(info, graph, threads=1), drafts, shared)

    return build


@BACKENDS
@FAMILIES
def test_its_rows_see_the_targets_and_its_own(
    case_of: Callable[[str, Backend], Case], tokens: list[int], family: str, backend: Backend
) -> None:
    """As it is trained: keys and values of the target's layers up to the root, then its own."""
    case = case_of(family, backend)
    draft = case.draft()
    case.target.rollback(0)
    case.target.step(tokens[:40])
    draft.adopt(40)
    rows = draft.step(tokens[40:44]).copy()
    expected = _expected(family, tokens[:44], 40)
    assert np.abs(rows - expected).max() <= TOLERANCE * np.abs(expected).max()
    alone = open_engine(replace(case.drafts, shares_cache=False), case.shared, threads=1)
    alone.step(tokens[:40])
    assert np.abs(alone.step(tokens[40:44]) - expected).max() >= OTHER * np.abs(expected).max()


@BACKENDS
@FAMILIES
def test_what_it_wrote_is_written_again(
    case_of: Callable[[str, Backend], Case], tokens: list[int], family: str, backend: Backend
) -> None:
    case = case_of(family, backend)
    draft, target = case.draft(), case.target

    def behind(adopted: int) -> NDArray[np.float32]:
        target.rollback(0)
        target.step(tokens[:40])
        draft.adopt(adopted)
        draft.step(tokens[50:60])  # wrong guesses
        return target.step(tokens[40:50]).copy()

    target.rollback(0)
    target.step(tokens[:40])
    expected = target.step(tokens[40:50]).copy()
    np.testing.assert_array_equal(behind(40), expected)
    assert not np.array_equal(behind(38), expected)  # in slots that the target has committed


@BACKENDS
@FAMILIES
@SHAPES
@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "audited"])
def test_output_is_that_of_plain_decoding(
    case_of: Callable[[str, Backend], Case],
    family: str,
    backend: Backend,
    controller: Controller,
    temperature: float,
) -> None:
    case = case_of(family, backend)
    if controller is TREES and not case.target.takes_trees:
        pytest.skip("its windows take chains only")
    sampling = Sampling(temperature, audited=True, seed=5)
    request = Request(40, sampling=sampling)
    stood = tried = 0
    for prompt in PROMPTS:
        plain = _said(Session(case.target), prompt, request)
        draft = SharedCacheDraft(case.draft(), case.target)
        session = Session(case.target, draft, controller)
        assert _said(session, prompt, request) == plain
        stood += sum(session.statistics.accepted)
        tried += sum(session.statistics.proposed)
    assert tried
    assert stood < tried or family == "gemma2"  # whose random model repeats itself


class _Careless(SharedCacheDraft):
    """Writes over the row before the root, which no verification writes again."""

    def _catch_up(self, tokens: Sequence[int]) -> list[int]:
        super()._catch_up(tokens)
        self._sharer.adopt(self._target.length - 1)
        return list(tokens[self._target.length - 1 :])


@BACKENDS
@SHAPES
def test_a_draft_that_writes_elsewhere_is_noticed(
    case_of: Callable[[str, Backend], Case], backend: Backend, controller: Controller
) -> None:
    case, request = case_of("llama", backend), Request(40)
    differing = 0
    for prompt in PROMPTS:
        plain = _said(Session(case.target), prompt, request)
        careless = _Careless(case.draft(), case.target)
        session = Session(case.target, careless, controller)
        differing += _said(session, prompt, request) != plain
    assert differing


@BACKENDS
def test_caches_that_the_target_lacks_are_refused(
    case_of: Callable[[str, Backend], Case], tmp_path: Path, backend: Backend
) -> None:
    model = tiny("llama", num_hidden_layers=9)
    drafts, graph = sharing_engine(model, (2, 8), backend, tmp_path, capacity=CONTEXT)
    target = case_of("llama", backend).target
    with pytest.raises(EngineError, match=r"target has no key_cache\.8; build the artifact again"):
        open_engine(drafts, graph, threads=1, cache_of=target)


def _said(session: Session, prompt: Sequence[int], request: Request) -> list[int]:
    return list(session.generate(prompt, request))


@torch.inference_mode()
def _expected(family: str, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
    """Rows from `start` on of the layers in torch, behind the target's own."""
    model = tiny(family, num_hidden_layers=SIZES[family])
    tensors = {name: torch.tensor(model.read(name)) for name in tensor_shapes(model.config)}
    target = Decoder(model.config, tensors)
    text, count = torch.tensor([tokens]), len(tokens)
    read = KeyValues.of(model.config, 1, count, torch.float32)
    target.hidden(text, cache=read)
    config = replace(
        model.config, layer_kinds=tuple(model.config.layer_kinds[layer] for layer in LAYERS)
    )
    draft = Decoder(config, {n: tensors[of_layers(n, LAYERS)] for n in tensor_shapes(config)})
    seen = (torch.arange(count) < start).expand(count, -1) & (torch.arange(count) >= start)[:, None]
    chosen = list(LAYERS)
    context = Context(read.keys[chosen].unbind(), read.values[chosen].unbind(), seen)
    rows: NDArray[np.float32] = draft.logits(draft.hidden(text, context=context))[0].numpy()
    return rows[start:]
