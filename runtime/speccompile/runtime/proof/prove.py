"""The proof that an artifact is lossless: all checks, each resting on those before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from speccompile.runtime.errors import RequestError
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.closeness import row_tolerance
from speccompile.runtime.proof.greedy import check_greedy, tie_tolerance
from speccompile.runtime.proof.rows import check_rollback, check_rows, tokens_needed
from speccompile.runtime.proof.sampled import check_sampling
from speccompile.runtime.runner import CHAT_TEMPLATE_FILE, Runner

__all__ = ["Plan", "prove"]


@dataclass(frozen=True)
class Plan:
    """How much to check: `tokens` after every prompt with each of the `draft_lengths`, and `draws`
    for each test of sampling. `draft` limits greedy decoding to "model" or "ngram"."""

    tokens: int = 24
    draft_lengths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    draws: int = 3000
    draft: str | None = None

    def __post_init__(self) -> None:
        if not self.draft_lengths or min(self.draft_lengths) < 1:
            raise RequestError("the draft lengths to check must be 1 or more; give at least one")
        if self.tokens < 2:
            raise RequestError(
                f"{self.tokens} tokens hold no round of speculation; check 2 or more"
            )
        if self.draws < 1:
            raise RequestError(f"{self.draws} draws test nothing; draw once or more")


def prove(
    runner: Runner, texts: Sequence[str], plan: Plan, progress: Progress = silent
) -> Iterator[Check]:
    """Yield each check when it is done.

    On a GPU rows differ by rounding with the size of their step, and outputs may part at ties.
    Raises RequestError where there is no prompt, or one is too long to be continued.
    """
    prompts = _encoded(runner, texts, plan)
    target = runner.engine("target")
    drafted = "draft" in runner.roles
    coarse = row_tolerance(runner.placement.pair.target.precision) if runner.placement else None
    draft = runner.engine("draft") if drafted else None
    yield _integrity(runner)
    rows = check_rows(
        target, prompts, max(plan.draft_lengths) + 1, tolerance=coarse, progress=progress
    )
    yield rows
    exact = rows.details["bit_equal"] is True
    yield check_rollback(target, prompts, plan.draft_lengths, exact=exact, progress=progress)
    yield check_greedy(
        target,
        runner.session,
        _drafts(plan, drafted),
        prompts,
        plan.draft_lengths,
        tokens=plan.tokens,
        stop_tokens=frozenset(runner.manifest.model.eos_token_ids),
        tolerance=0.0 if coarse is None else tie_tolerance(rows),
        progress=progress,
    )
    yield check_sampling(target, draft, prompts, plan.draws, progress)


def _drafts(plan: Plan, drafted: bool) -> tuple[str, ...]:
    if plan.draft == "model" and not drafted:
        raise RequestError("the artifact has no draft model; check with --draft ngram")
    if plan.draft is not None:
        return (plan.draft,)
    return ("model", "ngram") if drafted else ("ngram",)


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
    chat = CHAT_TEMPLATE_FILE in runner.manifest.files
    room = runner.context - max(plan.tokens, tokens_needed(plan.draft_lengths))
    prompts: list[list[int]] = []
    for number, text in enumerate(texts, 1):
        if chat:
            tokens = runner.encode_chat([{"role": "user", "content": text}])
        else:
            tokens = runner.encode_raw(text)
        if not 0 < len(tokens) <= room:
            raise RequestError(
                f"prompt {number} has {len(tokens)} tokens; it must have 1 to {room}, which leaves "
                "room for what is checked: use shorter prompts or fewer tokens"
            )
        prompts.append(tokens)
    return prompts
