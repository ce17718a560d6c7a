"""The command on an artifact of tables: what goes to which stream, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from speccompile.cli.main import main
from speccompile.runtime.draft_names import DRAFTS
from speccompile.runtime.manifest import parse_manifest
from speccompile.runtime.measurements import Defaults, Measurements, unmeasured
from speccompile.runtime.sampler import Choice, Sampler
from tests.cuda import FakeGpu, give_gpus, give_library
from tests.table_artifact import FOLDER, TARGET, TablePlans, give_tables, write_artifact
from tests.unit.runtime.tables import greedy_ids

PROMPT = "w4 w7 w2"
GREEDY = greedy_ids(TARGET, [4, 7, 2], 12)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    give_tables(monkeypatch)
    return write_artifact(tmp_path / "tiny", {})


@pytest.fixture
def run(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the artifact in this process; returns exit code, output and error output."""

    def run(
        *arguments: object, prompt: str | None = PROMPT, root: Path = root
    ) -> tuple[int, str, str]:
        given = ["speccompile", "run", root, *([prompt, "--raw"] if prompt else []), *arguments]
        monkeypatch.setattr(sys, "argv", [*map(str, given)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def words(ids: list[int]) -> str:
    return "".join(f" w{token}" for token in ids)


def measure(root: Path, changes: Mapping[str, Any]) -> None:
    """Let the artifact have been measured."""
    manifest = parse_manifest((root / "manifest.json").read_bytes(), "manifest.json")
    measured: Measurements = replace(unmeasured(manifest), **changes)
    (root / "measurements.json").write_bytes(measured.to_bytes())


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_text_is_the_output_and_the_statistics_are_not(run: Run, draft: str) -> None:
    code, out, err = run("-n", 12, "--draft", draft)
    assert (code, out) == (0, words(GREEDY) + "\n")
    assert "-- 12 tokens (length), first after" in err
    assert run("-n", 12, "--draft", draft, "--quiet") == (0, words(GREEDY) + "\n", "")


@pytest.mark.parametrize(
    "options",
    [
        ("--repetition-penalty", 1.5, "--stop-token", 5),
        ("--presence-penalty", 1, "--frequency-penalty", 0.5),
        ("--logit-bias", "5=-3", "--logit-bias", "w1=2"),
        ("--bad-word", "w5", "--bad-word", "w3 w3"),
        ("--stop", "w3 w3", "--min-new-tokens", 7, "--presence-penalty", 1),
        ("--temperature", 1, "--seed", 7),
        ("--temperature", 1, "--seed", 8, "--top-k", 3, "--top-p", 0.9, "--min-p", 0.05),
    ],
)
def test_options_are_honoured_and_a_seed_repeats_whoever_drafts(
    run: Run, options: tuple[object, ...]
) -> None:
    bare = run("-q", "-n", 30, "--draft", "none")[1]
    plain = run("-q", "-n", 30, "--draft", "none", *options)[1]
    assert plain != bare
    for how in (
        ("--draft", "model", "--draft-length", 3, "--no-adapt"),
        ("--draft", "union", "--policies", "all"),
        ("--draft", "ngram", "--check"),
    ):
        assert run("-q", "-n", 30, *how, *options)[1] == plain


def test_without_a_seed_one_is_taken_and_told(run: Run) -> None:
    outputs = [run("-n", 20, "--temperature", 2) for _ in range(4)]
    assert len({out for _, out, _ in outputs}) > 1
    assert all(", seed " in err for _, _, err in outputs)
    assert ", seed " not in run("-n", 20)[2]


def test_json_has_a_document_for_every_sample(run: Run) -> None:
    options = ("--json", "--logprobs", 2, "--temperature", 1, "--seed", 4, "-n", 9)
    code, out, _ = run(*options, "--samples", 3, "--draft", "model")
    documents: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [document["sample"] for document in documents] == [0, 1, 2]
    assert len({document["text"] for document in documents}) == 3
    for document in documents:
        assert document["text"] == words(document["tokens"])
        assert (document["finish"], document["seed"]) == ("length", 4)
        assert len(document["tokens"]) == len(document["logprobs"]) == 9
        for token, entry in zip(document["tokens"], document["logprobs"], strict=True):
            assert (entry["token"], entry["text"]) == (token, f"w{token}")
            assert len(entry["top"]) == 2
        statistics = document["statistics"]
        assert statistics["new_tokens"] == 9
        assert sum(statistics["accepted"]) + statistics["rounds"] >= 8
    assert json.loads(run("--json", "-n", 2)[1])["logprobs"] is None


def test_samples_are_told_apart(run: Run) -> None:
    _, out, err = run("--n", 2, "--temperature", 1, "-n", 5)
    assert len(out.splitlines()) == 2
    assert "-- output 1 of 2\n" in err
    assert "-- output 2 of 2\n" in err


def test_logprobs_are_a_table_below_the_text(run: Run) -> None:
    text, *rows = run("--logprobs", 1, "-n", 4)[1].splitlines()
    assert text == words(GREEDY[:4])
    assert [row.split()[0] for row in rows] == [f'"w{token}"' for token in GREEDY[:4]]
    assert all(len(row.split()) == 4 for row in rows)  # the token, its value, the best, its value


@pytest.mark.parametrize("rule", ["traversal", "token"])
def test_a_check_passes_and_says_what_it_saw(run: Run, rule: str) -> None:
    how = ("--temperature", 1, "-n", 30, "--draft", "model", "--no-adapt", "--rule", rule)
    code, _, err = run("--check", *how)
    assert code == 0
    assert re.search(r"^-- check passed over 29 tokens: KS 0\.\d+ ", err, re.MULTILINE)


def test_a_check_fails_where_another_token_comes_than_the_target_chooses(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(sampler: Sampler, *of: object) -> Choice:
        return Choice(0, np.inf)

    monkeypatch.setattr(Sampler, "choose", choose)
    code, out, err = run("--check", "-n", 12, "--draft", "none")
    assert (code, out) == (5, words([0] * 12) + "\n")
    assert "error: --check: 11 tokens that their law excludes; run `speccompile verify`" in err


def test_policies_are_counted(run: Run) -> None:
    how = ("--draft", "ngram", "--no-adapt", "--temperature", 0.5, "--seed", 1, "-n", 40)
    named = run(*how, "--policies", "certain-at-open-end, halve-and-branch", "--samples", 4)[2]
    assert re.search(r"halve-and-branch \d+x", named)
    assert "x" not in run(*how)[2].partition("acceptance")[2]


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (("--draft", "none"), "-- speculation is off, though there is a draft model: --draft none"),
        (
            ("--draft", "model", "--draft-length", 0),
            "-- speculation is off, though there is a draft model: --draft-length 0",
        ),
        ((), "-- speculation is off: nothing was measured; --draft model turns it on"),
    ],
)
def test_a_draft_that_is_not_used_is_told_of_in_one_line(
    run: Run, options: tuple[object, ...], note: str
) -> None:
    first, *others = run(*options)[2].splitlines()
    assert first == note
    assert not any("speculation is" in line for line in others)


def test_a_draft_that_did_not_pay_is_told_of(run: Run, root: Path) -> None:
    measure(root, {"cost_ms": {"target": {1: 1.0}}})
    first, *_ = run()[2].splitlines()
    assert first.startswith("-- speculation is off: it did not pay when it was measured; --draft")


def test_a_draft_that_is_used_is_no_news(run: Run, root: Path) -> None:
    assert "speculation is" not in run("--draft", "model")[2]
    costs = {"target": {1: 1.0, 2: 1.0}, "draft": {1: 0.1}}
    measure(root, {"cost_ms": costs, "defaults": Defaults("model", 4)})
    assert "speculation is" not in run()[2]


def test_speculation_that_does_not_pay_stops_and_says_why(run: Run, root: Path) -> None:
    costs = {
        "target": {rows: 1.0 * rows for rows in range(1, 17)},
        "draft": {1: 5.0, 2: 5.0},
    }
    measure(root, {"cost_ms": costs, "acceptance": (0.5,), "defaults": Defaults("model", 4)})
    _, _, err = run("-n", 12)
    assert "rounds without proposals, speculation did not pay: a proposal costs " in err


@pytest.fixture
def on_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Run:
    """As `run`, with plans on a GPU."""
    root = write_artifact(tmp_path / "planned")
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))
    give_library(monkeypatch, "1.7.1.116")
    give_gpus(monkeypatch, FakeGpu())
    monkeypatch.setattr("speccompile.runtime.runner._open_plans", TablePlans())
    return partial(run, "--on", FOLDER, root=root)


