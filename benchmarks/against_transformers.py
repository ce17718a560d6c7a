"""Greedy text of a recipe's model in FP32 against transformers' on the same dequantized weights.

    python -m benchmarks.against_transformers smollm2-135m
    python -m benchmarks.against_transformers recipe.toml --role draft --engine openvino

The engines are made by the compiler's own stages, of the recipe with target.precision = "fp32", and
run by the runtime's `Session`: plainly, and with n-grams that draft. transformers' `generate` runs
the same chat-templated prompts. Token ids are compared. Where they first differ, transformers' own
margin between the two tokens is told: within 1e-4 of the largest logit, which of them is first is
down to the order of sums (arithmetic); beyond, an engine is wrong, and the exit code is 1.

One model is in memory at a time.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from speccompile.cli.progress import stage_progress
from speccompile.cli.prompts import read_prompts
from speccompile.compiler.cache import StageCache, cache_limit, default_cache
from speccompile.compiler.execute import StageResult, run_stages
from speccompile.compiler.pipeline import plan
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.compiler.sources.checkpoint import Checkpoint
from speccompile.compiler.stage import Stage
from speccompile.compiler.stages.compile import Compiled
from speccompile.compiler.stages.load import Loaded
from speccompile.compiler.stages.lower import GRAPH_FILE
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.session import Request, Session
from tests.oracle import Difference, Greedy, chat_tokens, greedy, transformers_model

BACKENDS = ("openvino", "onnxruntime")

# Beyond the prompts that ship: functions to complete, in HumanEval's manner.
FUNCTIONS = (
    ("def common_prefix(words: list[str]) -> str:", "The longest text that all words begin with."),
    ("def is_sorted(values: list[int]) -> bool:", "Whether no value is below the one before it."),
    ("def digits_sum(number: int) -> int:", "The sum of the decimal digits; the sign is ignored."),
    (
        "def rotate(items: list[str], by: int) -> list[str]:",
        "Move the last `by` items to the front.",
    ),
    ("def count_vowels(text: str) -> dict[str, int]:", "How often each vowel occurs, in any case."),
    ("def merge(a: list[int], b: list[int]) -> list[int]:", "Merge two sorted lists into one."),
    ("def collatz(start: int) -> list[int]:", "The Collatz sequence from `start` down to 1."),
    ("def balanced(text: str) -> bool:", "Whether every bracket of (), [] and {} is closed."),
    ("def primes(limit: int) -> list[int]:", "All primes up to `limit`, by Eratosthenes' sieve."),
    ("def run_lengths(text: str) -> list[tuple[str, int]]:", "aab becomes [('a', 2), ('b', 1)]."),
    ("def to_roman(number: int) -> str:", "Roman numeral of a number from 1 to 3999."),
    ("def transpose(rows: list[list[float]]) -> list[list[float]]:", "Rows become columns."),
)


@dataclass
class Outcome:
    """How one way of decoding fared on all prompts; `drafted` counts accepted proposals."""

    decoding: str
    equal: int = 0
    tokens: int = 0
    drafted: int = 0
    differences: dict[int, Difference] = field(default_factory=dict[int, Difference])
    """By the prompt's number, counted from 1."""

    def count(self, prompt: int, expected: Greedy, found: Sequence[int]) -> str:
        difference = expected.difference(found)
        if difference is None:
            self.equal += 1
            self.tokens += len(found)
            return f"{len(found)} tokens equal"
        self.tokens += difference.position
        self.differences[prompt] = difference
        return described(difference)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument("--role", choices=("target", "draft"), default="target")
    parser.add_argument("--engine", choices=(*BACKENDS, "both"), default="both")
    parser.add_argument("--prompts", type=positive, default=20, help="how many")
    parser.add_argument("--prompts-file", type=Path, help=".txt, one a line, or .jsonl")
    parser.add_argument("--tokens", type=positive, default=64, help="to generate per prompt")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        outcomes = compare(arguments)
    except SpeccompileError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    report = (as_json if arguments.json else as_text)(arguments, outcomes)
    print(report)
    wrong = any(not entry.tie for outcome in outcomes for entry in outcome.differences.values())
    return 1 if wrong else 0


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too few; give at least 1")
    return value


def compare(arguments: argparse.Namespace) -> list[Outcome]:
    backends = BACKENDS if arguments.engine == "both" else (arguments.engine,)
    recipe = in_fp32(load_recipe(arguments.recipe), arguments.role, backends)
    texts = prompts(arguments.prompts_file)[: arguments.prompts]
    with StageCache(default_cache(), cache_limit()) as cache:
        with stage_progress(Console(stderr=True)) as observer:
            done = run_stages(needed(recipe), cache, observer)
        checkpoint = Loaded(done["load target"].folder).checkpoint()
        files = checkpoint.tokenizer
        encoded = [chat_tokens(files, text) for text in texts]
        expected = transformers_texts(checkpoint, encoded, arguments.tokens)
        return [
            outcome
            for backend in backends
            for outcome in engine_texts(
                opened(done, backend, recipe.engine.threads),
                backend,
                encoded,
                expected,
                arguments.tokens,
            )
        ]


