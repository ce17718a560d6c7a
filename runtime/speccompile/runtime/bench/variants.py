"""The ways of drafting that a benchmark compares with one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from speccompile.runtime.control.chains import ChainController
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.control.policies import POLICIES, PolicyController

__all__ = ["DEPTHS", "FAMILIES", "PLAIN", "TREES", "Lineup", "Variant", "line_up"]

FAMILIES = ("depths", "trees", "drafters", "policies", "controller")

DEPTHS = (1, 2, 3, 4, 5, 6, 8, 12)
"""Lengths of chains that are the same in every round."""

TREES = ((2, 4), (4, 8), (6, 15))
"""Levels and nodes of trees that are the same in every round, up to a step of 16 rows."""


class Drafting(Protocol):
    """What a line-up needs of a `Runner`."""

    def controller(self, draft: str) -> Controller:
        """A new one that adapts."""
        ...


@dataclass(frozen=True)
class Variant:
    """A draft, one of `Runner.drafts`, and who decides how much it proposes.

    The controller lives through a whole benchmark, as it would in a service, and goes on learning
    from request to request. Nobody decides about plain decoding.
    """

    name: str
    draft: str
    controller: Controller | None


PLAIN = Variant("plain", "none", None)


@dataclass(frozen=True)
class Lineup:
    """What is compared, plain decoding first; the other fields are names of variants.

    `fixed` drafts as many tokens every round as the artifact does by default, `static` are all
    those with chains of one length, and `adaptive` decides by itself. The last are only there where
    they were asked for.
    """

    variants: tuple[Variant, ...]
    fixed: str
    static: tuple[str, ...] = ()
    adaptive: str | None = None


def line_up(
    drafting: Drafting,
    families: Sequence[str],
    *,
    draft: str,
    length: int,
    drafters: Sequence[str],
    trees: bool = True,
) -> Lineup:
    """The variants of some of the `FAMILIES`; always with them, plain decoding and the fixed chain.

    `draft` and `length` are the artifact's own, `drafters` all that it can have. Who drafts is only
    said in the name of a variant where it is not the artifact's own. Without `trees`, which not
    every target takes, all proposals are chains.
    """
    asked = frozenset(families)
    lengths = sorted({*DEPTHS, length}) if "depths" in asked else [length]
    chains = [_fixed(draft, depth) for depth in lengths]
    adaptive = Variant("adaptive", draft, drafting.controller(draft))
    found = [PLAIN, *chains]
    if "trees" in asked and trees:
        found += [_fixed(draft, depth, nodes) for depth, nodes in TREES]
        found.append(
            Variant("adaptive, chains", draft, ChainController(drafting.controller(draft)))
        )
    adapts = bool(asked - {"depths"})
    if adapts:
        found.append(adaptive)
    if "drafters" in asked:
        others = [drafter for drafter in drafters if drafter != draft]
        found += [Variant(f"adaptive {each}", each, drafting.controller(each)) for each in others]
    if "policies" in asked:
        found += _with_policies(drafting, draft, length)
    if not trees:
        found = [_chained(variant) for variant in found]
    return Lineup(
        tuple(found),
        fixed=_fixed(draft, length).name,
        static=tuple(chain.name for chain in chains) if "depths" in asked else (),
        adaptive=adaptive.name if adapts else None,
    )


def _chained(variant: Variant) -> Variant:
    controller = variant.controller
    return replace(variant, controller=controller and ChainController(controller))


def _fixed(draft: str, depth: int, nodes: int | None = None) -> Variant:
    name = f"K={depth}" if nodes is None else f"tree {depth}/{nodes}"
    return Variant(name, draft, FixedController(depth, nodes))


def _with_policies(drafting: Drafting, draft: str, length: int) -> Iterator[Variant]:
    """Each alone and all, with chains of one length; all, with what adapts."""
    name = _fixed(draft, length).name
    for policy in POLICIES:
        controller = PolicyController(FixedController(length), (policy,))
        yield Variant(f"{name} {policy.name}", draft, controller)
    yield Variant(f"{name} all policies", draft, PolicyController(FixedController(length)))
    controller = PolicyController(drafting.controller(draft))
    yield Variant("adaptive, all policies", draft, controller)
