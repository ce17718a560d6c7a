"""validate: run the assembled artifact as a user would, and measure what its claims rest on.

Plain and speculative decoding of the same prompts must give the same tokens; on the way the
acceptance of every draft is counted by position, from which the best draft and length follow.
So must the model and the text in turns, as they draft by default, and several models united.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speccompile.compiler.default_draft import LONGEST_DRAFT, takes_turns
from speccompile.compiler.stages.measure import timed_context
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.draft_names import UNITED
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Request
from speccompile.runtime.statistics import Statistics
from speccompile.runtime.timing import time_rows

__all__ = ["VALIDATE_FILE", "run"]

VALIDATE_FILE = "validate.json"


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `artifact` (its folder), `prompts`, `tokens` (of each), `threads`, `rows`."""
    # Its hashes were computed a moment ago, from these bytes.
    artifact = open_artifact(settings["artifact"], check=False)
    runner = Runner(artifact, threads=settings["threads"])
    experts = artifact.manifest.experts
    draft = "model" if "draft" in artifact.manifest.engines else "ngram"
    counted = {kind: _Counts() for kind in (draft, *experts, *_mixed(artifact.manifest))}
    differing: dict[str, list[str]] = {}
    compared = 0
    prompts = settings["prompts"]
    for number, text in enumerate(prompts, start=1):
        prompt = runner.encode(text)
        settings["report"](f"prompt {number} of {len(prompts)}, plain and speculative")
        expected, _ = _generate(runner, "none", prompt, settings["tokens"])
        compared += len(expected)
        for kind, counts in counted.items():
            actual, statistics = _generate(runner, kind, prompt, settings["tokens"])
            counts.add(statistics)
            if actual != expected:
                differing.setdefault(kind, []).append(text)
    settings["report"]("timing steps of the pair")
    # Measured again, now that both are open as they will be served, and in turn.
    engines = {role: runner.engine(role) for role in artifact.manifest.engines}
    rows: list[int] = settings["rows"]
    model = artifact.manifest.model
    room = min(model.context_length, *(engine.capacity for engine in engines.values()))
    costs = time_rows(engines, timed_context(model.vocab_size, room, rows), rows)
    content = {
        "cost_ms": costs,
        "lossless": not differing,
        "differing_prompts": differing,
        "compared_tokens": compared,
        **counted[draft].figures(),
        "experts": {name: counted[name].figures() for name in experts},
    }
    (folder / VALIDATE_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def _mixed(manifest: Manifest) -> tuple[str, ...]:
    """Those that ask more than one, of what drafts by default or is there to be chosen."""
    if manifest.experts:
        return UNITED
    return ("hedge",) if takes_turns(manifest) else ()


@dataclass
class _Counts:
    """What became of a draft's proposals, by position."""

    proposed: list[int] = field(default_factory=lambda: [0] * LONGEST_DRAFT)
    accepted: list[int] = field(default_factory=lambda: [0] * LONGEST_DRAFT)

    def add(self, statistics: Statistics) -> None:
        for index, count in enumerate(statistics.proposed):
            self.proposed[index] += count
            self.accepted[index] += statistics.accepted[index]

    def figures(self) -> dict[str, object]:
        return {
            "acceptance": [
                round(stood / count, 4)
                for stood, count in zip(self.accepted, self.proposed, strict=True)
                if count
            ],
            "tested_proposals": [count for count in self.proposed if count],
        }


def _generate(
    runner: Runner, draft: str, prompt: list[int], tokens: int
) -> tuple[list[int], Statistics]:
    session = runner.session(draft, adaptive=False)  # every position is to be tested
    request = Request(
        max_new_tokens=tokens,
        draft_length=LONGEST_DRAFT,
        stop_tokens=frozenset(runner.manifest.model.eos_token_ids),
    )
    return list(session.generate(prompt, request)), session.statistics