def in_fp32(recipe: Recipe, role: str, backends: Sequence[str]) -> Recipe:
    """The recipe of one model alone, in full precision, on `backends`, as quick as can be built."""
    model = recipe.target if role == "target" else recipe.draft
    if model is None or model.source == "target":
        raise RequestError(
            f"{recipe.name}: has no draft with weights of its own; use --role target"
        )
    target = {
        "source": model.source,
        "sha256": model.sha256,
        "precision": "fp32",
        "layers": None,
        "outlier_threshold": 0.0,
        "smoothing": 0.0,
        "activations": "dynamic",
    }
    return recipe.model_copy(
        update={
            "target": recipe.target.model_copy(update=target),
            "draft": None,
            "engine": recipe.engine.model_copy(update={"cpu": backends, "memory_gb": None}),
            # Full precision needs no calibration; its stage is asked for as little as it allows.
            "calibrate": recipe.calibrate.model_copy(update={"tokens": 256}),
            "validation": recipe.validation.model_copy(update={"evaluate_tokens": 256}),
        }
    )


def needed(recipe: Recipe) -> list[Stage]:
    """The stages up to open engines; nothing judges or times them."""
    return [stage for stage in plan(recipe) if stage.name.split()[0] not in ("quality", "measure")]


def prompts(path: Path | None) -> list[str]:
    if path:
        return read_prompts(path)
    functions = (
        f'Complete this function:\n\n{head}\n    """{purpose}"""\n' for head, purpose in FUNCTIONS
    )
    return [*read_prompts(), *functions]


def transformers_texts(
    checkpoint: Checkpoint, encoded: Sequence[Sequence[int]], limit: int
) -> list[Greedy]:
    model = transformers_model(checkpoint)
    stop = checkpoint.tokenizer.eos_token_ids
    results: list[Greedy] = []
    for number, prompt in enumerate(encoded, start=1):
        results.append(greedy(model, prompt, limit, stop))
        told(f"transformers {number}/{len(encoded)}: {len(results[-1].tokens)} tokens")
    del model
    gc.collect()
    return results


def opened(done: Mapping[str, StageResult], backend: str, threads: int) -> Engine:
    info = Compiled.read(done[f"compile target {backend}"].folder).engine
    graph = done[f"lower target {backend}"].folder / GRAPH_FILE
    told(
        f"{backend}: rows are exact from {info.min_rows} on"
        if info.min_rows
        else f"{backend}: rows are never exact, so drafting may flip ties"
    )
    return open_engine(info, graph, threads=threads)


def engine_texts(
    engine: Engine,
    backend: str,
    encoded: Sequence[Sequence[int]],
    expected: Sequence[Greedy],
    limit: int,
) -> list[Outcome]:
    outcomes = [Outcome(f"{backend} plain"), Outcome(f"{backend} n-gram")]
    for number, (prompt, wanted) in enumerate(zip(encoded, expected, strict=True), start=1):
        verdicts: list[str] = []
        for outcome, draft in zip(outcomes, (None, NgramDraft()), strict=True):
            session = Session(engine, draft)
            request = Request(limit, draft_length=5 if draft else 0, stop_tokens=wanted.stop)
            found = list(session.generate(prompt, request))
            outcome.drafted += sum(session.statistics.accepted)
            verdicts.append(f"{outcome.decoding.split()[1]} {outcome.count(number, wanted, found)}")
        told(f"{backend} {number}/{len(encoded)}: {'; '.join(verdicts)}")
    return outcomes


def told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def described(difference: Difference) -> str:
    expected, found = (
        "the end" if token is None else token for token in (difference.expected, difference.found)
    )
    verdict = "arithmetic" if difference.tie else "WRONG"
    return (
        f"at token {difference.position + 1} {found} instead of {expected}, whose margin is "
        f"{difference.margin:.1e} of the largest logit: {verdict}"
    )


def as_text(arguments: argparse.Namespace, outcomes: Sequence[Outcome]) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("transformers", "torch", *BACKENDS))
    lines = [f"{arguments.recipe} {arguments.role} in fp32, greedy; {packages}"]
    for outcome in outcomes:
        total = outcome.equal + len(outcome.differences)
        drafted = f"; {outcome.drafted} proposals accepted" if outcome.drafted else ""
        lines.append(
            f"{outcome.decoding}: equal to transformers on {outcome.equal} of {total} prompts, "
            f"{outcome.tokens} tokens{drafted}"
        )
        lines += [
            f"  prompt {number}: {described(difference)}"
            for number, difference in outcome.differences.items()
        ]
    return "\n".join(lines)


def as_json(arguments: argparse.Namespace, outcomes: Sequence[Outcome]) -> str:
    content: dict[str, Any] = {
        "recipe": arguments.recipe,
        "role": arguments.role,
        "tokens": arguments.tokens,
        "versions": {name: version(name) for name in ("transformers", "torch", *BACKENDS)},
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    return json.dumps(content, indent=1)


if __name__ == "__main__":
    sys.exit(main())
