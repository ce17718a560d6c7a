"""The self-test of plans on the GPU that is to run them.

Plans are built where they cannot be run, by libraries that have computed wrong tokens before. So
their own GPU has to show first that they say what the artifact's engines for the CPU say, that the
plugins' kernels judge as their oracle does, and that speculation changes nothing but at ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from speccompile.plugins.schema import Rule
from speccompile.runtime import host
from speccompile.runtime.artifact import Artifact
from speccompile.runtime.device_engines import DeviceEngines, OpenPlans, open_on_gpu
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.errors import EngineError
from speccompile.runtime.gpus import PlanPair
from speccompile.runtime.manifest import PlanInfo
from speccompile.runtime.placement import Placement
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.closeness import closeness, row_tolerance
from speccompile.runtime.proof.equality import check_equality, tie_tolerance
from speccompile.runtime.proof.kernels import check_kernels
from speccompile.runtime.proof.rows import check_rollback, check_rows
from speccompile.runtime.proof.variants import Variant
from speccompile.runtime.runner import Runner
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import AnySession, Request, Session
from speccompile.runtime.statistics import Statistics

__all__ = ["SelfTest", "check_plans", "expected_logits", "self_test"]

_SAMPLE_ROWS = 48
_PROMPTS = 3
_TOKENS = 48  # after each prompt
_LONGEST_DRAFT = 8
_SAMPLING = Sampling(0.8, top_p=0.95, seed=1)


@dataclass(frozen=True)
class SelfTest:
    """The checks of a folder's plans, by the capacity of the target."""

    folder: str
    checks: Mapping[int, Sequence[Check]]

    @property
    def passed(self) -> bool:
        return self.refusal is None

    @property
    def refusal(self) -> str | None:
        """What failed first, in one line."""
        for capacity, checks in self.checks.items():
            for check in checks:
                if not check.passed:
                    return f"plans of {capacity} slots, {check.name}: {check.summary}"
        return None

    @property
    def figures(self) -> dict[str, object]:
        """All that was found, as JSON."""
        return {
            str(capacity): [asdict(check) for check in checks]
            for capacity, checks in self.checks.items()
        }


def self_test(
    artifact: Artifact,
    placements: Sequence[Placement],
    *,
    threads: int = 0,
    open_plans: OpenPlans = open_on_gpu,
    progress: Progress = silent,
) -> SelfTest:
    """Test the plans of one folder, those of one capacity after the other, each opened anew.

    Raises CompatibilityError where the engines for the CPU, which it compares with, cannot run
    here. What a GPU or its library refuses is a check that failed.
    """
    host.check(artifact.manifest.requires)
    progress("the CPU's engines", 0, 1)
    runner = Runner(artifact, threads=threads)
    vocab_size = artifact.manifest.model.vocab_size
    expected = expected_logits({role: runner.engine(role) for role in runner.roles}, vocab_size)
    del runner  # its engines are large, and have said what they were asked for
    draft_length = artifact.measurements.defaults.draft_length
    found: dict[int, list[Check]] = {}
    for placement in placements:
        checks = found[placement.pair.capacity] = []
        progress("opening the plans", 0, 1)
        try:
            device = open_plans(artifact, placement)
            try:
                for check in check_plans(device, placement.pair, expected, draft_length, progress):
                    checks.append(check)
            finally:
                device.close()
        except EngineError as error:
            checks.append(Check("engine", False, str(error), {}))
    return SelfTest(placements[0].folder, found)


