from dataclasses import dataclass, field

import pytest

from speccompile.runtime.bench.variants import DEPTHS, FAMILIES, PLAIN, Lineup, line_up
from speccompile.runtime.control.controller import Controller, FixedController, Outcome
from speccompile.runtime.control.policies import POLICIES, PolicyController
from speccompile.runtime.drafting.draft import Effort

DRAFTERS = ("model", "ngram", "suffix")


@dataclass
class Branching:
    """Always the same tree; counts what it is told."""

    draft: str
    told: list[str] = field(default_factory=list[str])

    def start(self) -> None:
        self.told.append("start")

    def effort(self, room: int) -> Effort | None:
        return Effort(3, 5, branches={0: 2, 1: 2}) if room else None

    def learn(self, outcome: Outcome) -> None:
        self.told.append("learn")


class Drafting:
    def controller(self, draft: str) -> Controller:
        return Branching(draft)


def lineup(*families: str, length: int = 5, trees: bool = True) -> Lineup:
    return line_up(
        Drafting(), families, draft="model", length=length, drafters=DRAFTERS, trees=trees
    )


def names(found: Lineup) -> list[str]:
    return [variant.name for variant in found.variants]


@pytest.mark.parametrize("families", [(), *((family,) for family in FAMILIES), FAMILIES])
def test_plain_and_the_fixed_length_are_always_there_and_names_are_unique(
    families: tuple[str, ...],
) -> None:
    found = lineup(*families)
    assert found.variants[0] is PLAIN
    assert found.fixed == "K=5"
    assert found.fixed in names(found)
    assert len(set(names(found))) == len(found.variants)
    assert set(found.static) <= set(names(found))
    assert found.adaptive is None or found.adaptive in names(found)


def test_depths_are_chains_among_which_the_artifact_s_own_has_its_place() -> None:
    found = lineup("depths", length=7)
    lengths = sorted([*DEPTHS, 7])
    assert found.static == tuple(f"K={length}" for length in lengths)
    assert names(found) == ["plain", *found.static]
    controllers = [variant.controller for variant in found.variants[1:]]
    assert controllers == [FixedController(length) for length in lengths]
    assert found.adaptive is None


def test_without_depths_there_is_no_best_one() -> None:
    assert lineup("controller").static == ()
    assert names(lineup("controller")) == ["plain", "K=5", "adaptive"]


def test_trees_are_fixed_or_those_of_the_controller_with_and_without_branches() -> None:
    found = lineup("trees")
    assert names(found) == [
        *("plain", "K=5", "tree 2/4", "tree 4/8", "tree 6/15"),
        *("adaptive, chains", "adaptive"),
    ]
    assert found.variants[3].controller == FixedController(4, 8)
    chains = found.variants[5].controller
    assert chains is not None
    assert chains.effort(9) == Effort(3, 3)
    assert chains.effort(0) is None


def test_drafters_adapt_each_for_itself() -> None:
    found = lineup("drafters")
    pairs = [(variant.name, variant.draft) for variant in found.variants[2:]]
    assert pairs == [
        *(("adaptive", "model"), ("adaptive ngram", "ngram"), ("adaptive suffix", "suffix")),
    ]
    for variant in found.variants[2:]:
        assert isinstance(variant.controller, Branching)
        assert variant.controller.draft == variant.draft


def test_policies_are_tried_each_alone_and_all_on_what_is_fixed_and_what_adapts() -> None:
    found = lineup("policies")
    each = [f"K=5 {policy.name}" for policy in POLICIES]
    assert names(found) == [
        *("plain", "K=5", "adaptive", *each),
        *("K=5 all policies", "adaptive, all policies"),
    ]
    controllers = [variant.controller for variant in found.variants[3:]]
    assert all(isinstance(controller, PolicyController) for controller in controllers)
    assert len({id(controller) for controller in controllers}) == len(controllers)


def test_where_no_trees_are_taken_all_proposals_are_chains() -> None:
    found = lineup(*FAMILIES, trees=False)
    assert not any("tree" in name or name == "adaptive, chains" for name in names(found))
    efforts = {
        variant.name: variant.controller.effort(9)
        for variant in found.variants
        if variant.controller
    }
    assert efforts.keys() == {*names(found)} - {"plain"}
    assert efforts["adaptive"] == Effort(3, 3)
    assert all(effort and effort.nodes == effort.depth for effort in efforts.values())
