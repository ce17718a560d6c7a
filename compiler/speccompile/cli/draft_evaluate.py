"""`speccompile draft evaluate`: what drafts are worth on a user's prompts."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from speccompile.cli.bench_progress import bench_progress
from speccompile.cli.options import cache_option, threads_option
from speccompile.cli.prompts import SHIPPED_SETS, Prompt, read_sets, select
from speccompile.compiler.cache import default_cache
from speccompile.runtime import host
from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.files import MANIFEST_NAME
from speccompile.runtime.placement import CPU

if TYPE_CHECKING:
    from speccompile.compiler.drafts.evaluation import Evaluation, Progress, Question

__all__ = ["evaluate"]


@click.command("evaluate")
@click.argument(
    "drafts",
    nargs=-1,
    required=True,
    metavar="ARTIFACT|DRAFT...",
    type=click.Path(path_type=Path),
)
@click.option(
    "--prompts",
    "sources",
    multiple=True,
    metavar="FILE|builtin:NAME",
    help="A set of prompts, .txt, .jsonl or .jsonl.gz, or one that ships: "
    f"{', '.join(SHIPPED_SETS)}. Give it again for another domain.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Take only so many prompts.")
@click.option(
    "-n", "--tokens", type=click.IntRange(min=2), default=128, show_default=True, help="Of answers."
)
@click.option(
    "--depth",
    type=click.IntRange(1, 8),
    default=4,
    show_default=True,
    help="Of the chains whose acceptance by position is told.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the figures; - prints them alone.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report for a browser.")
@cache_option
@threads_option
def evaluate(
    drafts: tuple[Path, ...],
    sources: tuple[str, ...],
    limit: int | None,
    tokens: int,
    depth: int,
    json_file: str | None,
    html: Path | None,
    cache: Path | None,
    threads: int,
) -> None:
    """Tell what drafts are worth: those of built artifacts, and folders that `draft distil` wrote.

    The target answers every prompt greedily, and the draft reads the answers: that tells of chains
    and trees of all sizes. An artifact is measured on its own engines, plain and speculative
    decoding in turn; a folder that has not been built has no engine, so its cost is predicted from
    its share of the target's weights. A domain is a set of prompts, or a category of it.
    """
    from speccompile.cli.evaluation_view import evaluation_document, print_evaluations

    if html:
        from speccompile.cli.bench_report import require_drawing

        require_drawing()
    questions = _questions(select(read_sets(sources))[:limit])
    evaluations: list[Evaluation] = []
    for path in dict.fromkeys(drafts):
        with bench_progress() as report:
            evaluated = _evaluator(path, cache or default_cache(), threads)
            evaluations += evaluated(questions, tokens, depth, report)
    conditions = {
        "command": shlex.join(["speccompile", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(" ", "seconds"),
        "host": vars(host.describe()),
        "prompts": len(questions),
        "tokens": tokens,
    }
    document = json.dumps(evaluation_document(conditions, evaluations), indent=1)
    if json_file == "-":
        click.echo(document)
    else:
        print_evaluations(Console(highlight=False), evaluations)
    if json_file and json_file != "-":
        _write(Path(json_file), document + "\n")
    if html:
        from speccompile.cli.evaluation_report import render_evaluations

        _write(html, render_evaluations(conditions, evaluations))
    _refuse_other_words(evaluations)


_Evaluator = Callable[["Sequence[Question]", int, int, "Progress"], "list[Evaluation]"]


def _evaluator(path: Path, cache: Path, threads: int) -> _Evaluator:
    from speccompile.compiler.drafts.folder import DRAFT_FILE

    if (path / MANIFEST_NAME).is_file():

        def artifact(
            questions: Sequence[Question], tokens: int, depth: int, report: Progress
        ) -> list[Evaluation]:
            from speccompile.compiler.drafts.evaluate_artifact import evaluate_artifact
            from speccompile.runtime.runner import Runner

            runner = Runner.open(path, threads=threads, on=CPU)
            settings = {"tokens": tokens, "depth": depth}
            named = {"model": str(path)} | {
                expert: f"{path} ({expert})" for expert in runner.manifest.experts
            }
            return [
                evaluate_artifact(runner, name, questions, **settings, progress=report, draft=draft)
                for draft, name in named.items()
            ]

        return artifact

    if (path / DRAFT_FILE).is_file():

        def folder(
            questions: Sequence[Question], tokens: int, depth: int, report: Progress
        ) -> list[Evaluation]:
            from speccompile.compiler.drafts.evaluate_folder import evaluate_folder

            settings = {"tokens": tokens, "depth": depth}
            return [evaluate_folder(path, questions, **settings, cache=cache, progress=report)]

        return folder
    raise RequestError(
        f"{path}: is neither an artifact ({MANIFEST_NAME}) nor a draft ({DRAFT_FILE}); make one "
        "with `speccompile build` or `speccompile draft distil`"
    )


def _questions(prompts: Sequence[Prompt]) -> list[Question]:
    from speccompile.compiler.drafts.evaluation import Question

    return [Question(prompt.text, prompt.category or prompt.set) for prompt in prompts]


def _refuse_other_words(evaluations: Sequence[Evaluation]) -> None:
    for each in evaluations:
        if each.measured and each.measured.differing:
            numbers = ", ".join(str(index + 1) for index in each.measured.differing)
            raise SpeccompileError(
                f"{each.name}: outputs differ from plain decoding (prompts {numbers}); a speed-up "
                "with different words is none: `speccompile verify` tells what is wrong"
            )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpeccompileError(f"{path}: {error.strerror}") from error
