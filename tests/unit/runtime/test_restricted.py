"""Whole rows of a head that computes some tokens: the others have no probability at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from speccompile.plugins.laws import Sampling as Filters
from speccompile.plugins.laws import law
from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.engine import CacheSharer, Logits
from speccompile.runtime.engines.padded import PaddedEngine
from speccompile.runtime.engines.restricted import RestrictedEngine, read_token_ids
from speccompile.runtime.errors import EngineError
from speccompile.runtime.request import Request
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.building import RecordedDraft
from tests.unit.runtime.tables import VOCABULARY, TableEngine, greedy_ids, make_table

TABLE = make_table(3)
TOKENS = [1, 5, 0, 7, 2]
IDS = np.array([0, 2, 3, 6], np.int32)
OTHERS = np.setdiff1d(np.arange(VOCABULARY), IDS)


class NarrowEngine(TableEngine):
    """Computes the columns `IDS`, on the cache of another engine if it is told to."""

    def __init__(self, capacity: int = 64) -> None:
        super().__init__(TABLE, capacity)
        self.owner: TableEngine | None = None

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        return super().step(tokens, parents=parents, last=last)[:, IDS]

    def adopt(self, length: int) -> None:
        assert self.owner is not None
        assert self.owner.length == length
        self.rollback(0)
        super().step(self.owner.rows)


@pytest.mark.parametrize("last", [None, 1, 2])
def test_kept_tokens_have_their_logits_and_others_none(last: int | None) -> None:
    whole = TableEngine(TABLE).step(TOKENS, last=last)
    rows = RestrictedEngine(NarrowEngine(), IDS, VOCABULARY).step(TOKENS, last=last)
    assert rows.dtype == np.float32
    assert np.array_equal(rows[:, IDS], whole[:, IDS])
    assert np.isneginf(rows[:, OTHERS]).all()


def test_more_rows_and_then_fewer_are_those_of_each_step() -> None:
    whole, engine = TableEngine(TABLE), RestrictedEngine(NarrowEngine(), IDS, VOCABULARY)
    for tokens in (TOKENS[:1], TOKENS[1:4], TOKENS[4:]):
        expected, rows = whole.step(tokens), engine.step(tokens)
        assert rows.shape == (len(tokens), VOCABULARY)
        assert np.array_equal(rows[:, IDS], expected[:, IDS])
        assert np.isneginf(rows[:, OTHERS]).all()
    assert engine.length == whole.length == 5
    engine.rollback(2)
    assert engine.length == engine.engine.length == 2


def test_a_step_of_no_more_rows_makes_no_array() -> None:
    engine = RestrictedEngine(NarrowEngine(), IDS, VOCABULARY)
    first = engine.step(TOKENS)
    assert np.shares_memory(first, engine.step(TOKENS[:2]))


def test_a_tree_and_padding_reach_the_engine() -> None:
    engine = PaddedEngine(RestrictedEngine(NarrowEngine(), IDS, VOCABULARY), 3)
    rows = engine.step([1, 5], parents=[-1, -1])
    expected = TableEngine(TABLE).step([1, 5], parents=[-1, -1])
    assert rows.shape == (2, VOCABULARY)
    assert np.array_equal(rows[:, IDS], expected[:, IDS])
    assert engine.length == 2


@pytest.mark.parametrize("filters", [Filters(), Filters(1.0), Filters(0.7, 2, 0.9, 0.01)], ids=str)
def test_its_law_is_that_of_the_kept_tokens_alone(filters: Filters) -> None:
    narrow = TableEngine(TABLE).step(TOKENS, last=1)[0][IDS]
    row = RestrictedEngine(NarrowEngine(), IDS, VOCABULARY).step(TOKENS, last=1)[0]
    expected, found = law(narrow, filters), law(row, filters)
    assert expected is not None
    assert found is not None
    assert np.array_equal(found[IDS], expected)
    assert not found[OTHERS].any()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, audited=True)], ids=str)
@pytest.mark.parametrize("restricted", [True, False])
def test_it_drafts_in_the_targets_cache_and_changes_no_output(
    sampling: Sampling, restricted: bool
) -> None:
    request = Request(max_new_tokens=40, sampling=sampling, draft_length=3)
    plain = list(Session(TableEngine(TABLE)).generate(TOKENS, request))
    target = TableEngine(TABLE)
    draft = RecordedDraft(SharedCacheDraft(_sharer(target, restricted=restricted), target))
    assert list(Session(target, draft).generate(TOKENS, request)) == plain
    proposed = {token for _, tokens in draft.proposals for token in tokens}
    assert not proposed.isdisjoint(IDS.tolist())
    # Without the restriction the same draft proposes what it may not.
    assert proposed.isdisjoint(OTHERS.tolist()) == restricted
    if not sampling.temperature:
        assert plain == greedy_ids(TABLE, TOKENS, 40)


def test_it_can_share_a_cache_where_padding_cannot() -> None:
    engine = RestrictedEngine(NarrowEngine(), IDS, VOCABULARY)
    assert isinstance(engine, CacheSharer)
    assert not isinstance(PaddedEngine(engine, 2), CacheSharer)


def test_token_ids_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "token_ids.bin"
    path.write_bytes(IDS.astype("<i4").tobytes())
    assert path.read_bytes()[4:8] == b"\2\0\0\0"
    ids = read_token_ids(path, VOCABULARY)
    assert ids.dtype == np.int32
    assert ids.tolist() == IDS.tolist()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        IDS.astype("<i4").tobytes()[:-1],
        np.array([0, 2, 2], "<i4").tobytes(),
        np.array([2, 1], "<i4").tobytes(),
        np.array([-1, 1], "<i4").tobytes(),
        np.array([0, VOCABULARY], "<i4").tobytes(),
    ],
    ids=["empty", "cut", "twice", "falling", "negative", "beyond"],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token_ids.bin"
    path.write_bytes(content)
    with pytest.raises(EngineError, match=r"rising token ids below 8; build the artifact again"):
        read_token_ids(path, VOCABULARY)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"gone\.bin: cannot be read: No such file"):
        read_token_ids(tmp_path / "gone.bin", VOCABULARY)


class WideEngine(NarrowEngine):
    """Computes all columns."""

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        return TableEngine.step(self, tokens, parents=parents, last=last)


def _sharer(target: TableEngine, *, restricted: bool) -> CacheSharer:
    engine = NarrowEngine() if restricted else WideEngine()
    engine.owner = target
    return RestrictedEngine(engine, IDS, VOCABULARY) if restricted else engine
