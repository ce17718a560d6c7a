from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from speccompile.compiler.tune.survey import DEPTH, Survey, survey
from speccompile.runtime.control.chains import ChainController
from speccompile.runtime.control.controller import FixedController
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.request import Request
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.unit.runtime.control.world import round_of, signals_of
from tests.unit.runtime.tables import Table, TableEngine, greedy_ids, make_table, near_table

TARGET = make_table(1)
DRAFT = near_table(TARGET, 2, noise=2.5)
PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 1, 2]]
SIGNALS = signals_of(0.6)


def session_of(draft: Table) -> Session:
    return Session(TableEngine(TARGET), ModelDraft(TableEngine(draft)))


def ignore(number: int, count: int) -> None:
    """No progress."""


def test_it_decodes_as_ever_and_counts_what_stood() -> None:
    session, told = session_of(DRAFT), list[tuple[int, int]]()
    found = survey(
        session, PROMPTS, Request(20), lambda number, count: told.append((number, count))
    )
    assert told == [(number, count) for number in range(3) for count in range(21)]
    assert found.prompts == 3
    assert {one.prompt for one in found.examples} == {0, 1, 2}
    assert all(one.label == one.sample.accepted for one in found.examples)
    for position, (share, count) in enumerate(zip(found.acceptance, found.tested, strict=True)):
        here = [one.sample for one in found.examples if one.sample.position == position]
        assert count == sum(one.tested for one in here)
        assert share == pytest.approx(sum(one.accepted for one in here) / count)
    assert 0.0 < found.acceptance[0] < 1.0
    assert list(session.generate(PROMPTS[0], Request(20))) == greedy_ids(TARGET, PROMPTS[0], 20)


def test_it_looks_as_deep_and_broad_as_there_is_room() -> None:
    controller = Survey()
    controller.start()
    deep, short = controller.effort(100), controller.effort(2)
    assert deep
    assert short
    assert (deep.depth, deep.nodes) == (DEPTH, DEPTH + 4 * 3)
    assert (short.depth, short.nodes, short.branches) == (2, 8, {0: 4, 1: 4})
    assert controller.effort(0) is None
    chain = Survey(broad=False).effort(100)
    assert chain
    assert (chain.depth, chain.nodes, chain.branches) == (DEPTH, DEPTH, {})


def test_a_session_without_trees_is_given_none() -> None:
    session = session_of(DRAFT)
    session.controller = ChainController(FixedController(4))
    assert survey(session, PROMPTS, Request(20), ignore).rescues == ()
    session.controller = FixedController(4)
    assert len(survey(session, PROMPTS, Request(20), ignore).rescues) == 3


def test_the_guesses_beside_are_ranked() -> None:
    tree = Proposal([1, 2, 3, 4, 5], [0, 0, 0, 1, 1], [None] * 5)  # three children, then two
    controller = Survey()
    controller.start()
    # Both of the first path; the root's third; its second; none; the second of node 1.
    for path in ([0, 1, 4], [0, 3], [0, 2], [0], [0, 1, 5]):
        controller.effort(10)
        controller.learn(round_of(tree, path))
    assert controller.acceptance == (2 / 5, 1 / 2)
    assert controller.tested == (5, 2)
    # Where a first child fell there was a second four times, and a third three times.
    assert controller.rescues == (2 / 4, 1 / 3)
    assert controller.profile()[1] == pytest.approx([0.5, 0.25, 0.5 / 3])


def test_a_drawn_token_is_labelled_by_the_overlap_of_the_laws() -> None:
    law = np.array([0.7, 0.1, 0.1, 0.1], np.float32)
    target = np.array([[0.2, 0.4, 0.2, 0.2], [0.1, 0.1, 0.1, 0.7], [0.25] * 4], np.float32)
    proposal = Proposal([0, 3], [0, 1], [law, law[::-1]])
    controller = Survey()
    controller.start()
    effort = controller.effort(10)
    assert effort
    for _ in range(2):
        effort.go_on(SIGNALS)
    sampler = Sampler(Sampling(temperature=1.0))
    outcome = round_of(proposal, [0, 1])
    controller.learn(replace(outcome, logits=np.log(target), tokens=[1], sampler=sampler))
    labels = [one.label for one in controller.examples]
    assert labels == pytest.approx([0.5, 1.0], abs=1e-5)
    assert [one.sample.accepted for one in controller.examples] == [True, False]


def test_drawing_from_the_same_laws_is_always_right() -> None:
    request = Request(20, Sampling(temperature=1.0, seed=3))
    same = survey(session_of(TARGET), PROMPTS, request, ignore)
    assert all(
        one.label == pytest.approx(1.0, abs=1e-5) for one in same.examples if one.sample.tested
    )
    near = survey(session_of(DRAFT), PROMPTS, request, ignore)
    labels = [one.label for one in near.examples if one.sample.tested]
    assert 0.0 < min(labels) < 0.9
    assert near.examples == survey(session_of(DRAFT), PROMPTS, request, ignore).examples
