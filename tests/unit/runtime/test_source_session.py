"""A session whose prompt is a source: read once for each model, and never mistaken for another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import RequestError
from speccompile.runtime.proof.models import Text, TextEngine
from speccompile.runtime.request import Request
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.source_session import SourceSession

VOCABULARY, START, CONTEXT = 12, 3, 24


@dataclass
class Reader:
    """An encoder that keeps what it reads."""

    source: Sequence[int] = ()
    calls: int = 0
    read_sources: list[list[int]] = field(default_factory=list[list[int]])

    def read(self, source: Sequence[int]) -> None:
        self.source = list(source)
        self.read_sources.append(list(source))
        self.calls += 1


class SourceEngine(TextEngine):
    """Rows are a function of source and text: one of another source is another row. Like keys and
    values in a cache, a committed row goes on depending on the source that it was computed with."""

    def __init__(self, reader: Reader, noise: int = 0) -> None:
        super().__init__(CONTEXT)
        self._reader, self._noise = reader, noise
        self._sources: list[tuple[int, ...]] = []  # of each committed row

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        self._sources += [tuple(self._reader.source)] * len(tokens)
        return super().step(tokens, parents=parents, last=last)

    def rollback(self, length: int) -> None:
        del self._sources[length:]
        super().rollback(length)

    def _row(self, text: Text) -> Logits:
        seed = hash((tuple(self._sources[: len(text)]), text)) % 2**32
        row = np.random.default_rng(seed).normal(size=VOCABULARY)
        if self._noise:
            row += 0.5 * np.random.default_rng(seed + self._noise).normal(size=VOCABULARY)
        return row.astype(np.float32)


def open_session(*, drafted: bool = True) -> tuple[SourceSession, dict[str, Reader]]:
    readers = {name: Reader() for name in (("target", "draft") if drafted else ("target",))}
    draft = ModelDraft(SourceEngine(readers["draft"], noise=1)) if drafted else None
    target = SourceEngine(readers["target"])
    return SourceSession(target, readers, START, draft, context=CONTEXT), readers


def generate(session: SourceSession, source: Sequence[int], **request: object) -> list[int]:
    wanted = Request(**{"max_new_tokens": 15, "draft_length": 4, **request})  # type: ignore[arg-type]
    return list(session.generate(source, wanted))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.9, seed=5, audited=True)])
def test_drafts_change_nothing_source_after_source(sampling: Sampling) -> None:
    session, readers = open_session()
    accepted = 0
    for source in ([1, 2], [2, 1], [2, 1, 5], [1, 2]):
        plain, _ = open_session(drafted=False)
        found = generate(session, source, sampling=sampling)
        assert found == generate(plain, source, sampling=sampling)
        accepted += sum(session.statistics.accepted)
        assert session.statistics.encoder_calls == {"target": 1, "draft": 1}
        assert plain.statistics.encoder_calls == {"target": 1}
        assert session.statistics.prompt_tokens == len(source)
        assert session.statistics.reused_tokens == 0
    assert accepted
    assert all(reader.calls == 4 for reader in readers.values())
    assert readers["draft"].read_sources == readers["target"].read_sources


def test_the_output_depends_on_the_source() -> None:
    session, _ = open_session()
    assert generate(session, [1, 2]) != generate(session, [2, 1])


def test_the_sequence_begins_with_the_start_token_and_ends_with_the_context() -> None:
    session, _ = open_session(drafted=False)
    assert len(generate(session, [1], max_new_tokens=99)) == CONTEXT - 1


def test_nothing_is_read_for_nothing() -> None:
    session, readers = open_session()
    assert generate(session, [1], max_new_tokens=0) == []
    assert not any(reader.calls for reader in readers.values())
    assert not session.statistics.encoder_calls


@pytest.mark.parametrize("length", [0, CONTEXT + 1])
def test_a_source_that_does_not_fit_is_refused(length: int) -> None:
    session, readers = open_session()
    with pytest.raises(RequestError, match=f"the source has {length} tokens; it must have 1 to 24"):
        generate(session, [1] * length)
    assert readers["target"].calls == 0
