import pytest

from speccompile.runtime.bench.run import Run
from speccompile.runtime.bench.sweep import Sweep, Trial
from speccompile.runtime.bench.tables import make_tables
from speccompile.runtime.bench.variants import PLAIN, Lineup, Variant
from speccompile.runtime.control.controller import FixedController
from speccompile.runtime.errors import RequestError
from speccompile.runtime.session import Finish
from speccompile.runtime.statistics import Statistics

NAMES = ("K=1", "K=2", "adaptive")
LINEUP = Lineup(
    (PLAIN, *(Variant(name, "model", FixedController(1)) for name in NAMES)),
    fixed="K=1",
    static=("K=1", "K=2"),
    adaptive="adaptive",
)


def run(seconds: float, tokens: tuple[int, ...] = (1, 2, 3, 4, 5), **counts: object) -> Run:
    statistics = Statistics(new_tokens=len(tokens), decode_seconds=seconds, rounds=2)
    for name, value in counts.items():
        setattr(statistics, name, value)
    return Run(tokens, Finish.LENGTH, seconds, statistics)


def trial(prompt: int, plain: float, *seconds: float) -> Trial:
    runs = {name: run(each) for name, each in zip(NAMES, seconds, strict=True)}
    return Trial(prompt, {"plain": run(plain), **runs})


def sweep(*trials: Trial) -> Sweep:
    return Sweep(LINEUP, trials, len(trials))


# The prompts of "copy" are fastest with K=2, that of "hostile" with K=1.
TRIALS = (
    trial(0, 4.0, 3.0, 1.0, 1.0),
    trial(1, 4.0, 4.0, 8.0, 4.0),
    trial(2, 4.0, 2.0, 1.0, 2.0),
)
LABELS = (("mixed", "copy"), ("mixed", "hostile"), ("mixed", "copy"))


def test_there_is_a_table_for_all_and_for_each_part() -> None:
    tables = make_tables(sweep(*TRIALS), LABELS)
    assert [(table.category, table.prompts) for table in tables] == [
        *(("all", 3), ("copy", 2), ("hostile", 1)),
    ]
    assert [row.name for row in tables[0].rows] == ["plain", *NAMES]


def test_the_best_length_is_that_of_the_category() -> None:
    everything, copy, hostile = make_tables(sweep(*TRIALS), LABELS)
    assert (everything.static, copy.static, hostile.static) == ("K=1", "K=2", "K=1")
    assert copy.row("adaptive").to_static == pytest.approx(2.0 / 3.0)  # 3 s against 2 s
    assert copy.row("adaptive").to_fixed == pytest.approx(5.0 / 3.0)
    assert everything.row("adaptive").to_static == pytest.approx(9.0 / 7.0)
    assert everything.row("K=2").to_static == pytest.approx(9.0 / 10.0)
    assert everything.row("K=1").to_fixed == 1.0


def test_speeds_are_of_all_tokens_and_ratios_to_plain_of_prompts() -> None:
    everything = make_tables(sweep(*TRIALS), LABELS)[0]
    row = everything.row("adaptive")
    assert row.tokens_per_second == pytest.approx(12 / 7.0)
    assert row.to_plain.median == 2.0  # of 4, 1 and 2
    assert row.to_plain.p10 == pytest.approx(1.2)
    assert row.to_plain.p90 == pytest.approx(3.6)
    assert everything.row("plain").to_plain.median == 1.0


def test_rounds_of_one_prompt_count_as_one() -> None:
    again = [trial(0, plain, 1.0, 1.0, 1.0) for plain in (1.0, 9.0, 2.0)]
    [table] = make_tables(sweep(*again, trial(1, 8.0, 1.0, 1.0, 1.0)), [(), ()])
    assert table.prompts == 2
    assert table.row("K=1").to_plain.median == 5.0  # of 2 and 8


def test_counts_are_summed_over_the_runs() -> None:
    first = run(1.0, proposed=[2, 1], accepted=[1, 1], policies={"halve": 1}, sources={"model": 2})
    second = run(1.0, proposed=[1], accepted=[1], sources={"ngram": 1})
    trials = [
        Trial(index, {name: run(1.0) for name in ("plain", "K=1", "K=2")} | {"adaptive": each})
        for index, each in enumerate((first, second))
    ]
    [table] = make_tables(sweep(*trials), [(), ()])
    row = table.row("adaptive")
    assert row.accepted_length == 2.0  # 8 tokens in 4 rounds
    assert row.acceptance == 3 / 4
    assert row.policies == {"halve": 1 / 4}
    assert row.sources == {"model": 2 / 3, "ngram": 1 / 3}
    assert table.row("plain").acceptance is None


def test_short_answers_have_no_speed_but_count_as_outputs() -> None:
    short = {name: run(0.0, (1,)) for name in ("plain", "K=1", "adaptive")}
    differing = Trial(1, {**short, "K=2": run(0.0, (2,))})
    tables = make_tables(sweep(TRIALS[0], differing), [("x",), ("y",)])
    assert [table.category for table in tables] == ["all", "x"]
    assert tables[0].prompts == 1
    assert [row.differing for row in tables[0].rows] == [0, 0, 1, 0]
    with pytest.raises(RequestError, match="more than one token"):
        make_tables(sweep(differing), [(), ()])


def test_without_fixed_lengths_there_is_no_best_one() -> None:
    lineup = Lineup(LINEUP.variants, "K=1")
    [table] = make_tables(Sweep(lineup, TRIALS, 3), [(), (), ()])
    assert table.static is None
    assert {row.to_static for row in table.rows} == {None}
