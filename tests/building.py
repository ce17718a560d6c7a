"""Builds of tiny models that take seconds: the stages of a real build, in the test's process."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from speccompile.compiler import execute
from speccompile.compiler.build import Built, build
from speccompile.compiler.cache import StageCache
from speccompile.compiler.execute import Observer
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.compiler.stage import Stage
from speccompile.compiler.usage import write_usage
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler

__all__ = ["Builder", "RecordedDraft", "Table", "build_here", "save_model"]

Table = Mapping[str, object]

_PROMPTS = "def f(x):\nThe sky is\nBuild, twice: build\n"
_QUICK: dict[str, Table] = {
    "context": {"length": 256},
    "calibrate": {"tokens": 256},
    "validate": {"tokens": 24, "evaluate_tokens": 256},
}


class Builder:
    """Builds recipes given as tables, all with one cache: what two have in common is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cache = folder / "cache"
        self._count = 0
        self._prompts = folder / "prompts.txt"
        self._prompts.write_text(_PROMPTS, encoding="utf-8")

    def __call__(
        self, observer: Observer | None = None, *, graphs: Path | None = None, **tables: Table
    ) -> Built:
        """The artifact of a recipe with `tables`; what they leave out is made small."""
        folder = self._folder / str(self._count)
        self._count += 1
        folder.mkdir()
        quick = {**_QUICK, "validate": {**_QUICK["validate"], "prompts": str(self._prompts)}}
        merged = {name: {**quick.get(name, {}), **tables.get(name, {})} for name in quick | tables}
        recipe = folder / "recipe.toml"
        recipe.write_text(f'name = "tiny"\n{_toml(merged)}', encoding="utf-8")
        return build_here(
            load_recipe(str(recipe)),
            folder / "artifact",
            cache=self._cache,
            observer=observer,
            graphs=graphs,
        )


def build_here(
    recipe: Recipe,
    destination: Path,
    *,
    cache: Path,
    observer: Observer | None = None,
    graphs: Path | None = None,
) -> Built:
    """`build` with stages in this process, where not even one import more is needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "_run_into", _run_into)
        return build(
            recipe, destination, cache=cache, observer=observer or Observer(), graphs=graphs
        )


class RecordedDraft:
    """A draft that keeps what it proposed, as ``(length of the sequence, tokens)``."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.proposals: list[tuple[int, list[int]]] = []

    @property
    def name(self) -> str:
        return self._draft.name

    @property
    def work(self) -> Work:
        return self._draft.work

    def start(self, prompt: Sequence[int]) -> None:
        self._draft.start(prompt)

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        proposal = self._draft.propose(tokens, effort, sampler)
        self.proposals.append((len(tokens), list(proposal.tokens)))
        return proposal


def save_model(model: Any, folder: Path, tokenizer_of: Path) -> Path:  # noqa: ANN401
    """Write transformers' `model` as a checkpoint folder, with the tokenizer of another."""
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(tokenizer_of / name, folder / name)
    return folder


_in_worker: Callable[..., None] = vars(execute)["_run_into"]
_RISKY = ("library", "plan")
"""Stages with TensorRT, which may end a process, and takes one logger in it."""


def _run_into(
    scratch: Path,
    stage: Stage,
    inputs: Mapping[str, Path],
    cache: StageCache,
    worker: object,
    report: Callable[[str], None],
) -> None:
    if stage.name.split()[0] in _RISKY:
        _in_worker(scratch, stage, inputs, cache, worker, report)
        return
    start = time.perf_counter()
    module, _, function = stage.run.partition(":")
    settings: dict[str, Any] = {**stage.settings, "cache": str(cache.root), "report": report}
    getattr(import_module(module), function)(scratch, inputs, settings)
    write_usage(scratch, time.perf_counter() - start)


def _toml(tables: Mapping[str, Table]) -> str:
    lines: list[str] = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_value(entry)}" for key, entry in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(entry) for entry in value)}]"
    return json.dumps(str(value) if isinstance(value, Path) else value)
