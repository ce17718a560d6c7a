"""Which of a target's layers to keep: those that are missed least go, one after the other.

Without a layer, the rest says something else; how much of the target's law it still meets, 1 - TV,
is the acceptance of tokens that it draws. The search is greedy, and its curve, from all layers
down, is also what tells how many to keep.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.drafts.decoder import Context, Decoder, Places
from speccompile.compiler.drafts.lesson import Lesson, loss_of
from speccompile.compiler.drafts.prediction import Pace
from speccompile.compiler.drafts.shared_student import committed
from speccompile.compiler.drafts.target_caches import read_by

__all__ = ["LayerSearch", "LayerSet", "fastest", "removed_at_once"]


@dataclass(frozen=True)
class LayerSet:
    """Layers of a target, and how much of its law they meet without any training."""

    layers: tuple[int, ...]
    overlap: float


@dataclass
class LayerSearch:
    """Removes layers of `target` as they are missed least on `lessons`, so many `at_once`; its
    `head` has the rows of the lessons' vocabulary. The layers left work in the target's cache.

    What was found is kept in `file`, and gone on from there.
    """

    target: Decoder
    head: Tensor
    lessons: Sequence[Lesson]
    at_once: int
    file: Path
    found: list[LayerSet] = field(default_factory=list[LayerSet])

    def __post_init__(self) -> None:
        if self.file.exists():
            content = json.loads(self.file.read_text(encoding="utf-8"))
            self.found = [LayerSet(tuple(each["layers"]), each["overlap"]) for each in content]

    def run(self, count: int, report: Callable[[int, float], None]) -> Sequence[LayerSet]:
        """The sets from all layers down to `count`, each within the one before it.

        `report` is told how many layers are left, and the share of the round that is done.
        """
        if not self.found:
            every = tuple(range(self.target.config.layers))
            self._keep(every, self._round(every, (), report)[0])
        while len(layers := self.found[-1].layers) > count:
            _, without = self._round(layers, layers, report)
            least = sorted(layers, key=lambda layer: -without[layer])
            gone = least[: min(self.at_once, len(layers) - count)]
            left = tuple(layer for layer in layers if layer not in gone)
            if len(gone) == 1:
                self._keep(left, without[gone[0]])
            else:
                self._keep(left, self._round(left, (), report)[0])
        return [each for each in self.found if len(each.layers) >= count]

    @torch.no_grad()
    def _round(
        self, layers: Sequence[int], tried: Sequence[int], report: Callable[[int, float], None]
    ) -> tuple[float, dict[int, float]]:
        """How much of the law `layers` meet, and how much without each of those `tried`."""
        total, rows = 0.0, 0
        without = dict.fromkeys(tried, 0.0)
        for number, lesson in enumerate(self.lessons):
            read = read_by(self.target, lesson.tokens, range(self.target.config.layers))
            seen = committed(lesson.tokens.shape[1], number)
            context = Context(read.keys.unbind(), read.values.unbind(), seen)
            start, places = self.target.begin(lesson.tokens, context=context)
            states = [start]
            for layer in layers:
                states.append(self.target.layer(layer, states[-1], places, context=context))
            total += self._overlap(states[-1], lesson)
            for at, layer in enumerate(without):
                rest = self._through(layers[at + 1 :], states[at], places, context)
                without[layer] += self._overlap(rest, lesson)
                done = number + (at + 1) / len(layers)
                report(len(layers), done / len(self.lessons))
            rows += len(lesson.likeliest)
        return total / rows, {layer: overlap / rows for layer, overlap in without.items()}

    def _through(
        self, layers: Sequence[int], rows: Tensor, places: Places, context: Context
    ) -> Tensor:
        for layer in layers:
            rows = self.target.layer(layer, rows, places, context=context)
        return rows

    def _overlap(self, rows: Tensor, lesson: Lesson) -> float:
        """The sum of 1 - TV over the lesson's rows."""
        hidden = self.target.end(rows[lesson.rows])
        logits = self.target.logits(hidden, self.head).float()
        return float(loss_of(logits, lesson).overlap) * len(logits)

    def _keep(self, layers: tuple[int, ...], overlap: float) -> None:
        self.found.append(LayerSet(layers, overlap))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_suffix(".partial")
        content = json.dumps([asdict(each) for each in self.found], indent=1)
        partial.write_text(content, encoding="utf-8")
        partial.replace(self.file)


def removed_at_once(layers: int, count: int, evaluations: int) -> int:
    """The fewest to remove a round for no more `evaluations` in all, one for each layer that is
    left in a round; a first round is always made."""
    for step in range(1, layers - count):
        if sum(range(layers, count, -step)) <= evaluations:
            return step
    return max(layers - count, 1)


def fastest(found: Sequence[LayerSet], shares: Sequence[float], pace: Pace) -> LayerSet:
    """Of sets, all layers first, the one smaller than that which is predicted to be fastest, where
    a step of each reads such a share of the weights.

    A token is taken to stand as often as the law is met, of what all layers meet: the rest was not
    kept of the law.
    """
    return max(
        zip(found[1:], shares[1:], strict=True),
        key=lambda each: pace.predict(each[1], [each[0].overlap / found[0].overlap]).speedup,
    )[0]
