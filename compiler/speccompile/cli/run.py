"""`speccompile run`: generate text, streaming, and say what speculation brought.

This module needs only click and the runtime: it is also the command of an artifact's `run.pyz`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from speccompile.cli.options import artifact_argument, on_options, read_text, threads_option
from speccompile.runtime.chat import Message
from speccompile.runtime.costmodel import plain_step_ms
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.runner import DRAFTS, Runner
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import AnySession, Request

__all__ = ["command", "main_of_archive"]


@click.command("run")
@artifact_argument
@click.argument("prompt", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Read the prompt from a file.")
@click.option("--system", help="System message of the conversation.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without chat template.")
@click.option("--interactive", is_flag=True, help="Hold a conversation; its cache is kept.")
@click.option("-n", "--max-new-tokens", type=click.IntRange(min=0), default=256, show_default=True)
@click.option("--temperature", type=float, default=0.0, help="0 (greedy) by default.")
@click.option("--top-k", type=click.IntRange(min=0), default=0, help="0 keeps every token.")
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--stop", multiple=True, help="End before this text; may be given several times.")
@click.option("--draft", type=click.Choice(DRAFTS), help="Who proposes; default: the artifact's.")
@click.option("--draft-length", type=click.IntRange(min=0), help="Most proposals a round.")
@click.option("-q", "--quiet", is_flag=True, help="Print the text alone, without statistics.")
@on_options
@threads_option
@click.pass_context
def command(
    ctx: click.Context,
    artifact: Path,
    prompt: str | None,
    file: Path | None,
    system: str | None,
    raw: bool,
    interactive: bool,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    stop: tuple[str, ...],
    draft: str | None,
    draft_length: int | None,
    quiet: bool,
    on: str,
    context: int | None,
    threads: int,
) -> None:
    """Generate text with ARTIFACT from PROMPT, from --file, or from standard input.

    The text goes to standard output as it is generated; a line of statistics follows on standard
    error.
    """
    if interactive and (raw or file):
        raise click.UsageError(
            "--interactive holds a conversation: it takes no --raw and no --file"
        )
    sampling = Sampling(temperature, top_k, top_p, seed)
    runner = Runner.open(artifact, threads=threads, on=on, context=context)
    ctx.call_on_close(runner.close)
    defaults = runner.measurements.defaults
    request = Request(
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        draft_length=defaults.draft_length if draft_length is None else draft_length,
        stop_tokens=frozenset(runner.manifest.model.eos_token_ids),
    )
    session = runner.session(draft)
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    if interactive:
        _converse(runner, session, request, stop, messages, prompt, quiet)
        return
    text = _prompt(prompt, file)
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    tokens = (
        runner.encode_raw(text)
        if raw
        else runner.encode_chat([*messages, {"role": "user", "content": text}])
    )
    _generate(runner, session, tokens, request, stop, quiet)


def main_of_archive(artifact: Path) -> int:
    """Run the command on the artifact that holds this archive."""
    try:
        command.main([str(artifact), *sys.argv[1:]], prog_name="run.pyz", standalone_mode=True)
    except SpeccompileError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    return 0


def _prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is not None:
        raise click.UsageError("give the prompt as an argument or with --file, not both")
    if file is not None:
        return read_text(file)
    if prompt is not None and prompt != "-":
        return prompt
    if sys.stdin.isatty():
        raise click.UsageError(
            "no prompt; give it as an argument, with --file or on standard input"
        )
    return sys.stdin.read()


def _converse(
    runner: Runner,
    session: AnySession,
    request: Request,
    stop: Sequence[str],
    messages: list[Message],
    opening: str | None,
    quiet: bool,
) -> None:
    """Take turns until the end of input; the cache of earlier turns is kept."""
    click.echo("A conversation; end it with Ctrl-D.", err=True)
    while True:
        if opening is None:
            try:
                opening = click.prompt("you", prompt_suffix="> ", err=True)
            except click.Abort:
                click.echo(err=True)
                return
        messages.append({"role": "user", "content": str(opening)})
        tokens = runner.encode_chat(messages)
        answer = _generate(runner, session, tokens, request, stop, quiet)
        messages.append({"role": "assistant", "content": answer})
        opening = None


def _generate(
    runner: Runner,
    session: AnySession,
    tokens: list[int],
    request: Request,
    stop: Sequence[str],
    quiet: bool,
) -> str:
    pieces: list[str] = []
    for piece in runner.stream(session, tokens, request, stop):
        click.echo(piece, nl=False)
        pieces.append(piece)
    click.echo()
    if not quiet:
        click.echo(_statistics_line(runner, session), err=True)
    return "".join(pieces)


def _statistics_line(runner: Runner, session: AnySession) -> str:
    statistics = session.statistics
    facts = [
        f"{statistics.new_tokens} tokens ({session.finish})",
        f"first after {statistics.first_token_seconds * 1e3:.0f} ms",
    ]
    if statistics.decode_seconds:
        facts.append(f"{statistics.tokens_per_second:.1f} tokens/s")
        if any(statistics.proposed):
            facts.append(f"acceptance {statistics.acceptance:.2f}")
            facts.append(f"{statistics.accepted_length:.2f} tokens a round")
            if runner.placement is None:  # what was measured are the CPU's engines
                plain = plain_step_ms(runner.measurements.cost_ms.get("target", {}))
                speedup = statistics.tokens_per_second * plain / 1e3
                facts.append(f"{speedup:.2f}x the plain speed measured at build")
    if statistics.reused_tokens:
        facts.append(
            f"{statistics.reused_tokens} of {statistics.prompt_tokens} prompt tokens cached"
        )
    if runner.manifest.gpus:  # else there is nothing to choose
        facts.append(f"on {runner.on}")
    return "-- " + ", ".join(facts)
