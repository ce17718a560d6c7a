"""What a request asks of a device: its seed, its filters, its draft length; what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from speccompile.runtime.device_session import DRAFT_LENGTH, DeviceSession
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import RequestError
from speccompile.runtime.request import Request
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.device_pairs import TablePair
from tests.table_model import half
from tests.unit.runtime.tables import Table, TableEngine, greedy_ids, make_table, near_table

TABLE = half(make_table(1))
DRAFTS: dict[str, Table] = {
    "near": half(near_table(TABLE, 2, noise=2.0)),
    "bad": half(-TABLE),
}
FILTERED = Sampling(0.9, top_k=5, top_p=0.95)
PROMPTS = [[2, 5, 1], [7, 0, 3, 3, 6]]


class Forbidden:
    """A processor that forbids a token."""

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        logits[0] = -np.inf


@pytest.mark.parametrize("shares_cache", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("draft", ["near", "bad"])
@pytest.mark.parametrize("seed", [0, (1 << 64) - 1])
@pytest.mark.parametrize("length", [0, 3])
def test_a_seed_gives_the_tokens_of_the_host_s_loop(
    length: int, seed: int, draft: str, shares_cache: bool
) -> None:
    on_device = DeviceSession(TablePair(TABLE, DRAFTS[draft], shares_cache=shares_cache).rounds)
    on_host = Session(TableEngine(TABLE), ModelDraft(TableEngine(DRAFTS[draft])))
    for sampling, prompt in ((FILTERED, PROMPTS[0]), (Sampling(1.5, min_p=0.2), PROMPTS[1])):
        request = Request(40, replace(sampling, seed=seed), draft_length=length)
        texts = [list(each.generate(prompt, request)) for each in (on_device, on_host)]
        # The host's last proposals are shorter: they do not pass the end.
        assert texts[0][: 40 - length] == texts[1][: 40 - length]


def test_the_device_filters_by_min_p() -> None:
    session = DeviceSession(TablePair(TABLE, DRAFTS["near"]).rounds)
    sampling = Sampling(2.0, seed=1)
    texts = [
        list(session.generate([1], Request(30, replace(sampling, min_p=value))))
        for value in (0.0, 1.0)
    ]
    assert texts[0] != texts[1] == greedy_ids(TABLE, [1], 30)


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (Request(processors=[Forbidden()]), "logit processors"),
        (Request(logprobs=0), "logprobs"),
        (Request(sampling=Sampling(1.0, audited=True)), "audited sampling"),
        (Request(rule="token"), "the rule 'token'"),
    ],
    ids=["processors", "logprobs", "audited", "rule"],
)
def test_what_rounds_cannot_honour_is_refused_by_name(request_: Request, what: str) -> None:
    one = TablePair(TABLE, DRAFTS["near"])
    session = DeviceSession(one.rounds)
    before = list(session.generate([1, 2], Request(24)))
    one.device.operations.clear()
    with pytest.raises(RequestError, match=f"^rounds on a GPU have no {what}; use --on cpu$"):
        next(session.generate([1, 2], request_))
    assert one.device.operations == []
    assert list(session.generate([1, 2], Request(24))) == before


@pytest.mark.parametrize(
    ("made", "asked", "proposals"),
    [(DRAFT_LENGTH, None, 5), (2, None, 2), (2, 4, 4), (2, 99, 15)],
)
def test_the_request_s_draft_length_comes_before_the_session_s(
    made: int, asked: int | None, proposals: int
) -> None:
    session = DeviceSession(TablePair(TABLE, TABLE).rounds, draft_length=made)
    list(session.generate([5, 1], Request(1 + proposals + 1, draft_length=asked)))
    assert session.statistics.proposed == [1] * proposals
    assert session.statistics.nodes == proposals


def test_without_drafting_every_round_is_plain() -> None:
    session = DeviceSession(TablePair(TABLE, TABLE).rounds, drafting=False, draft_length=4)
    list(session.generate([5, 1], Request(9, draft_length=4)))
    assert (session.statistics.rounds, session.statistics.proposed) == (8, [])
