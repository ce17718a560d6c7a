"""In simulated worlds, whose seeds are fixed and whose time is that of tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from speccompile.runtime.control.adaptive import AdaptiveController
from speccompile.runtime.control.controller import FixedController, Outcome
from speccompile.runtime.control.costs import RoundCosts
from speccompile.runtime.control.survival import Survival
from speccompile.runtime.costmodel import Costs
from speccompile.runtime.drafting.draft import Effort
from tests.unit.runtime.control.world import (
    CHEAP,
    COSTLY,
    SMOL,
    Machine,
    Run,
    World,
    best_static,
    decode,
    plain,
    steady,
    switching,
)

MACHINES = {"smol": SMOL, "cheap": CHEAP, "costly": COSTLY}
TOKENS = 2000


def adaptive(
    machine: Machine, *acceptance: float, target: Costs | None = None
) -> AdaptiveController:
    costs = RoundCosts(machine.target if target is None else target, machine.draft)
    return AdaptiveController(costs, Survival(acceptance))


def run(world: World, *acceptance: float, tokens: int = TOKENS, requests: int = 1) -> Run:
    controller = adaptive(world.machine, *acceptance)
    return decode(world, controller, tokens, requests=requests)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("acceptance", [0.0, 0.05])
def test_hostile_text_costs_at_most_three_per_cent(machine: Machine, acceptance: float) -> None:
    world = World(machine, steady(acceptance))
    assert plain(machine, TOKENS) / run(world).seconds >= 0.97
    # One short request, after measurements that promised much.
    assert plain(machine, 128) / run(world, 0.95, tokens=128).seconds >= 0.97
    # Many of them.
    assert plain(machine, 10 * 64) / run(world, tokens=64, requests=10).seconds >= 0.97
    # A depth that does not adapt loses far more.
    fixed = decode(world, FixedController(5), TOKENS).seconds
    assert plain(machine, TOKENS) / fixed < 0.97


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_text_that_turns_hostile_costs_little_more_than_it_won(machine: Machine) -> None:
    world = World(machine, lambda position: 0.95 if position < 300 else 0.0)
    easy = run(world, tokens=300).seconds
    # 1.5 % for ever, and ten steps of those won, give or take a round.
    assert run(world, tokens=1300).seconds <= easy + plain(machine, 1015 + 10 + 1)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("acceptance", [0.6, 0.8, 0.95])
def test_steady_text_is_decoded_as_by_the_best_depth(machine: Machine, acceptance: float) -> None:
    worlds = [World(machine, steady(acceptance), seed=seed) for seed in range(2)]
    best = sum(best_static(world, TOKENS) for world in worlds)
    assert best / sum(run(world).seconds for world in worlds) >= 0.98


@pytest.mark.parametrize("machine", [SMOL, CHEAP], ids=["smol", "cheap"])
@pytest.mark.parametrize("block", [100, 400])
def test_changing_text_is_decoded_better_than_by_any_depth(machine: Machine, block: int) -> None:
    world = World(machine, switching(block), seed=2)
    assert best_static(world, TOKENS) / run(world).seconds >= 1.05
    # Likewise where every block is a request.
    requests = run(world, tokens=block, requests=TOKENS // block)
    assert best_static(world, TOKENS) / requests.seconds >= 1.05


def test_another_table_gives_another_depth() -> None:
    means = {
        name: sum(depths := run(World(machine, steady(0.8))).depths) / len(depths)
        for name, machine in MACHINES.items()
    }
    assert means["cheap"] > 4 > 2 > means["smol"] > means["costly"]


def test_what_the_table_does_not_know_is_learned() -> None:
    """Rows are sold as free, and are costly."""
    world = World(COSTLY, steady(0.6))
    flat = adaptive(COSTLY, target={1: 20.0, 16: 21.0})
    learned = decode(world, flat, TOKENS).seconds
    assert plain(COSTLY, TOKENS) / learned >= 0.95
    assert plain(COSTLY, TOKENS) / decode(world, FixedController(5), TOKENS).seconds < 0.6


def test_without_any_table_costs_are_learned() -> None:
    world = World(CHEAP, steady(0.8))
    unmeasured = AdaptiveController(RoundCosts({}, {}))
    assert plain(CHEAP, TOKENS) / decode(world, unmeasured, TOKENS).seconds >= 2.0


def test_telling_signals_make_it_better_than_the_best_depth() -> None:
    told = World(CHEAP, steady(0.75), sharpness=2.0)
    assert best_static(told, TOKENS) / run(told).seconds >= 1.03


def test_second_guesses_are_made_where_they_pay() -> None:
    def gain(machine: Machine, second: float) -> float:
        with_seconds = World(machine, steady(0.6), second=second)
        return run(World(machine, steady(0.6))).seconds / run(with_seconds).seconds

    assert gain(CHEAP, 0.6) >= 1.05
    assert gain(COSTLY, 0.6) >= 0.99


def test_a_round_goes_no_deeper_than_there_is_room() -> None:
    controller = adaptive(CHEAP, 0.95)
    decode(World(CHEAP, steady(0.95)), controller, 500)
    assert controller.effort(0) is None
    efforts = [controller.effort(room) for room in range(1, 20)]
    depths = [effort.depth if effort else 0 for effort in efforts]
    assert all(0 < depth <= room for room, depth in enumerate(depths, start=1))
    assert 8 < depths[-1] <= 15


def test_what_plain_decoding_costs_is_learned_where_little_is_gained() -> None:
    depths = run(World(SMOL, steady(0.8)), tokens=200).depths
    assert depths[0] > 0
    assert 1 <= depths.count(0) <= 4
    # With seven tokens in the time of one, it does not matter.
    assert run(World(CHEAP, steady(0.98)), tokens=200).depths.count(0) <= 1


@dataclass
class Noisy:
    """A controller whose clock jitters by a tenth, and is wrong five times over now and then."""

    controller: AdaptiveController
    rng: np.random.Generator

    def start(self) -> None:
        self.controller.start()

    def effort(self, room: int) -> Effort | None:
        return self.controller.effort(room)

    def learn(self, outcome: Outcome) -> None:
        factors = np.exp(0.1 * self.rng.standard_normal(2))
        factors[self.rng.random(2) < 0.03] *= 5.0
        draft = outcome.draft_seconds * float(factors[0])
        rest = outcome.target_seconds * float(factors[1])
        told = replace(outcome, draft_seconds=draft, target_seconds=rest, seconds=draft + rest)
        self.controller.learn(told)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("acceptance", [0.0, 0.8])
def test_measurements_may_be_noisy(machine: Machine, acceptance: float) -> None:
    world = World(machine, steady(acceptance))
    noisy = Noisy(adaptive(machine), np.random.default_rng(0))
    assert best_static(world, TOKENS) / decode(world, noisy, TOKENS).seconds >= 0.95


def test_the_price_of_a_row_is_what_it_costs_in_tokens() -> None:
    cheap, costly = adaptive(CHEAP), adaptive(COSTLY)
    for controller, machine in ((cheap, CHEAP), (costly, COSTLY)):
        decode(World(machine, steady(0.9)), controller, 100)
    assert 0.0 < cheap.price(4) < 0.02
    assert costly.price(4) > 0.4
