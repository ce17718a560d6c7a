"""Several sequences on one OpenVINO graph: a row has the bits that it has alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.runtime.batch_engine import Rows
from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.engines import openvino_batch
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.engines.openvino_batch import PagedEngine, PagedSequence
from speccompile.runtime.engines.openvino_feeds import Share, feeds
from speccompile.runtime.errors import EngineError, NoRoomError, RequestError
from speccompile.runtime.manifest import EngineInfo
from tests.families import CONTEXT, tiny
from tests.lowered import tiny_engine

PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
PAGES = 12
LENGTHS = [40, 3, 64, 33]  # of four prompts; a page has 32 rows
ROWS = [1, 5, 2, 1]
TREE = [-1, 0, 1, 0, 3, -1]


@dataclass(frozen=True)
class Case:
    info: EngineInfo
    graph: Path
    single: Engine
    """One sequence at a time, in the way that all artifacts run."""

    def open(self, pages: int = PAGES, *, min_rows: int = 2) -> PagedEngine:
        info = replace(self.info, min_rows=min_rows)
        return PagedEngine(info, self.graph, pages=pages, threads=1)

    def alone(
        self, given: Sequence[int], tokens: Sequence[int], parents: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        """The logits of `tokens` behind `given`."""
        self.single.rollback(0)
        if given:
            self.single.step(given, last=1)
        return self.single.step(tokens, parents=parents).copy()


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Case]:
    @cache
    def build(family: str, precision: str) -> Case:
        model, folder = tiny(family), tmp_path_factory.mktemp(family)
        info, path = tiny_engine(
            model, "openvino", folder, capacity=CONTEXT, precision=precision, min_rows=2
        )
        return Case(info, path, open_engine(info, path, threads=1))

    return build


@pytest.fixture(scope="module")
def case(case_of: Callable[[str, str], Case]) -> Case:
    return case_of("llama", "fp32")


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Four, each with eight tokens more than its length."""
    numbers = np.random.default_rng(3)
    return [[int(token) for token in numbers.integers(0, 512, size + 8)] for size in LENGTHS]


@PRECISIONS
def test_rows_of_a_batch_have_the_bits_of_each_alone(
    case_of: Callable[[str, str], Case], prompts: list[list[int]], precision: str
) -> None:
    case = case_of("llama", precision)
    engine = case.open()
    sequences = [engine.open() for _ in prompts]
    given = [prompt[:size] for prompt, size in zip(prompts, LENGTHS, strict=True)]
    _step(engine, sequences, given)
    asked = [
        prompt[size : size + rows]
        for prompt, size, rows in zip(prompts, LENGTHS, ROWS, strict=True)
    ]
    for logits, before, tokens in zip(_step(engine, sequences, asked), given, asked, strict=True):
        np.testing.assert_array_equal(logits, case.alone(before, tokens))


def test_a_lone_row_without_padding_has_others(case: Case, prompts: list[list[int]]) -> None:
    """What `min_rows` is for; and the comparison above sees the last bit."""
    engine = case.open(min_rows=1)
    sequences = [engine.open() for _ in prompts]
    _step(engine, sequences, [prompt[:-8] for prompt in prompts])
    lone = _step(engine, sequences, [prompt[-8:-7] for prompt in prompts])
    for logits, prompt in zip(lone, prompts, strict=True):
        expected = case.alone(prompt[:-8], prompt[-8:-7])
        assert not np.array_equal(logits, expected)
        np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_the_last_rows_alone_are_the_same(case: Case, prompts: list[list[int]]) -> None:
    engine = case.open()
    requests = [Rows(engine.open(), prompt, last=1) for prompt in prompts[:3]]
    for logits, prompt in zip(engine.step_many(requests), prompts, strict=False):
        np.testing.assert_array_equal(logits, case.alone(prompt[:-3], prompt[-3:])[-1:])


def test_a_sequence_is_an_engine(case: Case, prompts: list[list[int]]) -> None:
    sequence: Engine = case.open().open()
    prompt = prompts[0]
    sequence.step(prompt[:41])
    sequence.step(prompt[10:40])  # past a page
    sequence.rollback(41)
    np.testing.assert_array_equal(
        sequence.step(prompt[41:42]), case.alone(prompt[:41], [prompt[41]])
    )
    assert (sequence.length, sequence.capacity) == (42, CONTEXT - 1)
    with pytest.raises(RequestError, match=r"42 \+ 54 tokens pass the context of 95"):
        sequence.step([0] * 54)
    assert sequence.length == 42


def test_a_known_prompt_is_read_once(case: Case, prompts: list[list[int]]) -> None:
    engine, prompt = case.open(), prompts[2]
    first = engine.open(prompt)
    assert first.length == 0
    first.step(prompt)
    first.close()
    assert engine.pool.free == PAGES
    second, third = engine.open(prompt), engine.open(prompt[:64])
    assert (second.length, third.length) == (64, 32)  # its last token is for it to read
    assert second.table.pages[0] == third.table.pages[0]
    logits = _step(engine, [second, third], [prompt[64:], prompt[32:64]])
    np.testing.assert_array_equal(logits[0], case.alone(prompt[:64], prompt[64:]))
    np.testing.assert_array_equal(logits[1], case.alone(prompt[:32], prompt[32:64]))


def test_forks_write_apart(case: Case, prompts: list[list[int]]) -> None:
    engine, prompt, other = case.open(), prompts[0], prompts[2]
    first = engine.open()
    first.step(prompt[:40])
    forks = [first, first.fork(), first.fork()]
    asked = [prompt[40:45], other[:5], other[5:6]]
    for logits, tokens in zip(_step(engine, forks, asked), asked, strict=True):
        np.testing.assert_array_equal(logits, case.alone(prompt[:40], tokens))
    pages = {page for fork in forks for page in fork.table.pages}
    assert len(pages) == 4  # one of full rows that all share, and one for each
    for fork, tokens in zip(forks, asked, strict=True):
        again = fork.step(other[10:12])
        np.testing.assert_array_equal(again, case.alone([*prompt[:40], *tokens], other[10:12]))


