import pytest

from speccompile.runtime.bench.decomposition import Split, split_of
from speccompile.runtime.bench.run import Run
from speccompile.runtime.session import Finish
from speccompile.runtime.statistics import Statistics


def run(seconds: float, **counts: float) -> Run:
    """Decoded in `seconds`, behind a first token that took one more."""
    statistics = Statistics(new_tokens=3, first_token_seconds=1.0)
    for name, value in counts.items():
        setattr(statistics, name, value)
    return Run((1, 2, 3), Finish.LENGTH, 1.0 + seconds, statistics)


def test_what_nobody_kept_account_of_is_scheduling() -> None:
    split = split_of(
        [run(8.0, draft_computing_seconds=2.0, target_computing_seconds=4.0, assembly_seconds=1.0)]
    )
    assert split == Split(draft=25.0, verify=50.0, assembly=12.5, scheduling=12.5)
    assert Split(25.0, 50.0, 12.5, 12.5).overhead == 25.0


def test_longer_runs_weigh_more() -> None:
    split = split_of(
        [run(1.0, target_computing_seconds=1.0), run(3.0, target_computing_seconds=1.0)]
    )
    assert split is not None
    assert split.verify == pytest.approx(50.0)


def test_a_run_that_decoded_nothing_has_no_part() -> None:
    short = Run((1,), Finish.LENGTH, 9.0, Statistics(new_tokens=1, first_token_seconds=1.0))
    assert split_of([short, run(2.0, target_computing_seconds=2.0)]) == Split(0, 100, 0, 0)
    assert split_of([short]) is None
