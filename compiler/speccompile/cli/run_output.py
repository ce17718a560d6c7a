"""What `speccompile run` prints besides the text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tokenizers import Tokenizer

from speccompile.runtime.control.adaptive import AdaptiveController
from speccompile.runtime.costmodel import plain_step_ms
from speccompile.runtime.output import Output
from speccompile.runtime.runner import Runner

__all__ = ["json_document", "logprobs_table", "speculation_note", "statistics_line"]

_TOKEN_WIDTH = 16


def speculation_note(runner: Runner, draft: str | None, draft_length: int | None) -> str | None:
    """A line, where there is a draft model and no speculation, or the reverse."""
    kind = draft or runner.usual_draft
    has_model = "draft" in runner.roles
    if has_model and "none" in (draft, kind):
        if draft:
            return "-- speculation is off, though there is a draft model: --draft none"
        measured = runner.measurements.cost_ms
        why = "it did not pay when it was measured" if measured else "nothing was measured"
        return f"-- speculation is off: {why}; --draft model turns it on"
    if has_model and draft_length == 0:
        return "-- speculation is off, though there is a draft model: --draft-length 0"
    if not has_model and kind != "none" and draft_length != 0:
        return f"-- speculation is on, though there is no draft model: {kind} drafts from the text"
    return None


def statistics_line(
    runner: Runner, output: Output, controller: AdaptiveController | None = None
) -> str:
    """Speed, and what speculation brought, of an output that is over."""
    statistics = output.statistics
    facts = [f"{len(output.tokens)} tokens ({output.finish})"]
    if statistics.first_token_seconds:
        facts.append(f"first after {statistics.first_token_seconds * 1e3:.0f} ms")
    if statistics.decode_seconds:
        facts.append(f"{statistics.tokens_per_second:.1f} tokens/s")
        facts += _speculation(runner, output, controller)
    if statistics.reused_tokens:
        facts.append(
            f"{statistics.reused_tokens} of {statistics.prompt_tokens} prompt tokens cached"
        )
    if not output.request.lossless:
        facts.append(f"LOSSY ({output.request.rule}): not the target's own output")
    sampling = output.request.sampling
    if not sampling.greedy:
        # The text of such a seed also follows from what was proposed: --seed gives another.
        chance = "" if sampling.audited or runner.placement else " (not audited)"
        facts.append(f"seed {sampling.seed}{chance}")
    if runner.manifest.gpus:  # else there is nothing to choose
        facts.append(f"on {runner.on}")
    return "-- " + ", ".join(facts)


def logprobs_table(tokenizer: Tokenizer, output: Output) -> Iterator[str]:
    """Lines: each token, its logarithmic probability, and the best ones with theirs."""
    for entry in output.logprobs:
        best = "  ".join(
            f"{_spelled(tokenizer, token)} {logprob:.2f}" for token, logprob in entry.top
        )
        line = f"{_spelled(tokenizer, entry.token):<{_TOKEN_WIDTH}} {entry.logprob:8.4f}  {best}"
        yield line.rstrip()


def json_document(tokenizer: Tokenizer, output: Output, number: int) -> str:
    """All there is to say of an output that is over, on one line."""
    statistics, request = output.statistics, output.request
    document = {
        "sample": number,
        "text": output.text,
        "finish": str(output.finish),
        "tokens": output.tokens,
        "logprobs": None if request.logprobs is None else _logprobs(tokenizer, output),
        "seed": None if request.sampling.greedy else request.sampling.seed,
        "audited": request.sampling.audited,
        "rule": request.rule,
        "lossless": request.lossless,
        "statistics": {
            "prompt_tokens": statistics.prompt_tokens,
            "reused_tokens": statistics.reused_tokens,
            "encoder_calls": dict(statistics.encoder_calls),
            "new_tokens": statistics.new_tokens,
            "rounds": statistics.rounds,
            "plain_rounds": statistics.plain_rounds,
            "proposed": statistics.proposed,
            "accepted": statistics.accepted,
            "policies": dict(statistics.policies),
            "first_token_seconds": statistics.first_token_seconds,
            "decode_seconds": statistics.decode_seconds,
            "draft_seconds": statistics.draft_seconds,
            "target_seconds": statistics.target_seconds,
        },
    }
    return json.dumps(document, ensure_ascii=False)


def _speculation(
    runner: Runner, output: Output, controller: AdaptiveController | None
) -> Iterator[str]:
    statistics = output.statistics
    if any(statistics.proposed):
        yield f"acceptance {statistics.acceptance:.2f}"
        yield f"{statistics.accepted_length:.2f} tokens a round"
        if runner.placement is None:  # what was measured are the CPU's engines
            plain = plain_step_ms(runner.measurements.cost_ms.get("target", {}))
            if plain:
                speedup = statistics.tokens_per_second * plain / 1e3
                yield f"{speedup:.2f}x the plain speed measured at build"
    # The last round has mostly no room to propose anything.
    if controller and statistics.plain_rounds > 1:
        yield f"{statistics.plain_rounds} of {statistics.rounds} rounds without proposals"
        worth = controller.worth
        if worth and worth.stands <= worth.cost:
            yield (
                f"speculation did not pay: a proposal costs {worth.cost:.2f} plain steps, "
                f"{worth.stands:.2f} of them stand"
            )
    for name, count in sorted(statistics.policies.items()):
        yield f"{name} {count}x"


def _logprobs(tokenizer: Tokenizer, output: Output) -> list[dict[str, object]]:
    return [
        {
            **_entry(tokenizer, entry.token, entry.logprob),
            "top": [_entry(tokenizer, token, logprob) for token, logprob in entry.top],
        }
        for entry in output.logprobs
    ]


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, object]:
    # A token that is forbidden by the model itself has no finite logarithm, and JSON no infinity.
    finite = logprob if logprob > float("-inf") else None
    return {"token": token, "text": _text(tokenizer, token), "logprob": finite}


def _spelled(tokenizer: Tokenizer, token: int) -> str:
    return json.dumps(_text(tokenizer, token), ensure_ascii=False)


def _text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_special_tokens=False)
