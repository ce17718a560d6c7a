"""Who drafts in a session of an artifact, and who decides how much: by what was measured of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from speccompile.runtime.artifact import Artifact
from speccompile.runtime.control.adaptive import AdaptiveController
from speccompile.runtime.control.controller import Controller
from speccompile.runtime.control.costs import RoundCosts
from speccompile.runtime.control.survival import Survival
from speccompile.runtime.costmodel import Costs, plain_step_ms, step_ms
from speccompile.runtime.draft_names import DRAFTS, UNITED, engine_name
from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.drafting.ensemble import Union
from speccompile.runtime.drafting.hedge import Hedge
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.suffix import SuffixDraft
from speccompile.runtime.errors import RequestError
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.measurements import Measurements
from speccompile.runtime.tuned import read_predictor

__all__ = ["asked_models", "make_controller", "make_draft"]


def asked_models(draft: str, manifest: Manifest) -> tuple[str, ...]:
    """The engines that a draft asks, by name: one of `DRAFTS` or an expert.

    Where there is none, one that needs a model asks for "draft" all the same.
    Raises RequestError for a draft that is neither.
    """
    if draft not in DRAFTS and draft not in manifest.experts:
        known = ", ".join((*DRAFTS, *manifest.experts))
        raise RequestError(f"draft {draft!r} is unknown; choose one of {known}")
    if draft in UNITED:
        return manifest.drafts or ("draft",)
    alone = draft == "model" or draft in manifest.experts
    return (engine_name(draft),) if alone else ()


def make_draft(
    draft: str, artifact: Artifact, asked: Sequence[str], model: Callable[[str], ModelDraft]
) -> Draft | None:
    """A draft of one of the `DRAFTS` or an expert; `model` makes one of each engine that is asked.

    For "none" there is none.
    """
    if draft == "none":
        return None
    if draft == "ngram":
        return NgramDraft()
    if draft == "suffix":
        return SuffixDraft()
    models = [model(name) for name in asked]
    if draft == "union":
        return Union([SuffixDraft()], models)
    if draft == "hedge":
        return Hedge([SuffixDraft()], models, costs=_costs(asked, artifact.measurements))
    return models[0]


def make_controller(
    draft: str, artifact: Artifact, asked: Sequence[str], costs: Mapping[str, Costs]
) -> Controller:
    """Who decides how much that draft proposes, by what was measured and what it sees.

    `costs` are those of the target and of the engines that are asked, as far as they are known.
    """
    # Rounds of several models cost more or less: what is charged at first, rounds soon correct.
    dearest = max(asked, key=lambda name: step_ms(costs.get(name, {}), 1), default="")
    info = artifact.manifest.engines.get(dearest)
    return AdaptiveController(
        RoundCosts(
            costs.get("target", {}),
            costs.get(dearest, {}),
            shares_cache=info is not None and info.shares_cache,
        ),
        Survival(_acceptance(draft, asked, artifact.measurements)),
        # Of a union or a choice of drafts, the signals may not be the first path's.
        read_predictor(artifact) if draft == "model" else None,
    )


def _acceptance(draft: str, asked: Sequence[str], measured: Measurements) -> tuple[float, ...]:
    """That of a round, where it is known: of several models, that of the one used by default."""
    usual = measured.defaults.draft
    if not asked:
        return measured.acceptance if draft == usual else ()
    if usual in ("ngram", "none"):
        return ()
    return measured.of_engine(engine_name(usual if draft in UNITED else draft))


def _costs(models: Sequence[str], measured: Measurements) -> list[float] | None:
    """Of a proposal of the default length by each, in plain steps of the target."""
    costs, length = measured.cost_ms, measured.defaults.draft_length
    if not {"target", *models} <= costs.keys():
        return None
    plain = plain_step_ms(costs["target"])
    return [length * step_ms(costs[name], 1) / plain for name in models]