def test_a_gpu_samples_by_a_seed_and_says_where_it_runs(on_gpu: Run) -> None:
    options = ("-n", 12, "--temperature", 1, "--draft", "model", "--seed")
    code, out, err = on_gpu(*options, 3)
    assert code == 0
    assert err.rstrip().endswith(f", seed 3, on {FOLDER}")
    assert on_gpu(*options, 3)[1] == out
    assert len({on_gpu(*options, seed)[1] for seed in range(6)}) > 1
    _, samples, _ = on_gpu(*options, 3, "--samples", 3)
    assert samples.splitlines()[0] == out.rstrip("\n")
    assert len(set(samples.splitlines())) > 1


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--logprobs", 0), "logprobs"),
        (("--repetition-penalty", 1.1, "--logit-bias", "1=1"), "repetition_penalty, logit_bias"),
        (("--policies", "all"), "policies"),
        (("--check",), "check"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused_by_name_and_done_elsewhere(
    on_gpu: Run, options: tuple[object, ...], names: str
) -> None:
    code, out, err = on_gpu("--draft", "model", *options)
    assert (code, out) == (2, "")
    assert f"error: {names}: " in err
    assert "use --on cpu or --draft ngram" in err
    assert on_gpu("--draft", "ngram", "-n", 4, *options)[0] == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--min-p", 2), 2, "error: min_p is 2.0; it must be from 0 to 1"),
        (("--logprobs", 21), 2, "error: logprobs is 21; it must be from 0 to 20"),
        (("--samples", 0), 2, "error: n is 0; it must be from 1 to 128"),
        (("--stop", ""), 2, "error: stop has an empty text; leave it out"),
        (("--stop-token", 8), 2, "error: stop_tokens names token 8; tokens are from 0 to 7"),
        (("--logit-bias", "5"), 2, "--logit-bias '5' must be TOKEN=BIAS, as in 42=-1.5"),
        (("--logit-bias", "5=x"), 2, "--logit-bias '5=x' must be TOKEN=BIAS"),
        (("--logit-bias", "5=1", "--logit-bias", "5=2"), 2, "--logit-bias names '5' twice"),
        (("--policies", "retry"), 2, "no policy 'retry'; did you mean retry-wider?"),
        (("--json-schema", "none.json"), 1, "none.json: No such file or directory"),
        (("--grammar", "none.lark"), 1, "none.lark: No such file or directory"),
        (("--regex", "a", "--json-schema", "{}"), 2, "json_schema and regex exclude each other"),
        (("--regex", "a"), 2, "error: a grammar needs a stop token to end with; name one"),
        (("--interactive",), 2, "--interactive holds a conversation: it takes no --raw"),
    ],
)
def test_a_mistake_is_told_in_a_line_without_output(
    run: Run, options: tuple[object, ...], code: int, message: str
) -> None:
    ended, out, err = run(*options)
    assert (ended, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_a_conversation_takes_one_output(run: Run) -> None:
    code, _, err = run("--interactive", "--samples", 2, prompt=None)
    assert code == 2
    assert "--interactive holds one conversation: it takes no --samples" in err
