from speccompile.runtime.drafting.certain import add_beside, certain
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal


def test_tokens_beside_follow_the_root_once_and_as_far_as_there_is_room() -> None:
    proposal = certain([5, 6], [0, 1], Effort(2, 4, beside=(7, 5, 7, 8, 9)))
    assert proposal == Proposal([5, 6, 7, 8], [0, 1, 0, 0], [None] * 4)


def test_a_source_is_named_for_every_node_or_for_none() -> None:
    proposal = Proposal()
    proposal.add(5, 0, source="words")
    add_beside(proposal, Effort(1, 2, beside=(6,)), "beside")
    assert proposal.sources == ["words", "beside"]
    assert certain([5], [0], Effort(1, 2, beside=(6,))).sources == []
