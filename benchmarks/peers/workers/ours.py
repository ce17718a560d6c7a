"""An artifact of ours, plainly or with a draft."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from serving import Answer, Generate, serve

from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Request


def open_model(settings: dict[str, Any]) -> Generate:
    runner = Runner.open(settings["model"], threads=settings["threads"], on="cpu")
    draft = settings["draft"]
    stop = frozenset(runner.manifest.model.eos_token_ids)

    def generate(prompt: Sequence[int], tokens: int) -> Answer:
        request = Request(tokens, stop_tokens=stop)
        session = runner.session(draft)
        start = first = time.perf_counter()
        output: list[int] = []
        for token in session.generate(prompt, request):
            if not output:
                first = time.perf_counter()
            output.append(token)
        return Answer(output, first - start, time.perf_counter() - first)

    return generate


if __name__ == "__main__":
    serve(open_model)
