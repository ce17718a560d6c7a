"""The proof that an artifact is lossless: levels of checks, each resting on those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from speccompile.runtime.control.controller import Controller
from speccompile.runtime.errors import RequestError
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.closeness import row_tolerance
from speccompile.runtime.proof.equality import check_equality, tie_tolerance
from speccompile.runtime.proof.exact import check_exact
from speccompile.runtime.proof.ledger import Ledger
from speccompile.runtime.proof.rows import check_rollback, check_rows, tokens_needed
from speccompile.runtime.proof.sampled import check_sampling
from speccompile.runtime.proof.stream import check_stream
from speccompile.runtime.proof.variants import Variant
from speccompile.runtime.runner import Runner
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import AnySession

__all__ = ["LEVELS", "Plan", "prove"]

LEVELS = {"exact": 0, "sampling": 1, "seeded": 2, "greedy": 3, "stream": 4}
"""The levels of those checks that are a level; the others are what these rest on."""


@dataclass(frozen=True)
class Plan:
    """How much to check.

    Equality: `tokens` after every prompt, with each of the `draft_lengths` and `trees`, given as
    depth and nodes; `draft` limits it to one of the drafts. `draws` are for each test of sampling,
    `stream_tokens` for the stream.
    """

    tokens: int = 24
    draft_lengths: tuple[int, ...] = (1, 3, 8)
    draws: int = 2000
    draft: str | None = None
    levels: tuple[int, ...] = (0, 1, 2, 3, 4)
    trees: tuple[tuple[int, int], ...] = ((3, 8),)
    stream_tokens: int = 2000

    def __post_init__(self) -> None:
        if not self.draft_lengths or min(self.draft_lengths) < 1:
            raise RequestError("the draft lengths to check must be 1 or more; give at least one")
        if self.tokens < 2:
            raise RequestError(
                f"{self.tokens} tokens hold no round of speculation; check 2 or more"
            )
        if self.draws < 1:
            raise RequestError(f"{self.draws} draws test nothing; draw once or more")
        if not set(self.levels) <= set(LEVELS.values()):
            raise RequestError("levels are from 0 to 4")


def prove(
    runner: Runner,
    texts: Sequence[str],
    plan: Plan,
    progress: Progress = silent,
    ledger: Ledger | None = None,
) -> Iterator[Check]:
    """Yield each check when it is done, or at once where the `ledger` has it.

    On a GPU rows differ by rounding with the size of their step, and outputs may part at ties.
    Raises RequestError where there is no prompt, or one is too long to be continued.
    """
    ledger = ledger or Ledger()
    yield _integrity(runner)
    for name, check in _Proof(runner, texts, plan, progress, ledger).checks():
        found = ledger.finished(name)
        if found is None:
            try:
                found = check()
            except RequestError as error:  # of a cache that was full, though it had room for all
                found = Check(name, False, f"was refused: {error}", {})
            ledger.finish(found)
        yield found


class _Proof:
    """The checks of one artifact, on its own engines."""

    def __init__(
        self,
        runner: Runner,
        texts: Sequence[str],
        plan: Plan,
        progress: Progress,
        ledger: Ledger,
    ) -> None:
        self._runner, self._plan = runner, plan
        self._progress, self._ledger = progress, ledger
        self._prompts = _encoded(runner, texts, plan)
        self._kinds = _drafts(runner, plan)
        self._target = runner.engine("target")
        self._drafted = "draft" in runner.roles
        pair = runner.placement.pair if runner.placement else None
        self._coarse = row_tolerance(pair.target.precision) if pair else None
        self._trees = plan.trees if runner.takes_trees else ()
        self._remark = "" if self._trees else "the runtime makes no trees for this target"

    def checks(self) -> Iterator[tuple[str, Callable[[], Check]]]:
        """Names, and what makes the check of each."""
        yield "rows", self._rows
        yield "roll-back", self._rollback
        by_name = {
            "exact": lambda: check_exact(self._progress),
            "sampling": self._sampling,
            "seeded": self._seeded,
            "greedy": self._greedy,
            "stream": self._stream,
        }
        for name, level in LEVELS.items():
            if level in self._plan.levels:
                yield name, by_name[name]

    def _rows(self) -> Check:
        return check_rows(
            self._target,
            self._prompts,
            max(self._plan.draft_lengths) + 1,
            tolerance=self._coarse,
            progress=self._progress,
        )

    def _rollback(self) -> Check:
        return check_rollback(
            self._target,
            self._prompts,
            self._plan.draft_lengths,
            exact=self._rows_found.details["bit_equal"] is True,
            progress=self._progress,
        )

    def _sampling(self) -> Check:
        draft = self._runner.engine("draft") if self._drafted else None
        return check_sampling(self._target, draft, self._prompts, self._plan.draws, self._progress)

    def _seeded(self) -> Check:
        # The noise that draft and target share is the host's.
        return check_equality(
            "seeded",
            self._target,
            lambda variant: self._host_session(variant, variant.controller()),
            self._variants,
            self._prompts,
            opening=self._runner.opening,
            tokens=self._plan.tokens,
            sampling=lambda prompt: Sampling(0.8, seed=prompt + 1, audited=True),
            tolerance=self._tolerance,
            remark=self._remark,
            ledger=self._ledger,
            progress=self._progress,
        )

    def _greedy(self) -> Check:
        def session(variant: Variant) -> AnySession:
            if variant.is_tree:
                return self._host_session(variant, variant.controller())
            return self._runner.session(variant.draft, adaptive=False)

        return check_equality(
            "greedy",
            self._target,
            session,
            self._variants,
            self._prompts,
            opening=self._runner.opening,
            tokens=self._plan.tokens,
            stop_tokens=frozenset(self._runner.manifest.model.eos_token_ids),
            tolerance=self._tolerance,
            remark=self._remark,
            ledger=self._ledger,
            progress=self._progress,
        )

    def _stream(self) -> Check:
        return check_stream(
            lambda variant, checked: self._host_session(variant, checked(variant.drawing())),
            self._variants,
            self._prompts,
            self._plan.stream_tokens,
            remark=self._remark,
            ledger=self._ledger,
            progress=self._progress,
        )

    def _host_session(self, variant: Variant, controller: Controller) -> AnySession:
        return self._runner.host_session(variant.draft, controller)

    @property
    def _variants(self) -> list[Variant]:
        shapes = [(length, 0) for length in self._plan.draft_lengths] + [*self._trees]
        return [Variant(kind, depth, nodes) for kind in self._kinds for depth, nodes in shapes]

    @property
    def _rows_found(self) -> Check:
        found = self._ledger.finished("rows")
        return found or self._rows()

    @property
    def _tolerance(self) -> float:
        return 0.0 if self._coarse is None else tie_tolerance(self._rows_found)


def _drafts(runner: Runner, plan: Plan) -> tuple[str, ...]:
    able = tuple(draft for draft in runner.drafts if draft != "none")
    if plan.draft is None:
        return able
    if plan.draft not in able:
        runner.models(plan.draft)  # which refuses what no artifact has
        raise RequestError(
            f"draft {plan.draft!r} cannot be checked here; choose one of {', '.join(able)}"
        )
    return (plan.draft,)


def _integrity(runner: Runner) -> Check:
    """Opening the artifact checked it; here is what was checked."""
    entries = runner.artifact.files.values()
    files, size = len(entries), sum(entry.size for entry in entries)
    return Check(
        "integrity",
        True,
        f"{files} files ({size / 1e6:.0f} MB) as they were built",
        {"identity": runner.manifest.identity, "files": files, "bytes": size},
    )


def _encoded(runner: Runner, texts: Sequence[str], plan: Plan) -> list[list[int]]:
    if not texts:
        raise RequestError("there is no prompt to check with; give at least one")
    room = runner.context - max(plan.tokens, tokens_needed(plan.draft_lengths))
    prompts: list[list[int]] = []
    for number, text in enumerate(texts, 1):
        tokens = runner.encode(text)
        if not 0 < len(tokens) <= room:
            raise RequestError(
                f"prompt {number} has {len(tokens)} tokens; it must have 1 to {room}, which leaves "
                "room for what is checked: use shorter prompts or fewer tokens"
            )
        prompts.append(tokens)
    return prompts
