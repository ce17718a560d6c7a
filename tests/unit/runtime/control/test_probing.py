from __future__ import annotations

from speccompile.runtime.control.probing import Probing


def waits(probing: Probing) -> int:
    """Plain rounds up to the next try, that one included."""
    rounds = 1
    while not probing.due():
        rounds += 1
    return rounds


def test_failing_tries_become_rare() -> None:
    probing = Probing()
    found: list[int] = []
    for _ in range(6):
        found.append(waits(probing))
        probing.learn(stood=False)
    assert found == [1, 32, 64, 128, 128, 128]


def test_one_that_stands_is_followed_by_another() -> None:
    probing = Probing()
    probing.learn(stood=False)
    waits(probing)
    probing.learn(stood=True)
    assert waits(probing) == 1
    probing.learn(stood=False)
    assert waits(probing) == 32


def test_where_it_paid_it_is_tried_soon() -> None:
    probing = Probing()
    for _ in range(5):
        probing.learn(stood=False)
    probing.reset()
    assert waits(probing) == 16