def test_a_fork_whose_page_is_not_copied_is_found(
    case: Case, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, prompt = case.open(), prompts[0]
    first = engine.open()
    first.step(prompt[:40])
    monkeypatch.setattr(engine, "_caches", [])
    logits = first.fork().step(prompt[40:42])
    assert not np.allclose(logits, case.alone(prompt[:40], prompt[40:42]), atol=1e-3)


def test_a_tree_beside_chains(case: Case, prompts: list[list[int]]) -> None:
    engine = case.open()
    sequences = [engine.open() for _ in prompts]
    _step(engine, sequences, [prompt[:-8] for prompt in prompts])
    parents = [None, TREE, None, TREE]
    asked = [prompt[-8:-2] for prompt in prompts]
    requests = [Rows(*each) for each in zip(sequences, asked, parents, strict=True)]
    answers = engine.step_many(requests)
    for logits, prompt, tokens, tree in zip(answers, prompts, asked, parents, strict=True):
        np.testing.assert_array_equal(logits, case.alone(prompt[:-8], tokens, tree))
    with pytest.raises(ValueError, match="rows from 6 on are of a tree"):
        sequences[1].step([0])
    sequences[1].rollback(6)
    tokens = prompts[1][:2]
    expected = case.alone(prompts[1][:6], tokens)
    np.testing.assert_array_equal(sequences[1].step(tokens), expected)


def test_a_batch_that_finds_no_page_changes_nothing(case: Case, prompts: list[list[int]]) -> None:
    engine = case.open(pages=4)
    first, second = engine.open(), engine.open()
    _step(engine, [first, second], [prompts[0][:31], prompts[2][:63]])
    with pytest.raises(NoRoomError, match=r"needs 1 more pages of 32 rows and 0 of 4 are free"):
        _step(engine, [first, second], [prompts[0][31:33], prompts[2][63:68]])
    assert (first.length, second.length, engine.pool.free) == (31, 63, 1)
    np.testing.assert_array_equal(
        first.step(prompts[0][31:33]), case.alone(prompts[0][:31], prompts[0][31:33])
    )


def test_what_fails_in_the_graph_is_said(
    case: Case, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenVINO's `infer` would return the logits of the step before."""
    engine = case.open()
    sequence = engine.open()
    sequence.step(prompts[0][:40])

    def wrong(shares: Sequence[Share], min_rows: int) -> dict[str, NDArray[np.generic]]:
        return {**feeds(shares, min_rows), "block_indices_begins": np.zeros(4, np.int32)}

    with monkeypatch.context() as patch:
        patch.setattr(openvino_batch, "feeds", wrong)
        with pytest.raises(
            EngineError, match=r"\AOpenVINO failed on the rows of 1 sequences: .+\Z"
        ):
            sequence.step(prompts[0][40:42])
    assert sequence.length == 40
    np.testing.assert_array_equal(
        sequence.step(prompts[0][40:42]), case.alone(prompts[0][:40], prompts[0][40:42])
    )


def test_attention_without_pages_is_refused(case_of: Callable[[str, str], Case]) -> None:
    with pytest.raises(EngineError, match="not paged; decode one sequence at a time"):
        case_of("gemma2", "fp32").open()


def test_a_sequence_takes_part_once(case: Case) -> None:
    sequence = case.open().open()
    with pytest.raises(ValueError, match="once"):
        _step(sequence.engine, [sequence, sequence], [[1], [2]])


def test_any_mix_reads_its_own_rows(case: Case) -> None:
    """Rounds, roll-backs, forks, ends and new prompts; every row as a fresh engine computes it."""
    numbers, engine = random.Random(0), case.open()
    texts = [[numbers.randrange(512) for _ in range(CONTEXT)] for _ in range(2)]
    live: list[tuple[PagedSequence, list[int]]] = []
    recalled = 0
    for _ in range(60):
        if len(live) < 3:
            prompt = numbers.choice(texts)[: numbers.randint(30, 70)]
            sequence = engine.open(prompt)
            recalled += sequence.length
            sequence.step(prompt[sequence.length :], last=1)
            live.append((sequence, prompt))
        batch = numbers.sample(live, numbers.randint(1, len(live)))
        asked = [[numbers.randrange(512) for _ in range(numbers.randint(1, 5))] for _ in batch]
        answers = _step(engine, [sequence for sequence, _ in batch], asked)
        for logits, (sequence, tokens), rows in zip(answers, batch, asked, strict=True):
            np.testing.assert_array_equal(logits, case.alone(tokens, rows))
            kept = numbers.randint(0, len(rows))
            sequence.rollback(len(tokens) + kept)
            tokens += rows[:kept]
        sequence, tokens = numbers.choice(live)
        if len(live) < 4 and numbers.random() < 0.3:
            live.append((sequence.fork(), list(tokens)))
        elif len(tokens) > 80 or numbers.random() < 0.3:
            sequence.close()
            live = [each for each in live if each[0] is not sequence]
    assert recalled >= 100
    for sequence, _ in live:
        sequence.close()
    assert engine.pool.free == PAGES


def _step(
    engine: PagedEngine, sequences: Sequence[PagedSequence], rows: Sequence[Sequence[int]]
) -> list[Logits]:
    requests = [Rows(sequence, tokens) for sequence, tokens in zip(sequences, rows, strict=True)]
    return engine.step_many(requests)
