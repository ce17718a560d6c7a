import pytest

from speccompile.runtime.bench.ceiling import StepBytes
from speccompile.runtime.bench.decomposition import Split
from speccompile.runtime.bench.limit import Limit
from speccompile.runtime.bench.pairs import COST_ROWS, BenchResult, Pair, run_bench
from speccompile.runtime.bench.run import Run
from speccompile.runtime.engine import Engine
from speccompile.runtime.errors import RequestError
from speccompile.runtime.session import Finish, Request, Session
from speccompile.runtime.statistics import Statistics
from tests.counting import CountingDraft, CountingEngine

REQUEST = Request(max_new_tokens=6, draft_length=3, stop_tokens=frozenset({0}))


class FakeOpener:
    """Remembers which sessions were opened; `wrong` makes a target differ when it speculates."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.opened: list[str | None] = []
        self._plain = CountingEngine()
        self._speculative = CountingEngine(stride=2) if wrong else self._plain

    def session(self, draft: str | None = None) -> Session:
        self.opened.append(draft)
        engine = self._plain if draft == "none" else self._speculative
        engine.rollback(0)
        return Session(engine, None if draft == "none" else CountingDraft())

    def models(self, draft: str) -> tuple[str, ...]:
        return () if draft == "ngram" else ("draft",)

    def engine(self, role: str) -> Engine:
        return CountingEngine()


def test_pairs_alternate_and_the_first_is_not_counted() -> None:
    opener = FakeOpener()
    result = run_bench(opener, [[1], [2], [3]], REQUEST, "ngram", rounds=2)
    pairs = [tuple(opener.opened[at : at + 2]) for at in range(0, len(opener.opened), 2)]
    plain_first, speculative_first = ("none", "ngram"), ("ngram", "none")
    warm_up, *rounds = pairs
    assert warm_up == plain_first
    assert rounds == [plain_first, speculative_first] * 3
    assert [pair.prompt for pair in result.pairs] == [0, 1, 2, 0, 1, 2]


def test_every_generation_begins_with_an_empty_cache() -> None:
    result = run_bench(FakeOpener(), [[1, 2, 3], [1, 2, 3, 4]], REQUEST, "ngram")
    runs = [run for pair in result.pairs for run in (pair.plain, pair.speculative)]
    assert [run.statistics.reused_tokens for run in runs] == [0] * 4


def test_same_outputs_are_identical_and_proposals_counted() -> None:
    result = run_bench(FakeOpener(), [[1], [2]], REQUEST, "ngram")
    assert result.identical
    assert result.pairs[0].plain.tokens == (2, 3, 4, 5, 6, 7)
    assert not any(pair.plain.statistics.proposed for pair in result.pairs)
    # 5 tokens are decoded in rounds of two, and the last, with none left to propose, of one.
    assert result.accepted_length == 5 / 3
    assert result.tested == (4, 4)
    assert result.acceptance == (1.0, 0.0)


def test_different_outputs_are_found() -> None:
    result = run_bench(FakeOpener(wrong=True), [[1], [2]], REQUEST, "ngram")
    assert not result.identical
    assert result.differing == (0, 1)


def test_costs_are_measured_for_the_engines_that_take_part() -> None:
    both = {"target", "draft"}
    for draft, roles in (("ngram", {"target"}), ("model", both), ("union", both)):
        result = run_bench(FakeOpener(), [[1]], REQUEST, draft)
        assert result.cost_ms.keys() == roles
        assert result.cost_context == 7


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(RequestError, match="no prompts"):
        run_bench(FakeOpener(), [], REQUEST, "ngram")
    with pytest.raises(RequestError, match="more than one token"):
        run_bench(FakeOpener(), [[30]], REQUEST, "ngram")  # 31, then the end


def test_progress_goes_up_to_the_end() -> None:
    steps: list[tuple[int, int]] = []
    run_bench(
        FakeOpener(),
        [[1], [2]],
        REQUEST,
        "ngram",
        rounds=2,
        progress=lambda done, total, _: steps.append((done, total)),
    )
    assert steps == [(done, 6) for done in range(7)]


def test_without_time_only_the_first_pair_counts() -> None:
    result = run_bench(FakeOpener(), [[1], [2], [3]], REQUEST, "ngram", budget=0.0)
    assert [pair.prompt for pair in result.pairs] == [0]
    result = run_bench(FakeOpener(), [[1], [2], [3]], REQUEST, "ngram", budget=3600.0)
    assert [pair.prompt for pair in result.pairs] == [0, 1, 2]


def run(decode_seconds: float, *, tokens: tuple[int, ...] = (1, 2, 3), **counts: object) -> Run:
    """A generation of three tokens, two of them decoded."""
    statistics = Statistics(new_tokens=len(tokens), decode_seconds=decode_seconds, rounds=1)
    statistics.first_token_seconds = 1.0
    for name, value in counts.items():
        setattr(statistics, name, value)
    return Run(tokens, Finish.LENGTH, 1.0 + decode_seconds, statistics)


def result_of(*pairs: Pair) -> BenchResult:
    return BenchResult(pairs, {"target": dict.fromkeys(COST_ROWS, 1.0)}, 5)


def test_ratios_are_medians_of_rounds_then_of_prompts() -> None:
    seconds = {0: (1.0, 2.0, 9.0), 1: (4.0,), 2: (8.0,)}  # plain; speculative takes one
    result = result_of(
        *(Pair(prompt, run(s), run(1.0)) for prompt, rounds in seconds.items() for s in rounds)
    )
    assert result.speedups == {0: 2.0, 1: 4.0, 2: 8.0}
    assert result.speedup.median == 4.0
    assert result.speedup.p10 == pytest.approx(2.4)
    assert result.speedup.p90 == pytest.approx(7.2)
    assert result.plain_tokens_per_second.median == 0.5
    assert result.speculative_tokens_per_second.median == 2.0
    assert result.request_speedup.median == 2.5  # (1 + 4) / (1 + 1)
    assert result.speculative_first_token_seconds.median == 1.0


def test_a_request_that_decoded_nothing_has_no_speedup_but_counts_as_output() -> None:
    short = Pair(1, run(0.0, tokens=(1,)), run(0.0, tokens=(2,)))
    result = result_of(Pair(0, run(3.0), run(1.0)), short)
    assert result.speedups == {0: 3.0}
    assert result.differing == (1,)


def test_outputs_of_one_text_but_different_ends_differ() -> None:
    stopped = Run((1, 2, 3), Finish.STOP, 1.0, Statistics(new_tokens=3, decode_seconds=1.0))
    assert not Pair(0, run(1.0), stopped).identical


def test_acceptance_weighs_every_round_alike() -> None:
    first = run(2.0, proposed=[4, 2], accepted=[2, 1])
    second = run(6.0, proposed=[6], accepted=[3], rounds=3)
    result = result_of(Pair(0, run(9.0), first), Pair(1, run(9.0), second))
    assert result.tested == (10, 2)
    assert result.acceptance == (0.5, 0.5)
    assert result.accepted_length == 1.0


def test_both_ways_of_decoding_are_split_by_all_their_rounds() -> None:
    plain = run(8.0, target_computing_seconds=6.0, assembly_seconds=1.0)
    first = run(2.0, draft_computing_seconds=0.5, target_computing_seconds=1.0)
    second = run(6.0, draft_computing_seconds=1.5, target_computing_seconds=4.0)
    result = result_of(Pair(0, plain, first), Pair(1, plain, second))
    assert result.splits == {
        "plain": Split(draft=0.0, verify=75.0, assembly=12.5, scheduling=12.5),
        "speculative": Split(draft=25.0, verify=62.5, assembly=0.0, scheduling=12.5),
    }
    assert result.overheads("plain") == {0: 25.0, 1: 25.0}
    assert result.overheads("speculative") == pytest.approx({0: 25.0, 1: 100 * 0.5 / 6})


def test_without_clocks_of_engines_nothing_is_split() -> None:
    result = result_of(Pair(0, run(8.0), run(2.0)))
    assert result.splits is None
    assert result.overheads("plain") == {}


def test_the_limit_is_measured_before_and_after_all_pairs() -> None:
    opener, opened = FakeOpener(), list[int]()

    def measure() -> Limit:
        opened.append(len(opener.opened))
        return Limit(1, (1e3 * len(opened),), None)

    result = run_bench(
        opener, [[1], [2]], REQUEST, "ngram", reads={"target": StepBytes(10, 1)}, measure=measure
    )
    assert opened == [2, 6]
    assert result.ceiling is not None
    assert result.ceiling.limit == Limit(1, (1e3, 2e3), None)
    # Five steps of a row, which see 2 to 6 rows, bring five tokens.
    assert result.ceilings("plain") == dict.fromkeys((0, 1), 2000.0 * 5 / (50 + 20))
    seconds = result.pairs[0].plain.decode_seconds
    assert result.shares_of_ceiling("plain")[0] == pytest.approx(70 / seconds / 2e3)


def test_where_nothing_is_known_of_the_engines_no_limit_is_measured() -> None:
    def measure() -> Limit:
        raise AssertionError

    result = run_bench(FakeOpener(), [[1]], REQUEST, "ngram", measure=measure)
    assert result.ceiling is None
    assert result.shares_of_ceiling("plain") == result.ceilings("plain") == {}
