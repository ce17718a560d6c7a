from __future__ import annotations

import pytest

from speccompile.runtime.control.controller import FixedController
from speccompile.runtime.control.features import FEATURES
from speccompile.runtime.control.samples import RoundLog
from speccompile.runtime.drafting.proposal import Proposal
from tests.unit.runtime.control.world import CHEAP, World, decode, round_of, signals_of, steady


def test_every_proposed_token_is_a_sample() -> None:
    log = RoundLog(FixedController(3))
    log.start()
    for path in ([0, 1], [0, 1, 2, 3]):
        effort = log.effort(10)
        assert effort is not None
        for probability in (0.9, 0.5, 0.4):
            assert effort.go_on(signals_of(probability))
        log.learn(round_of(Proposal.chain([0] * 3), path))
    found = [(one.round, one.position, one.tested, one.accepted) for one in log.samples]
    assert found == [
        (0, 0, True, True),
        (0, 1, True, False),
        (0, 2, False, False),
        (1, 0, True, True),
        (1, 1, True, True),
        (1, 2, True, True),
    ]
    last = dict(zip(FEATURES, log.samples[-1].features, strict=True))
    assert last["survival"] == pytest.approx(0.45)
    assert last["last_share"] == pytest.approx(1 / 3)


def test_it_decides_as_the_controller_does() -> None:
    world = World(CHEAP, steady(0.7), sharpness=1.0)
    log = RoundLog(FixedController(4))
    logged, alone = decode(world, log, 200), decode(world, FixedController(4), 200)
    assert logged == alone
    assert len(log.samples) == sum(alone.depths)


def test_plain_rounds_have_none() -> None:
    log = RoundLog(FixedController(0))
    log.start()
    assert log.effort(5) is None
    log.learn(round_of(Proposal(), [0]))
    assert not log.samples
