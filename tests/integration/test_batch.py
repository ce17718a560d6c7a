"""Batches on real engines: every request gets, to the token, what it gets alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import numpy as np
import pytest

from speccompile.runtime.batch import BatchSession, Ticket
from speccompile.runtime.batch_engine import BatchEngine
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.suffix import SuffixDraft
from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.engines.opening_batch import open_batch_engine
from speccompile.runtime.engines.openvino_batch import PagedEngine
from speccompile.runtime.engines.turns import TurnsEngine
from speccompile.runtime.manifest import EngineInfo
from speccompile.runtime.request import Request
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.families import CONTEXT, tiny
from tests.lowered import tiny_engine

Backend = Literal["openvino", "onnxruntime"]

MODES = {
    "greedy": Sampling(),
    "sampled": Sampling(0.8, seed=3),
    "audited": Sampling(0.8, seed=3, audited=True),
}


@dataclass(frozen=True)
class Case:
    info: EngineInfo
    graph: Path
    single: Engine
    drafting: Engine
    """Of an int8 copy; for one sequence at a time."""

    def open(self, sequences: int = 4) -> BatchEngine[Any]:
        return open_batch_engine(self.info, self.graph, sequences=sequences, threads=1)

    def model(self) -> Draft:
        self.drafting.rollback(0)
        return ModelDraft(self.drafting)

    def four(self, sampling: Sampling) -> Iterator[Asked]:
        """Of different lengths and acceptance, the third ending early; one makes trees."""
        numbers = np.random.default_rng(5)
        texts = [[int(token) for token in numbers.integers(0, 512, 60)] for _ in range(4)]
        phrase = texts[1][:6]
        yield Asked(texts[0][:40], Request(24, sampling, 4), self.model)
        yield Asked(phrase * 5, Request(30, replace(sampling, seed=4)), NgramDraft)
        yield Asked(texts[2][:9], Request(5, sampling), lambda: None)
        yield Asked([*texts[3][:33], *texts[3][:20]], Request(30, sampling), SuffixDraft, wide)

    def alone(self, asked: Asked) -> list[int]:
        self.single.rollback(0)
        session = Session(self.single, asked.draft(), asked.controller())
        return list(session.generate(asked.prompt, asked.request))


@dataclass(frozen=True)
class Asked:
    prompt: list[int]
    request: Request
    draft: Callable[[], Draft | None]
    controller: Callable[[], Controller | None] = lambda: None

    def join(self, batch: BatchSession[Any]) -> Ticket:
        return batch.add(self.prompt, self.request, self.draft(), self.controller())


def wide() -> Controller:
    return FixedController(4, 8)


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Backend], Case]:
    def graph_of(family: str, backend: Backend, precision: str) -> tuple[EngineInfo, Path]:
        model, folder = tiny(family), tmp_path_factory.mktemp(f"{family}-{precision}")
        return tiny_engine(
            model, backend, folder, capacity=CONTEXT, precision=precision, min_rows=2
        )

    @cache
    def build(family: str, backend: Backend) -> Case:
        info, graph = graph_of(family, backend, "fp32")
        drafting = open_engine(*graph_of(family, backend, "int8"), threads=1)
        return Case(info, graph, open_engine(info, graph, threads=1), drafting)

    return build


@pytest.mark.parametrize("sampling", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize(
    ("family", "backend", "kind"),
    [
        ("llama", "openvino", PagedEngine),
        ("gemma2", "openvino", TurnsEngine),  # a softcap: not all of its attention is paged
        ("llama", "onnxruntime", TurnsEngine),
    ],
)
def test_each_of_four_gets_what_it_gets_alone(
    case_of: Callable[[str, Backend], Case],
    family: str,
    backend: Backend,
    kind: type,
    sampling: Sampling,
) -> None:
    case = case_of(family, backend)
    asked = list(case.four(sampling))
    engine = case.open()
    assert isinstance(engine, kind)
    batch = BatchSession(engine, rows=32)
    tickets = [each.join(batch) for each in asked[:3]]
    for _ in range(3):
        batch.step()
    tickets.append(asked[3].join(batch))
    list(batch.run())
    for ticket, each in zip(tickets, asked, strict=True):
        assert ticket.error is None
        assert _output(ticket) == case.alone(each)


@pytest.mark.parametrize("sampling", MODES.values(), ids=MODES.keys())
def test_who_is_put_off_gets_the_same(
    case_of: Callable[[str, Backend], Case], sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool of as many rows as one sequence may have, for four."""
    case = case_of("llama", "openvino")
    asked = list(case.four(sampling))
    engine = case.open(sequences=1)
    assert isinstance(engine, PagedEngine)
    opening = Mock(wraps=engine.open)
    monkeypatch.setattr(engine, "open", opening)
    batch = BatchSession(engine)
    tickets = [each.join(batch) for each in asked]
    list(batch.run())
    assert [_output(ticket) for ticket in tickets] == [case.alone(each) for each in asked]
    assert opening.call_count > 4
    assert engine.pool.free == engine.pool.pages


def test_a_shared_beginning_changes_no_token(case_of: Callable[[str, Backend], Case]) -> None:
    case = case_of("llama", "openvino")
    engine, text = case.open(), [(7 * index) % 500 for index in range(70)]
    reused: list[int] = []
    for ending, sampling in product([[1], [2, 3], [4, 5, 6]], MODES.values()):
        asked = Asked([*text, *ending], Request(12, sampling), NgramDraft)
        batch = BatchSession(engine)
        ticket = asked.join(batch)
        list(batch.run())
        reused.append(ticket.statistics.reused_tokens)
        assert _output(ticket) == case.alone(asked)
    assert reused == [0, *[64] * 8]


def _output(ticket: Ticket) -> list[int]:
    return ticket.tokens[ticket.statistics.prompt_tokens :]
