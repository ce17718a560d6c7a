"""Tune an artifact to this host and to the texts it will serve."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from speccompile.compiler.tune.costs import best_tree, defaults, measure_costs
from speccompile.compiler.tune.fit import Fit, fit, step_microseconds
from speccompile.compiler.tune.store import TUNE_FILE, store
from speccompile.compiler.tune.survey import Survey, survey
from speccompile.runtime.artifact import Artifact
from speccompile.runtime.costmodel import Costs, plain_step_ms
from speccompile.runtime.errors import RequestError
from speccompile.runtime.measurements import Measurements
from speccompile.runtime.request import Request
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Session
from speccompile.runtime.trees.sequoia import Shape
from speccompile.runtime.tuned import PREDICTOR_FILE

__all__ = ["Progress", "Static", "Surveyed", "Tuning", "tune"]

Progress = Callable[[int, int, str], None]
"""Called with the tokens decoded, all tokens at most, and what is done next."""


@dataclass(frozen=True)
class Static:
    """What never adapts: the best chain, the best tree, and the `milliseconds` of plain steps."""

    chain: Shape
    tree: Shape
    milliseconds: float

    def speedup(self, shape: Shape) -> float:
        """Over plain decoding, by the cost table."""
        return shape.tokens * self.milliseconds / shape.milliseconds


@dataclass(frozen=True)
class Surveyed:
    """What `draft` did on the prompts. A draft that gives no signals has no `fit`.

    `acceptance` and `tested` are by position; `rescues` says of the second, third, ... guess how
    often it stood where the first fell. A confidence takes `microseconds`. The fit's predictor is
    `stored` in the artifact only if it met the gates, or was forced.
    """

    draft: str
    prompts: int
    acceptance: tuple[float, ...]
    tested: tuple[int, ...]
    rescues: tuple[float, ...]
    static: Static
    fit: Fit | None = None
    microseconds: float = 0.0
    stored: bool = False


@dataclass(frozen=True)
class Tuning:
    """What was found, and is in the artifact now. Without prompts nothing is `surveyed`."""

    measurements: Measurements
    surveyed: Surveyed | None


def tune(
    runner: Runner,
    prompts: Sequence[Sequence[int]],
    request: Request,
    draft: str,
    *,
    conditions: Mapping[str, object],
    force: bool,
    progress: Progress,
) -> Tuning:
    """Measure costs, decode `prompts` with `draft`, train a predictor, and store all of it.

    The survey lets the artifact's own draft have the measured acceptance. Without prompts only the
    costs are measured. `conditions` are written into the artifact's report beside the figures.
    Until all is done the artifact is as it was. Raises RequestError for a runner on a GPU and for
    prompts that leave nothing to measure a predictor on, SpeccompileError where the artifact cannot
    be written.
    """
    total = len(prompts) * request.max_new_tokens
    progress(0, total, "cost by rows")
    costs, before = measure_costs(runner), runner.measurements
    found, predictor = None, dict[str, bytes]()
    acceptance, experts = before.acceptance, {**before.experts}
    if prompts:
        session = runner.session(draft)
        if not isinstance(session, Session):
            raise RequestError("a draft is tuned on the CPU: open the artifact there")

        def report(number: int, count: int) -> None:
            doing = f"prompt {number + 1} of {len(prompts)}"
            progress(number * request.max_new_tokens + count, total, doing)

        observed = survey(session, prompts, request, report)
        progress(total, total, "training")
        found = _surveyed(runner, observed, draft, costs, request.sampling.seed, force)
        if found.fit and found.stored:
            predictor = {PREDICTOR_FILE: found.fit.predictor.to_bytes()}
        surveyed = tuple(round(share, 4) for share in found.acceptance)
        if draft == ("model" if "draft" in runner.roles else "ngram"):
            acceptance = surveyed
        elif draft in runner.manifest.experts:
            experts[draft] = surveyed
    measurements = replace(
        before,
        cost_ms=costs,
        acceptance=acceptance,
        experts=experts,
        defaults=defaults(
            runner.manifest,
            costs,
            {"draft": acceptance, **experts},
            before.defaults,
            tuned=bool(predictor),
        ),
    )
    figures = _document(runner.artifact, conditions, found)
    store(runner.artifact, measurements, {TUNE_FILE: figures, **predictor})
    return Tuning(measurements, found)


def _surveyed(
    runner: Runner, observed: Survey, draft: str, costs: Mapping[str, Costs], seed: int, force: bool
) -> Surveyed:
    models = runner.models(draft)  # one, or none for what follows from the text
    profile, target = observed.profile(), costs["target"]
    drafting = costs[models[0]] if models else {}
    shares = bool(models) and runner.manifest.engines[models[0]].shares_cache
    chain = best_tree([level[:1] for level in profile], target, drafting, shares_cache=shares)
    tree = best_tree(profile, target, drafting, shares_cache=shares)
    # What an expert's signals mean is not what the draft's do, which a predictor is kept for.
    fits = bool(observed.examples) and draft not in runner.manifest.experts
    fitted = fit(observed.examples, seed) if fits else None
    return Surveyed(
        draft,
        observed.prompts,
        observed.acceptance,
        observed.tested,
        observed.rescues,
        Static(chain, tree, plain_step_ms(target)),
        fitted,
        step_microseconds(fitted.predictor) if fitted else 0.0,
        stored=fitted is not None and (force or not fitted.misses),
    )


def _document(
    artifact: Artifact, conditions: Mapping[str, object], found: Surveyed | None
) -> bytes:
    """`reports/tune.json`; where only costs were measured, what was surveyed before stays."""
    document: dict[str, Any] = {"schema": 1, "survey": None}
    if TUNE_FILE in artifact.files:
        document = json.loads(artifact.path(TUNE_FILE).read_bytes())
    document["costs"] = dict(conditions)
    if found:
        document["survey"] = {**conditions, **_figures(found)}
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _figures(found: Surveyed) -> dict[str, Any]:
    figures = asdict(found)
    for shape in ("chain", "tree"):
        figures["static"][shape]["speedup"] = found.static.speedup(getattr(found.static, shape))
    if found.fit:
        del figures["fit"]["predictor"]
        figures["fit"]["misses"] = found.fit.misses
    return figures