def expected_logits(engines: Mapping[str, Engine], vocab_size: int) -> dict[str, Logits]:
    """What engines by role, with nothing in their caches, say of the sample: [N, V]."""
    sample = _sample(vocab_size)
    return {
        role: engine.step(sample[: engine.capacity // 2]).copy() for role, engine in engines.items()
    }


def check_plans(
    device: DeviceEngines,
    pair: PlanPair,
    expected: Mapping[str, Logits],
    draft_length: int,
    progress: Progress = silent,
) -> Iterator[Check]:
    """Yield each check of open plans when it is done; `expected` is of `expected_logits`.

    Rounds of `draft_length` proposals are tested, and of one. Raises EngineError.
    """
    target = pair.target
    rules: list[Rule] = list(dict.fromkeys(plan.rule for plan in pair.plans))
    yield check_kernels(device.device, rules, device.logits_type, target.vocab_size, progress)
    for index, plan in enumerate(pair.plans):
        progress("logits", index, len(pair.plans))
        yield _check_logits(plan, device.engine(plan.role), expected[plan.role])
    engine, prompts = device.engine("target"), _prompts(target)
    most = min(draft_length or 4, _LONGEST_DRAFT, target.rows - 1)
    rows = check_rows(
        engine, prompts, most + 1, tolerance=row_tolerance(target.precision), progress=progress
    )
    yield rows
    yield check_rollback(engine, prompts, (most,), exact=False, progress=progress)
    tokens = min(_TOKENS, target.capacity // 2)
    kind = "model" if pair.draft else "ngram"
    yield check_equality(
        "greedy",
        engine,
        lambda variant: _session(device, pair, variant.draft),
        [Variant(kind, length) for length in sorted({1, most})],
        prompts,
        tokens=tokens,
        tolerance=tie_tolerance(rows),
        progress=progress,
    )
    yield _check_rounds(device, pair, prompts, most, tokens, progress)


def _check_logits(plan: PlanInfo, engine: Engine, expected: Logits) -> Check:
    """One step of as many rows of the sample as half of the cache holds."""
    rows = min(len(expected), plan.capacity // 2)
    actual = engine.step(_sample(plan.vocab_size)[:rows])
    found = closeness(expected[:rows], actual)
    refusal = found.refusal(plan.precision)
    measured = f"relative error {_number(found.relative_error)}, KL {_number(found.kl_divergence)}"
    return Check(
        f"{plan.role} logits",
        refusal is None,
        f"{rows} rows against the CPU's: {refusal or measured}, first choice equal in "
        f"{found.top1_agreement:.0%}",
        {"rows": rows, "precision": plan.precision, **asdict(found)},
    )


def _check_rounds(
    device: DeviceEngines,
    pair: PlanPair,
    prompts: Sequence[Sequence[int]],
    draft_length: int,
    tokens: int,
    progress: Progress,
) -> Check:
    """Rounds as they are served, captured and replayed: plain, speculative, and sampled twice."""
    kind = "model" if pair.draft else "none"
    plain = Request(tokens, draft_length=0)
    speculative = Request(tokens, draft_length=draft_length)
    sampled = Request(tokens, _SAMPLING, draft_length=draft_length)
    runs: dict[str, list[Statistics]] = {"plain": [], "speculative": [], "sampled": []}
    complete = repeated = True
    for index, prompt in enumerate(prompts):
        progress("rounds", index, len(prompts))
        outputs: list[list[int]] = []
        for name, request in (
            ("plain", plain),
            ("speculative", speculative),
            ("sampled", sampled),
            ("sampled", sampled),
        ):
            session = _session(device, pair, kind)
            outputs.append(list(session.generate(prompt, request)))
            runs[name].append(session.statistics)
        known = [0 <= token < pair.target.vocab_size for output in outputs for token in output]
        complete = complete and all(known) and len(known) == tokens * len(outputs)
        repeated = repeated and outputs[-1] == outputs[-2]
    rounds = sum(run.rounds for each in runs.values() for run in each)
    speeds = {name: _speed(each) for name, each in runs.items()}
    return Check(
        "rounds",
        complete and rounds > 0,
        f"{rounds} replayed: {speeds['plain']:.0f} tokens/s plain, {speeds['speculative']:.0f} "
        f"speculative; sampled ones {'are the same' if repeated else 'differ'} with the same seed"
        f"{'' if complete else '; tokens are missing, or none of the vocabulary'}",
        {
            "rounds": rounds,
            "tokens_per_second": speeds,
            "repeated": repeated,
            "draft_length": draft_length,
            "prompt_tokens": len(prompts[0]),
        },
    )


def _session(device: DeviceEngines, pair: PlanPair, kind: str) -> AnySession:
    if kind == "ngram":
        return Session(device.engine("target"), NgramDraft())
    return device.session(drafting=kind == "model", context=pair.capacity)


def _speed(runs: Sequence[Statistics]) -> float:
    seconds = sum(run.decode_seconds for run in runs)
    return round(sum(run.decode_tokens for run in runs) / seconds, 1) if seconds else 0.0


def _sample(vocab_size: int) -> list[int]:
    """Arbitrary tokens, always the same."""
    rng = np.random.default_rng(0)
    return [int(token) for token in rng.integers(0, vocab_size, _SAMPLE_ROWS)]


def _prompts(target: PlanInfo) -> list[list[int]]:
    """Arbitrary ones of an eighth of the cache, and shorter."""
    longest = min(24, max(target.capacity // 8, _PROMPTS))
    rng = np.random.default_rng(1)
    sizes = range(longest, longest - _PROMPTS, -1)
    return [[int(token) for token in rng.integers(0, target.vocab_size, size)] for size in sizes]


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2g}"
