"""What a draft of some of the target's layers costs, and what speculating with it would bring.

A step reads every weight once, so its cost goes by the layers and by the rows of the head; how much
cheaper than that it is in another precision, an artifact of the same target tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.runtime.artifact import Artifact
from speccompile.runtime.costmodel import Costs, plain_step_ms, predicted_speedup, step_ms
from speccompile.runtime.engines.restricted import read_token_ids
from speccompile.runtime.errors import SpeccompileError

__all__ = ["LONGEST", "Pace", "Prediction", "measured_pace", "weight_share"]

LONGEST = 8
"""The most tokens that a round proposes."""

_FLAT: Costs = {1: 1.0, LONGEST + 1: 1.0}


def weight_share(config: DecoderConfig, layers: int, tokens: int) -> float:
    """Of the weights that a step of the target reads, those that so many layers and a head of
    `tokens` (0: all) read."""
    shapes = tensor_shapes(config)
    layer = sum(prod(shape) for name, shape in shapes.items() if ".layers.0." in name)
    head = config.hidden_size
    whole = config.layers * layer + config.vocab_size * head
    return (layers * layer + (tokens or config.vocab_size) * head) / whole


@dataclass(frozen=True)
class Prediction:
    """Of rounds of the best `length`, over plain decoding; `tokens_per_second` is 0 where nothing
    was measured."""

    cost: float
    length: int
    speedup: float
    tokens_per_second: float

    @property
    def bound(self) -> float:
        """What no acceptance can pass."""
        return 1.0 / self.cost


@dataclass(frozen=True)
class Pace:
    """What a target's steps cost by rows, and how much less than its share of the weights a draft's
    step does (1: nothing is known but the share)."""

    target: Costs = field(default_factory=lambda: _FLAT)
    cheaper: float = 1.0
    measured: bool = False

    def predict(self, share: float, acceptance: Sequence[float]) -> Prediction:
        """With a draft that reads such a `share`, in the target's cache."""
        plain = plain_step_ms(self.target)
        cost = self.cheaper * share
        draft = {1: cost * plain, 2: cost * plain}
        speedups = {
            length: predicted_speedup(length, acceptance, draft, self.target, shares_cache=True)
            for length in range(1, LONGEST + 1)
        }
        length = max(speedups, key=speedups.__getitem__)
        rate = 1000.0 * speedups[length] / plain if self.measured else 0.0
        return Prediction(cost, length, speedups[length], rate)


def measured_pace(artifact: Artifact, config: DecoderConfig, sha256: str) -> Pace:
    """As an artifact of the target of `config` and `sha256` has it. Its draft tells what a step
    costs where that is the target too, or layers of it.

    Raises SpeccompileError for an artifact of another target.
    """
    manifest, costs = artifact.manifest, artifact.measurements.cost_ms
    target = manifest.provenance.get("target")
    if not isinstance(target, dict) or target.get("sha256") != sha256:
        raise SpeccompileError(
            f"{artifact.root}: is of another target than the recipe; give one that was built of it"
        )
    draft = manifest.engines.get("draft")
    if draft is None or not draft.shares_cache:
        return Pace(costs["target"], measured=True)
    tokens = 0
    if draft.token_ids:
        tokens = len(read_token_ids(artifact.path(draft.token_ids), draft.vocab_size))
    ratio = step_ms(costs["draft"], 1) / plain_step_ms(costs["target"])
    return Pace(costs["target"], ratio / weight_share(config, draft.layers, tokens), measured=True)
