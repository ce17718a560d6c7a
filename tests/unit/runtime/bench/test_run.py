from speccompile.runtime.bench.run import Budget, Run, generate, spread
from speccompile.runtime.session import Finish, Request, Session
from speccompile.runtime.statistics import Statistics
from tests.counting import CountingDraft, CountingEngine


def run(tokens: tuple[int, ...], finish: Finish = Finish.LENGTH, seconds: float = 1.0) -> Run:
    """Of which the first token took a second."""
    statistics = Statistics(new_tokens=len(tokens), first_token_seconds=1.0)
    return Run(tokens, finish, 1.0 + seconds, statistics)


def test_a_generation_is_all_that_the_session_says() -> None:
    session = Session(CountingEngine(), CountingDraft())
    found = generate(session, [1], Request(6, draft_length=3, stop_tokens=frozenset({5})))
    assert (found.tokens, found.finish) == ((2, 3, 4), Finish.STOP)
    assert found.statistics is session.statistics
    assert found.seconds > 0.0


def test_outputs_of_other_tokens_or_another_end_are_not_the_same() -> None:
    assert run((1, 2)).same(run((1, 2), seconds=5.0))
    assert not run((1, 2)).same(run((1, 3)))
    assert not run((1, 2)).same(run((1, 2), Finish.STOP))


def test_a_speedup_is_of_decoded_tokens() -> None:
    assert run((1, 2, 3), seconds=1.0).speedup(run((1, 2), seconds=2.0)) == 4.0
    assert run((1, 2, 3), seconds=4.0).tokens_per_second == 0.5
    assert run((1,)).tokens_per_second == 0.0
    assert run((1, 2)).decoded
    assert not run((1,)).decoded


def test_a_spread_interpolates() -> None:
    found = spread(float(value) for value in range(11))
    assert (found.p10, found.median, found.p90) == (1.0, 5.0, 9.0)


def test_a_budget_always_allows_one() -> None:
    assert Budget(0.0).allows(0)
    assert not Budget(0.0).allows(1)
    assert Budget(None).allows(10**9)
    assert Budget(3600.0).allows(1)
