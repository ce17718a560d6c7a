"""Who drafts on an artifact of tables that has experts, and what is known of each at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.runtime import speculation
from speccompile.runtime.artifact import Artifact
from speccompile.runtime.control.adaptive import AdaptiveController
from speccompile.runtime.control.controller import FixedController
from speccompile.runtime.costmodel import Costs
from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.drafting.hedge import Hedge
from speccompile.runtime.errors import RequestError
from speccompile.runtime.measurements import Defaults
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Request
from speccompile.runtime.speculation import asked_models, make_controller
from tests.cuda import FakeGpu, give_gpus, give_library
from tests.table_artifact import FOLDER, TARGET, TablePlans, give_tables, write_artifact
from tests.unit.runtime.tables import greedy_ids

PROMPT = [1, 2, 3, 1, 2]
COSTS: Mapping[str, Costs] = {
    "target": {1: 10.0, 2: 10.0, 9: 12.0},
    "draft": {1: 4.0, 2: 4.0},
    "chat": {1: 1.0, 2: 1.0},
    "code": {1: 2.0, 2: 2.0},
}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    give_tables(monkeypatch)
    return Runner.open(write_artifact(tmp_path / "tiny", {}, ("code", "chat")))


def measured(runner: Runner, usual: str) -> Artifact:
    figures = replace(
        runner.measurements,
        cost_ms=COSTS,
        acceptance=(0.9, 0.9),
        experts={"chat": (0.6, 0.6), "code": (0.3, 0.3)},
        defaults=Defaults(usual, 3),
    )
    return replace(runner.artifact, measurements=figures)


def first_stands(artifact: Artifact, draft: str) -> float:
    asked = asked_models(draft, artifact.manifest)
    controller = make_controller(draft, artifact, asked, COSTS)
    assert isinstance(controller, AdaptiveController)
    assert controller.worth
    return controller.worth.stands


def test_those_that_can_draft(runner: Runner) -> None:
    assert runner.roles == ("target", "draft", "chat", "code")
    assert runner.drafts == (
        *("model", "chat", "code", "ngram", "suffix", "union", "hedge", "none"),
    )
    assert runner.models("code") == ("code",)
    assert runner.models("hedge") == ("draft", "chat", "code")
    assert runner.models("suffix") == ()


def test_without_a_model_the_text_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_tables(monkeypatch)
    runner = Runner.open(write_artifact(tmp_path / "tiny", {}))
    target = {"target": runner.manifest.engines["target"]}
    runner.manifest = replace(runner.manifest, engines=target)
    assert runner.drafts == ("ngram", "suffix", "none")


@pytest.mark.parametrize("draft", ["chat", "union", "hedge"])
def test_every_draft_says_what_the_target_says(runner: Runner, draft: str) -> None:
    for session in (
        runner.session(draft),
        runner.host_session(draft, FixedController(3, 9)),
    ):
        ids = list(session.generate(PROMPT, Request(24)))
        assert ids == greedy_ids(TARGET, PROMPT, 24)
        assert any(session.statistics.proposed)


def test_what_is_accepted_is_counted_by_expert(runner: Runner) -> None:
    session = runner.host_session("union", FixedController(3, 12))
    list(session.generate(PROMPT, Request(40)))
    assert set(session.statistics.sources) <= {"suffix", "model", "chat", "code"}
    assert session.statistics.sources["model"] + session.statistics.sources["chat"] > 0


def test_an_unknown_draft_is_refused_in_one_line(runner: Runner) -> None:
    with pytest.raises(RequestError) as refused:
        runner.session("cod")
    assert str(refused.value) == (
        "draft 'cod' is unknown; choose one of model, ngram, suffix, union, hedge, none, chat, code"
    )


def test_a_controller_begins_with_the_acceptance_of_its_draft(runner: Runner) -> None:
    artifact = measured(runner, "chat")
    stands = {draft: first_stands(artifact, draft) for draft in ("model", "chat", "code", "hedge")}
    assert stands["model"] > stands["chat"] > stands["code"]
    assert stands["hedge"] == stands["chat"]  # that which is best usually
    # What did not pay is not believed.
    unused = measured(runner, "none")
    assert len({first_stands(unused, draft) for draft in ("model", "chat", "code")}) == 1


def test_a_controller_charges_for_several_what_the_dearest_costs(runner: Runner) -> None:
    artifact = measured(runner, "chat")
    costs = {}
    for draft in ("model", "chat", "hedge", "union"):
        asked = asked_models(draft, artifact.manifest)
        controller = make_controller(draft, artifact, asked, COSTS)
        assert isinstance(controller, AdaptiveController)
        assert controller.worth
        costs[draft] = controller.worth.cost
    assert costs["hedge"] == costs["union"] == costs["model"] > costs["chat"]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[float] | None]:
    """The costs that every hedge is made with."""
    costs_given: list[Sequence[float] | None] = []

    def hedge(
        lookups: Sequence[Draft], models: Sequence[Draft], *, costs: Sequence[float] | None
    ) -> Hedge:
        costs_given.append(costs)
        return Hedge(lookups, models, costs=costs)

    monkeypatch.setattr(speculation, "Hedge", hedge)
    return costs_given


def test_a_hedge_knows_what_each_of_several_models_costs(
    runner: Runner, given: list[Sequence[float] | None]
) -> None:
    runner.draft("hedge")  # of which nothing is measured
    runner.artifact = measured(runner, "chat")
    runner.draft("hedge")
    assert given == [None, [3 * 4.0 / 10.0, 3 * 1.0 / 10.0, 3 * 2.0 / 10.0]]


def test_a_hedge_knows_what_its_only_model_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[Sequence[float] | None]
) -> None:
    """Were it free as the text is, the text would hardly ever be asked."""
    give_tables(monkeypatch)
    runner = Runner.open(write_artifact(tmp_path / "tiny", {}))
    figures = replace(runner.measurements, cost_ms=COSTS, defaults=Defaults("model", 3))
    runner.artifact = replace(runner.artifact, measurements=figures)
    runner.draft("hedge")
    assert given == [[3 * 4.0 / 10.0]]


def test_who_drafts_by_default_is_what_was_measured_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_tables(monkeypatch)
    runner = Runner.open(write_artifact(tmp_path / "tiny", {}))
    for usual in ("none", "ngram", "model", "hedge"):
        runner.measurements = replace(runner.measurements, defaults=Defaults(usual, 3))
        assert runner.usual_draft == usual
    asked = Request(24)
    said = list(runner.session().generate(PROMPT, asked))
    assert said == list(runner.session("none").generate(PROMPT, asked))


def test_experts_have_no_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))
    give_library(monkeypatch, "1.7.1.116")
    give_gpus(monkeypatch, FakeGpu())
    give_tables(monkeypatch)
    root = write_artifact(tmp_path / "tiny", experts=("code",))
    runner = Runner.open(root, on=FOLDER, open_plans=TablePlans())
    assert runner.drafts == ("model", "ngram", "suffix", "union", "hedge", "none")
    assert runner.models("union") == ("draft",)
    with pytest.raises(RequestError, match="code has no plans for GPUs; use --on cpu"):
        runner.session("code")
    runner.measurements = replace(runner.measurements, defaults=Defaults("code", 3))
    ids = list(runner.session().generate(PROMPT, Request(24)))
    assert ids == list(runner.session("model").generate(PROMPT, Request(24)))
