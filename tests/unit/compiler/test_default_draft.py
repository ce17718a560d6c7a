"""Which draft proposes by default, by figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speccompile.compiler.default_draft import default_draft
from speccompile.runtime.costmodel import Costs
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.measurements import Defaults
from tests.unit.runtime.test_manifest import CODE, DRAFT, MANIFEST, TARGET

EXPERTS = replace(MANIFEST, engines={"target": TARGET, "draft": DRAFT, "code": CODE})
FLAT: Costs = dict.fromkeys(range(1, 10), 10.0)
FREE = {"draft": None, "code": None}


@pytest.mark.parametrize(
    ("draft_ms", "code_ms", "draft", "code", "expected"),
    [
        (1.0, 1.0, 0.5, 0.9, "code"),
        (1.0, 1.0, 0.9, 0.5, "model"),
        (1.0, 1.0, 0.5, 0.5, "model"),  # the first of equals
        (5.0, 0.5, 0.9, 0.8, "code"),  # less often right, but cheaper
        (9.0, 9.0, 0.2, 0.2, "none"),
    ],
)
def test_the_fastest_drafts(
    draft_ms: float, code_ms: float, draft: float, code: float, expected: str
) -> None:
    costs = {"target": FLAT, "draft": {1: draft_ms}, "code": {1: code_ms}}
    acceptance = {"draft": (draft,), "code": (code,)}
    found = default_draft(EXPERTS, costs, acceptance, FREE)
    assert found.draft == expected
    assert (found.draft_length == 0) == (expected == "none")


def test_a_fixed_length_is_kept_and_judged_as_it_is() -> None:
    costs: dict[str, Costs] = {"target": FLAT, "draft": {1: 1.0, 2: 1.0}, "code": {1: 1.0, 2: 1.0}}
    acceptance = {"draft": (0.8,), "code": (0.9,)}
    # 1 + .9 tokens in 11 ms; the draft brings 1 + .8 + .64 in 12.
    fixed = {"draft": 2, "code": 1}
    assert default_draft(EXPERTS, costs, acceptance, fixed) == Defaults("model", 2)
    assert default_draft(EXPERTS, costs, acceptance, fixed | {"code": 2}) == Defaults("code", 2)


def test_the_text_takes_turns_with_a_single_model_that_nothing_is_tuned_to() -> None:
    costs, acceptance = {"target": FLAT, "draft": {1: 1.0}}, {"draft": (0.9,)}
    only = replace(MANIFEST, engines={"target": TARGET, "draft": DRAFT})

    def chosen(manifest: Manifest, **tuned: bool) -> str:
        return default_draft(manifest, costs, acceptance, {"draft": 1}, **tuned).draft

    assert chosen(only) == "hedge"
    assert chosen(only, tuned=True) == "model"
    source = replace(only, model=replace(only.model, start_token_id=0))
    assert chosen(source) == "model"  # the answer repeats nothing of it
