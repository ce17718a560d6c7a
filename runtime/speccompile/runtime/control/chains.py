"""For targets that take no trees, or whose rows off the first chain are too coarse to believe."""

from __future__ import annotations

from dataclasses import replace

from speccompile.runtime.control.controller import Controller, Outcome
from speccompile.runtime.drafting.draft import Effort

__all__ = ["ChainController"]


class ChainController:
    """As another decides, but every proposal is a chain."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    def start(self) -> None:
        self.controller.start()

    def effort(self, room: int) -> Effort | None:
        effort = self.controller.effort(room)
        if effort is None:
            return None
        return replace(effort, nodes=min(effort.nodes, effort.depth), branches={}, beside=())

    def learn(self, outcome: Outcome) -> None:
        self.controller.learn(outcome)
