"""Rows and recommendations from hand-made measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from speccompile.compiler.assemble import Candidate, choose
from speccompile.compiler.comparison import Comparison, draft_rows, target_rows
from speccompile.compiler.quality import Quality
from speccompile.compiler.stages.lower import GRAPH_FILE, GRAPH_WEIGHTS_FILE
from speccompile.runtime.manifest import EngineInfo

QUALITY = Quality(100, 10.1, 10.0, 0.002, 0.95)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / GRAPH_FILE).write_bytes(b"1")
    (tmp_path / GRAPH_WEIGHTS_FILE).write_bytes(b"23")
    return tmp_path


def candidate(
    folder: Path,
    one: float,
    several: float,
    *,
    role: Literal["target", "draft"] = "target",
    backend: Literal["openvino", "onnxruntime"] = "openvino",
    min_rows: int = 1,
    shares_cache: bool = False,
    quality: Quality = QUALITY,
) -> Candidate:
    """An engine whose step costs `one` millisecond for a row, and `several` for more."""
    engine = EngineInfo(
        *(role, backend, GRAPH_FILE, "fp16", "fp32", 1, 1, 1, 4, 64),
        vocab_size=8,
        min_rows=min_rows,
        shares_cache=shares_cache,
    )
    return Candidate(
        engine, {rows: several if rows > 1 else one for rows in range(1, 10)}, {}, quality, folder
    )


def test_several_drafts_have_their_fastest_engines_and_one_shares_the_cache(folder: Path) -> None:
    def draft(
        backend: Literal["openvino", "onnxruntime"], ms: float, *, shares_cache: bool = False
    ) -> Candidate:
        return candidate(folder, ms, ms, role="draft", backend=backend, shares_cache=shares_cache)

    targets = [candidate(folder, 9, 10), candidate(folder, 9, 11, backend="onnxruntime")]
    sharing = [draft("openvino", 5, shares_cache=True), draft("onnxruntime", 4, shares_cache=True)]
    apart = [draft("openvino", 3), draft("onnxruntime", 2)]
    chosen = choose({"target": targets, "draft": sharing, "code": apart})
    # Its own target has the cheaper step, but half of all rounds are the sharer's.
    assert chosen == {"target": targets[1], "draft": sharing[1], "code": apart[1]}
    nearer = [sharing[0], draft("onnxruntime", 4.9, shares_cache=True)]
    chosen = choose({"target": targets, "draft": nearer, "code": apart})
    assert chosen == {"target": targets[0], "draft": sharing[0], "code": apart[1]}


def comparison(folder: Path, increases: dict[str, float], limit: float | None) -> Comparison:
    """Targets, each twice as fast as the one before, with these increases of perplexity."""
    measured = {
        name: [
            candidate(
                folder,
                2.0**-index,
                9.0,
                quality=replace(QUALITY, perplexity=10.0 * (1 + increase)),
            )
        ]
        for index, (name, increase) in enumerate(increases.items())
    }
    return Comparison("r", target_rows(measured, "fp16"), (), "", limit)


def test_exact_rows_come_before_speed_and_padding_is_paid(folder: Path) -> None:
    measured = {
        "fp32": [candidate(folder, 4, 8, min_rows=2), candidate(folder, 9, 9)],
        "int8": [candidate(folder, 1, 1, min_rows=0), candidate(folder, 5, 5)],
    }
    full, quantized = target_rows(measured, "int8")
    assert (full.cost_ms[1], full.min_rows, full.speedup, full.chosen) == (8, 2, 1.0, False)
    assert (quantized.cost_ms[1], quantized.chosen) == (5, True)
    assert quantized.speedup == 8 / 5
    assert quantized.perplexity_increase == pytest.approx(0.01)
    assert quantized.bytes == 3


def test_an_engine_that_is_never_exact_is_shown_where_there_is_no_other(folder: Path) -> None:
    [row] = target_rows({"int8": [candidate(folder, 3, 4, min_rows=0)]}, None)
    assert (row.min_rows, row.cost_ms[1]) == (0, 3)
    assert Comparison("r", (row,), (), "", 1.0).best_target is None


def test_the_draft_of_the_targets_own_weights(folder: Path) -> None:
    """It shares the cache, so the backend; its target in full precision is its own reference."""
    drafts = [
        candidate(folder, 1, 1, role="draft", backend="onnxruntime", shares_cache=True),
        candidate(folder, 2, 2, role="draft", shares_cache=True),
    ]
    [row] = draft_rows({"int8": drafts}, candidate(folder, 10, 10), "int8")
    assert (row.backend, row.acceptance, row.full_acceptance) == ("openvino", 0.95, 1.0)
    # k drafts of 2 ms and a step of 10 ms give 1 + 0.95 + ... + 0.95^k tokens.
    by_length = [sum(0.95**i for i in range(k + 1)) * 10 / (10 + 2 * k) for k in range(9)]
    assert row.draft_length == max(range(9), key=by_length.__getitem__) > 0
    assert row.predicted_speedup == pytest.approx(max(by_length))


def test_a_draft_that_costs_as_much_as_its_target_does_not_pay(folder: Path) -> None:
    quality = replace(QUALITY, acceptance=0.4, reference_acceptance=0.5)
    draft = candidate(folder, 10, 10, role="draft", quality=quality)
    rows = draft_rows({"fp32": [draft]}, candidate(folder, 10, 12, min_rows=2), None)
    assert (rows[0].acceptance, rows[0].full_acceptance) == (0.4, 0.5)
    assert (rows[0].draft_length, rows[0].predicted_speedup) == (0, 1.0)
    assert Comparison("r", (), rows, "", None).best_draft is None


def test_the_draft_with_the_highest_speedup_is_recommended(folder: Path) -> None:
    drafts = {
        name: [candidate(folder, cost, cost, role="draft")]
        for name, cost in (("fp16", 2.0), ("int8", 1.0), ("bf16", 1.5))
    }
    best = Comparison("r", (), draft_rows(drafts, candidate(folder, 9, 9), None), "", None)
    assert best.best_draft is not None
    assert best.best_draft.precision == "int8"


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, "fp16"), (0.001, "fp32"), (0.05, "int8"), (-0.5, None)]
)
def test_the_fastest_target_within_the_limit(
    folder: Path, limit: float | None, expected: str | None
) -> None:
    """One per cent is the limit where the recipe sets none."""
    best = comparison(folder, {"fp32": 0.0, "fp16": 0.009, "int8": 0.04}, limit).best_target
    assert (best and best.precision) == expected
