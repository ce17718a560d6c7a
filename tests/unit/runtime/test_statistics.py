from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.statistics import Statistics


def test_only_proposals_before_and_at_the_first_rejection_are_tested() -> None:
    statistics = Statistics()
    statistics.count_round(3, 1)
    statistics.count_round(4, 4)
    statistics.count_round(0, 0)
    statistics.count_round(2, 0)
    assert statistics.rounds == 4
    assert statistics.proposed == [3, 2, 1, 1]
    assert statistics.accepted == [2, 1, 1, 1]
    assert statistics.acceptance == 5 / 7


def test_a_request_without_rounds_has_rates_of_zero() -> None:
    statistics = Statistics(new_tokens=1)
    assert statistics.decode_tokens == 0
    assert statistics.acceptance == 0.0
    assert statistics.accepted_length == 0.0
    assert statistics.tokens_per_second == 0.0
    assert Statistics().decode_tokens == 0


def test_rates_leave_out_the_token_of_the_prompt() -> None:
    statistics = Statistics(
        new_tokens=13, rounds=4, decode_seconds=3.0, draft_seconds=1.0, target_seconds=1.5
    )
    assert statistics.decode_tokens == 12
    assert statistics.tokens_per_second == 4.0
    assert statistics.accepted_length == 3.0
    assert statistics.overhead_seconds == 0.5


def test_a_tree_is_counted_by_its_levels() -> None:
    statistics = Statistics()
    #      1 - 2 - 3
    # root 4 - 5
    tree = Proposal([1, 2, 3, 4, 5], [0, 1, 2, 0, 4], [None] * 5)
    statistics.count(tree, [0, 4])  # fell at a child of node 4
    statistics.count(tree, [0, 4, 5], ["halve"])  # all of this branch stood
    statistics.count(Proposal(), [0])
    assert statistics.proposed == [2, 2, 0]
    assert statistics.accepted == [2, 1, 0]
    assert (statistics.rounds, statistics.plain_rounds, statistics.nodes) == (3, 1, 10)
    assert statistics.policies == {"halve": 1}


def test_accepted_tokens_are_counted_by_drafter_where_several_propose() -> None:
    statistics = Statistics()
    union = Proposal([1, 2, 3], [0, 0, 2], [None] * 3, ["model", "ngram", "model"])
    statistics.count(union, [0, 2, 3])
    statistics.count(union, [0, 2])
    statistics.count(Proposal.chain([4]), [0, 1])
    assert statistics.sources == {"ngram": 2, "model": 1}


def test_rounds_add_up_and_inputs_of_steps_are_assembly() -> None:
    statistics = Statistics()
    for _ in range(2):
        draft, target = Work(1.0, 0.75, 3, 90), Work(2.0, 1.5, 1, 32)
        statistics.time(draft, target, assembly=0.25, whole=4.0)
    assert (statistics.draft_seconds, statistics.target_seconds) == (2.0, 4.0)
    assert (statistics.draft_computing_seconds, statistics.target_computing_seconds) == (1.5, 3.0)
    assert (statistics.draft_steps, statistics.draft_context) == (6, 180)
    assert (statistics.target_steps, statistics.target_context) == (2, 64)
    assert statistics.assembly_seconds == 2 * (0.25 + 0.25 + 0.5)
    assert statistics.decode_seconds == 8.0
