"""The help lists every option once, by section, and can be read in a terminal of 80 columns."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from speccompile.cli.run import command
from speccompile.cli.run_options import SECTIONS, make_options
from speccompile.runtime.control.policies import POLICIES
from speccompile.runtime.options import Options


def _parsed(*arguments: str) -> dict[str, Any]:
    return command.make_context("run", ["artifact", "prompt", *arguments]).params


def test_every_option_is_in_one_section() -> None:
    listed = list(chain.from_iterable(SECTIONS.values()))
    options = [param.name for param in command.params if isinstance(param, click.Option)]
    assert sorted(listed) == sorted(map(str, options))


def test_the_help_fits_a_terminal() -> None:
    text = CliRunner().invoke(command, ["--help"], terminal_width=80).output
    assert max(map(len, text.splitlines())) <= 80
    titles = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert titles == [*SECTIONS, "Help"]
    for name in chain.from_iterable(SECTIONS.values()):
        option = f"--{name.removeprefix('as_').replace('_', '-')}"
        assert len(re.findall(rf"^  (-\w, )?{option}[, ]", text, re.MULTILINE)) == 1, name


def test_without_options_all_are_the_defaults() -> None:
    assert make_options(_parsed()) == Options()


def test_each_option_is_taken_over(tmp_path: Path) -> None:
    grammar = tmp_path / "sum.lark"
    grammar.write_text("start: A", encoding="utf-8")
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "--max-new-tokens": ("9", {"max_new_tokens": 9}),
        "--min-new-tokens": ("3", {"min_new_tokens": 3}),
        "--stop": ("a=", {"stop": ("a=",)}),
        "--stop-token": ("4", {"stop_tokens": (4,)}),
        "--samples": ("2", {"n": 2}),
        "--n": ("2", {"n": 2}),
        "--logprobs": ("0", {"logprobs": 0}),
        "--temperature": ("0.5", {"temperature": 0.5}),
        "--top-k": ("4", {"top_k": 4}),
        "--top-p": ("0.5", {"top_p": 0.5}),
        "--min-p": ("0.5", {"min_p": 0.5}),
        "--seed": ("0", {"seed": 0}),
        "--repetition-penalty": ("1.5", {"repetition_penalty": 1.5}),
        "--presence-penalty": ("-1", {"presence_penalty": -1.0}),
        "--frequency-penalty": ("1", {"frequency_penalty": 1.0}),
        "--logit-bias": ("a=b=-2", {"logit_bias": {"a=b": -2.0}}),
        "--bad-word": ("x", {"bad_words": ("x",)}),
        "--json-schema": (' {"type": "null"}', {"json_schema": ' {"type": "null"}'}),
        "--regex": ("a+", {"regex": "a+"}),
        "--grammar": (str(grammar), {"grammar": "start: A"}),
        "--draft-length": ("0", {"draft_length": 0}),
    }
    for option, (text, expected) in given.items():
        assert make_options(_parsed(option, text)) == Options(**expected), option


def test_a_schema_is_a_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text("true", encoding="utf-8")
    for given in ("true", str(file)):
        assert make_options(_parsed("--json-schema", given)).json_schema == "true"


def test_a_bias_names_a_token_by_its_id_or_its_text() -> None:
    parsed = _parsed("--logit-bias", "42=-1.5", "--logit-bias", " the=3", "--logit-bias", "-1=2")
    assert make_options(parsed).logit_bias == {42: -1.5, " the": 3.0, "-1": 2.0}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("all", ["retry-wider", "halve-and-branch", "certain-at-open-end"]),
        ("retry-wider", ["retry-wider"]),
        ("halve-and-branch, retry-wider,", ["halve-and-branch", "retry-wider"]),
        ("", []),
    ],
)
def test_policies_are_named(given: str, names: list[str]) -> None:
    policies = _parsed("--policies", given)["policies"]
    assert [policy.name for policy in policies] == names
    assert all(policy in POLICIES for policy in policies)
