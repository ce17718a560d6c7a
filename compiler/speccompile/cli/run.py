"""`speccompile run`: generate text, streaming, and say what speculation brought.

This module needs only click and the runtime: it is also the command of an artifact's `run.pyz`,
and `speccompile-run` of its wheel.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import click

from speccompile.cli.options import (
    artifact_argument,
    on_options,
    read_text,
    signature_option,
    threads_option,
)
from speccompile.cli.run_options import (
    Sectioned,
    generation_options,
    make_options,
    speculation_options,
)
from speccompile.cli.run_output import (
    json_document,
    logprobs_table,
    speculation_note,
    statistics_line,
)
from speccompile.runtime.chat import Message
from speccompile.runtime.control.adaptive import AdaptiveController
from speccompile.runtime.control.chains import ChainController
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.control.policies import Policy, PolicyController
from speccompile.runtime.errors import EngineError, RequestError, SpeccompileError
from speccompile.runtime.lossy import LOSSY_RULES
from speccompile.runtime.options import Options
from speccompile.runtime.output import Output
from speccompile.runtime.proof.online import Checked, Watch
from speccompile.runtime.request import Rule
from speccompile.runtime.runner import DRAFT_LENGTH, Runner
from speccompile.runtime.session import AnySession, Session

__all__ = ["command", "main", "main_of_archive"]

_OF_HOST = (
    *("min_new_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "bad_words", "json_schema", "regex", "grammar", "logprobs"),
)
"""Options that need every row of logits on the host."""


@click.command("run", cls=Sectioned, epilog="(*) may be given several times.")
@artifact_argument
@click.argument("prompt", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Read the prompt from a file.")
@click.option("--system", metavar="TEXT", help="System message of the conversation.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without chat template.")
@click.option("--interactive", is_flag=True, help="Hold a conversation; its cache is kept.")
@generation_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document for every output.")
@click.option("-q", "--quiet", is_flag=True, help="Print the output alone, without statistics.")
@speculation_options
@on_options
@signature_option
@threads_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    artifact: Path,
    prompt: str | None,
    file: Path | None,
    system: str | None,
    raw: bool,
    interactive: bool,
    as_json: bool,
    quiet: bool,
    draft: str | None,
    adapt: bool,
    policies: tuple[Policy, ...],
    on: str,
    context: int | None,
    threads: int,
    check: bool,
    require_signature: Path | None,
    **_: object,
) -> None:
    """Generate text with ARTIFACT from PROMPT, from --file, or from standard input.

    The text goes to standard output as it is generated; a line of statistics follows on standard
    error.
    """
    if interactive and (raw or file or as_json):
        raise click.UsageError(
            "--interactive holds a conversation: it takes no --raw, --file and --json"
        )
    options = make_options(ctx.params)
    if interactive and options.n > 1:
        raise click.UsageError("--interactive holds one conversation: it takes no --samples")
    if check and options.rule in LOSSY_RULES:
        raise click.UsageError(f"--check tests for the law that --rule {options.rule} gives up")
    runner = Runner.open(
        artifact, threads=threads, on=on, context=context, require_signature=require_signature
    )
    ctx.call_on_close(runner.close)
    session = runner.session(draft, adaptive=adapt, policies=policies)
    options = _settled(options, runner, session, adapt=adapt, policies=policies)
    if not quiet and (note := speculation_note(runner, draft, options.draft_length)):
        click.echo(note, err=True)
    watch = _watch(session, options) if check else None
    printer = _Printer(runner, session, options, as_json, quiet, watch)
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    if interactive:
        _converse(printer, messages, prompt)
        return
    text = _prompt(prompt, file)
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    printer.print(
        runner.encode_raw(text)
        if raw or (runner.reads_source and not messages)
        else runner.encode_chat([*messages, {"role": "user", "content": text}])
    )


def main_of_archive(artifact: Path) -> int:
    """Run the command on the artifact that holds this archive; returns an exit code."""
    return _run([str(artifact), *sys.argv[1:]], "run.pyz")


def main() -> int:
    """Run the command as a program of its own; returns an exit code."""
    return _run(sys.argv[1:], "speccompile-run")


def _run(arguments: list[str], name: str) -> int:
    try:
        command.main(arguments, prog_name=name, standalone_mode=True)
    except SpeccompileError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    return 0


@dataclass(frozen=True)
class _Printer:
    """Generates and prints what follows a prompt."""

    runner: Runner
    session: AnySession
    options: Options
    as_json: bool
    quiet: bool
    watch: Watch | None

    def print(self, prompt: list[int]) -> str:
        """All outputs; returns the text of the last."""
        text = ""
        for number, output in enumerate(self.runner.outputs(self.session, prompt, self.options)):
            if self.options.n > 1 and not self.as_json and not self.quiet:
                click.echo(f"-- output {number + 1} of {self.options.n}", err=True)
            self._print_output(output, number)
            text = output.text
        return text

    def _print_output(self, output: Output, number: int) -> None:
        for piece in output:
            if not self.as_json:
                click.echo(piece, nl=False)
        tokenizer = self.runner.tokenizer
        if self.as_json:
            click.echo(json_document(tokenizer, output, number))
        else:
            click.echo()
            for line in logprobs_table(tokenizer, output):
                click.echo(line)
        if not self.quiet:
            click.echo(statistics_line(self.runner, output, self._adaptive), err=True)
        if self.watch:
            _judge(self.watch, self.quiet)

    @property
    def _adaptive(self) -> AdaptiveController | None:
        controller: Controller | None = None
        if isinstance(self.session, Session):
            controller = self.session.controller
        while isinstance(controller, ChainController | Checked | PolicyController):
            controller = controller.controller
        return controller if isinstance(controller, AdaptiveController) else None


def _watch(session: AnySession, options: Options) -> Watch:
    """Who is shown all rounds of the session from now on."""
    if not isinstance(session, Session):
        raise RequestError(
            "check: the laws of rounds on a GPU stay there; use --on cpu or --draft ngram"
        )
    watch = Watch()
    controller = session.controller or FixedController(options.draft_length or 0)
    rule: Rule = "token" if options.rule == "token" else "traversal"
    session.controller = Checked(controller, watch, rule)
    return watch


def _judge(watch: Watch, quiet: bool) -> None:
    if refusal := watch.refusal:
        raise EngineError(f"--check: {refusal}; run `speccompile verify` on this host")
    if not quiet:
        click.echo(f"-- check passed over {watch.pit.count} tokens: {watch}", err=True)


def _settled(
    options: Options,
    runner: Runner,
    session: AnySession,
    *,
    adapt: bool,
    policies: tuple[Policy, ...],
) -> Options:
    """The options with what depends on where they are decoded."""
    on_host = isinstance(session, Session)
    if not on_host:
        _refuse_on_gpu(["policies"] if policies else [], options)
    length = options.draft_length
    if length is None and not adapt:
        length = runner.measurements.defaults.draft_length or DRAFT_LENGTH
    # On a GPU a seed means the random numbers of its rounds.
    audited = on_host and options.seed is not None
    return replace(options, draft_length=length, audited=audited)


def _refuse_on_gpu(refused: list[str], options: Options) -> None:
    """Rounds that a GPU does by itself have no way to honour these options."""
    usual = Options()
    refused += [name for name in _OF_HOST if getattr(options, name) != getattr(usual, name)]
    if refused:
        raise RequestError(
            f"{', '.join(refused)}: rounds on a GPU cannot do this; use --on cpu or --draft ngram"
        )


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


def _converse(printer: _Printer, messages: list[Message], opening: str | None) -> None:
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
        answer = printer.print(printer.runner.encode_chat(messages))
        messages.append({"role": "assistant", "content": answer})
        opening = None
