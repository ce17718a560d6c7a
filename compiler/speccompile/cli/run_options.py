"""The options of `speccompile run`: by section, and what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from speccompile.cli.options import draft_option, read_text
from speccompile.runtime.control.policies import POLICIES, Policy
from speccompile.runtime.options import Options
from speccompile.runtime.request import MOST_LOGPROBS, RULES

__all__ = ["SECTIONS", "Sectioned", "generation_options", "make_options", "speculation_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

SECTIONS: Mapping[str, Sequence[str]] = {
    "Prompt": ("file", "system", "raw", "interactive"),
    "Output": (
        *("max_new_tokens", "min_new_tokens", "stop", "stop_token", "samples", "logprobs"),
        *("as_json", "quiet"),
    ),
    "Choice of tokens": (
        *("temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "bad_word"),
    ),
    "Form (one of them)": ("json_schema", "regex", "grammar"),
    "Speculation": ("draft", "draft_length", "adapt", "policies", "rule", "check"),
    "Where": ("on", "context", "threads", "require_signature"),
}
"""The names of the options, in the order of the help."""


class Sectioned(click.Command):
    """A command whose help lists its options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {
            option.name: option
            for option in self.get_params(ctx)
            if isinstance(option, click.Option)
        }
        listed = {name for names in SECTIONS.values() for name in names}
        others = [name for name in options if name not in listed]
        for title, names in {**SECTIONS, "Help": others}.items():
            records = [options[name].get_help_record(ctx) for name in names]
            with formatter.section(title):
                formatter.write_dl([record for record in records if record])


def generation_options(command: _Command) -> _Command:
    """What to generate: parameters for `make_options`, none of them judged yet."""
    options = (
        click.option("-n", "--max-new-tokens", type=int, default=256, show_default=True),
        click.option("--min-new-tokens", type=int, default=0, help="No end before so many."),
        click.option("--stop", multiple=True, metavar="TEXT", help="End before this text. (*)"),
        click.option(
            "--stop-token", type=int, multiple=True, metavar="ID", help="End at this token. (*)"
        ),
        click.option(
            "--samples", "--n", type=int, default=1, metavar="N", help="Generate N outputs."
        ),
        click.option(
            "--logprobs",
            type=int,
            metavar="N",
            help=f"How likely each token was, and the N best, 0 to {MOST_LOGPROBS}.",
        ),
        click.option("--temperature", type=float, default=0.0, help="0 (greedy) by default."),
        click.option("--top-k", type=int, default=0, help="Only the K most probable; 0 is off."),
        click.option("--top-p", type=float, default=1.0, help="Only the most probable, up to P."),
        click.option(
            "--min-p", type=float, default=0.0, help="Only those with P times the best's chance."
        ),
        click.option(
            "--seed",
            type=int,
            help="Repeatable: the target and this number decide, whatever drafts.",
        ),
        click.option(
            "--repetition-penalty", type=float, default=1.0, help="On prompt and output; 1 is off."
        ),
        click.option("--presence-penalty", type=float, default=0.0, help="On the output, -2 to 2."),
        click.option(
            "--frequency-penalty", type=float, default=0.0, help="The same, for each occurrence."
        ),
        click.option(
            "--logit-bias",
            multiple=True,
            metavar="TOKEN=BIAS",
            help="Add -100 to 100 to the logit of a token, named by id or text. (*)",
        ),
        click.option("--bad-word", multiple=True, metavar="TEXT", help="Never this text. (*)"),
        click.option("--json-schema", metavar="FILE|TEXT", help="JSON that this schema describes."),
        click.option("--regex", metavar="TEXT", help="Text that this expression matches."),
        click.option(
            "--grammar",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Text of this grammar, in Lark's notation.",
        ),
    )
    return _with(command, options)


def speculation_options(command: _Command) -> _Command:
    """How to speculate, which changes no output but in its speed."""
    options = (
        draft_option("Who proposes, by default the artifact's own"),
        click.option("--draft-length", type=int, help="Most tokens ahead; 0 does not speculate."),
        click.option(
            "--adapt/--no-adapt", default=True, help="Draft as much as pays, or the same always."
        ),
        click.option(
            "--policies",
            metavar="LIST",
            callback=_policies,
            help=f"What a rejection changes: {', '.join(_NAMED)} or all.",
        ),
        click.option(
            "--rule",
            type=click.Choice(RULES),
            default="traversal",
            help="How drawn proposals are judged; the lossy ones change the output.",
        ),
        click.option("--check", is_flag=True, help="Test every token against the target's law."),
    )
    return _with(command, options)


def make_options(parameters: Mapping[str, Any]) -> Options:
    """What those of `generation_options`, and the draft length, ask for.

    Raises RequestError for what no model can do, ClickException for a file that cannot be read.
    """
    same = {field.name for field in fields(Options)} & parameters.keys()
    schema, grammar = parameters["json_schema"], parameters["grammar"]
    given: dict[str, Any] = {name: parameters[name] for name in same} | {
        "stop_tokens": parameters["stop_token"],
        "bad_words": parameters["bad_word"],
        "logit_bias": _bias(parameters["logit_bias"]),
        "n": parameters["samples"],
        "json_schema": None if schema is None else _schema(schema),
        "grammar": None if grammar is None else read_text(grammar),
    }
    return Options(**given)


def _with(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


_NAMED: Mapping[str, Policy] = {policy.name: policy for policy in POLICIES}


def _policies(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[Policy, ...]:
    names = [name.strip() for name in (value or "").split(",") if name.strip()]
    if names == ["all"]:
        return tuple(POLICIES)
    for name in names:
        if name not in _NAMED:
            near = get_close_matches(name, _NAMED, 1)
            way_out = f"did you mean {near[0]}?" if near else f"there are {', '.join(_NAMED)}"
            raise click.BadParameter(f"there is no policy {name!r}; {way_out}")
    return tuple(_NAMED[name] for name in dict.fromkeys(names))


def _bias(given: Sequence[str]) -> dict[int | str, float]:
    bias: dict[int | str, float] = {}
    for entry in given:
        name, _, value = entry.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            name = ""
        else:
            token = int(name) if name.isdecimal() else name
            if token in bias:
                raise click.UsageError(f"--logit-bias names {name!r} twice; leave one out")
            bias[token] = number
        if not name:
            raise click.UsageError(f"--logit-bias {entry!r} must be TOKEN=BIAS, as in 42=-1.5")
    return bias


def _schema(given: str) -> str:
    """A text that can be a schema is one; everything else names a file."""
    is_schema = given.lstrip().startswith("{") or given.strip() in ("true", "false")
    return given if is_schema else read_text(Path(given))
