"""OpenVINO on CPU: several sequences on one graph, whose rows are computed together.

All sequences have their pages in one pool. A call takes the rows of several, any number of each:
they stand behind one another as the graph's one sequence of rows, and the paged operator is told
where those of each begin and which pages are its own. Only graphs that attend in pages can do so:
not those with a softcap (see `lower/softcapped_attention.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from speccompile.runtime.batch_engine import Rows
from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.engines.openvino_caches import PAGE_ROWS, OpenVINOCaches
from speccompile.runtime.engines.openvino_feeds import Share, begins, feeds, share_of
from speccompile.runtime.engines.openvino_graph import (
    compile_graph,
    infer,
    last_line,
    read_graph,
    tree_refusal,
)
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo
from speccompile.runtime.pages.pool import PagePool
from speccompile.runtime.pages.prefixes import recall, remember
from speccompile.runtime.pages.table import PageCopy, PageTable

__all__ = ["PagedEngine", "PagedSequence", "UnpagedError"]


class UnpagedError(EngineError):
    """A graph cannot compute rows of several sequences in one call."""


class PagedEngine:
    """A `BatchEngine`; `pool` tells how many pages are free."""

    def __init__(self, info: EngineInfo, graph: Path, *, pages: int, threads: int = 0) -> None:
        """All sequences share `pages` of 32 rows; one has at most `info.capacity` rows, and what
        the pool holds.

        Raises EngineError for a graph that cannot be opened, UnpagedError for one whose attention
        is not paged.
        """
        self.pool = PagePool(pages, PAGE_ROWS)
        capacity = min(info.capacity, pages * PAGE_ROWS)
        self.capacity = capacity - max(info.min_rows - 1, 0)
        self._min_rows, self._graph = info.min_rows, graph
        try:
            model = read_graph(graph)
            self._inputs = {port.any_name for port in model.inputs}
            if "block_indices" not in self._inputs or len(model.outputs) > 1:
                raise UnpagedError(
                    f"{graph}: some of its attention is not paged; decode one sequence at a time"
                )
            self._refusal = tree_refusal(model)
            compiled = compile_graph(info, model, threads)
            self._request = compiled.create_infer_request()
            whole_pool = replace(info, capacity=pages * PAGE_ROWS)
            OpenVINOCaches(whole_pool, compiled).attach(self._request)
        except RuntimeError as error:
            raise EngineError(f"{graph}: OpenVINO cannot open it: {last_line(error)}") from error
        self._caches = [
            self._request.get_tensor(name).data
            for name in self._inputs
            if name.startswith(("key_cache.", "value_cache."))
        ]

    def open(self, prompt: Sequence[int] = ()) -> PagedSequence:
        """A sequence that begins with what is known of `prompt`, the longest run of full pages.

        Its `length` says how many rows that is; the tokens behind them are to be fed. The last one
        always is: its logits are what a prompt is read for.
        """
        table = recall(self.pool, prompt[:-1])
        return PagedSequence(self, table, prompt[: table.length])

    def step_many(self, requests: Sequence[Rows[PagedSequence]]) -> list[Logits]:
        """See `BatchEngine`; one call of the graph."""
        if len({id(request.sequence) for request in requests}) < len(requests):
            raise ValueError("a sequence takes part in a call once")
        shares: list[Share] = []
        try:
            for request in requests:
                shares.append(self._admit(request))
            logits = self._infer(shares) if shares else []
        except BaseException:  # an interrupt too leaves every sequence as it was
            for request, share in zip(requests, shares, strict=False):
                request.sequence.table.rollback(share.start)
            raise
        for request, share in zip(requests, shares, strict=True):
            request.sequence.keep(share.tokens[: share.rows], share.chained)
        return logits

    def _admit(self, request: Rows[PagedSequence]) -> Share:
        """Make room for a request's rows and, where these are too few to be exact, for padding."""
        sequence = request.sequence
        start, pages = sequence.reserve(len(request.tokens)), sequence.table.pages
        share = share_of(
            pages, start, request.tokens, request.parents, request.last, self._min_rows
        )
        if share.seen is not None and self._refusal:
            raise EngineError(f"{self._graph}: takes chains of proposals only: {self._refusal}")
        copy = sequence.grow(len(share.tokens))
        if copy is not None:
            for cache in self._caches:
                cache[copy.target, :, : copy.rows] = cache[copy.source, :, : copy.rows]
        return share

    def _infer(self, shares: Sequence[Share]) -> list[Logits]:
        fed, what = feeds(shares, self._min_rows), f"the rows of {len(shares)} sequences"
        logits, _ = infer(self._request, self._inputs, fed, what)
        rows = begins(share.wanted for share in shares)
        return [logits[begin:end] for begin, end in pairwise(rows)]


class PagedSequence(Cursor):
    """One of an engine's sequences; see `Engine`.

    The pool may hold fewer rows than all sequences' capacities together: a step raises NoRoomError
    where it has no page left.
    """

    def __init__(self, engine: PagedEngine, table: PageTable, tokens: Sequence[int]) -> None:
        """`tokens` are those of the rows in `table`."""
        super().__init__(engine.capacity)
        self.engine, self.table = engine, table
        self.length = table.length
        self._tokens = list(tokens)

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        return self.engine.step_many([Rows(self, tokens, parents, last)])[0]

    def rollback(self, length: int) -> None:
        super().rollback(length)
        self.table.rollback(length)
        del self._tokens[length:]

    def fork(self) -> PagedSequence:
        """A second sequence with the same rows; what either appends is its own."""
        return PagedSequence(self.engine, self.table.fork(), self._tokens)

    def close(self) -> None:
        """Give all pages back. What full ones hold stays known until they are needed."""
        remember(self.table, self._tokens)
        self.rollback(0)

    def grow(self, rows: int) -> PageCopy | None:
        """For the engine: room for `rows` more rows, and the copy that it has to do first."""
        if len(self._tokens) < self.length:
            raise ValueError(f"rows from {len(self._tokens)} on are of a tree; roll it back first")
        remember(self.table, self._tokens)
        return self.table.append(rows)

    def keep(self, tokens: Sequence[int], chained: int) -> None:
        """For the engine: `tokens` have rows now, of which `chained` follow one another."""
        self.length += len(tokens)
        self.table.rollback(self.length)
        self._tokens += tokens[:chained]
