"""OpenVINO GenAI: a folder with a model in its own format, plainly, with prompt lookup or a draft.

Sums are of FP32 and the cache holds FP32, as ours. With a draft or a lookup GenAI pages its cache
and keeps prefixes of earlier requests; no comparison is fair with that, so it is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai  # pyright: ignore[reportMissingImports]
from serving import Answer, Generate, serve


def open_model(settings: dict[str, Any]) -> Generate:
    arithmetic: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "INFERENCE_NUM_THREADS": settings["threads"],
    }
    options = dict(arithmetic)
    if settings["draft"] or settings["lookup"]:
        options["scheduler_config"] = scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
    if settings["draft"]:
        options["draft_model"] = genai.draft_model(settings["draft"], "CPU", **arithmetic)
    if settings["lookup"]:
        options["prompt_lookup"] = True
    pipeline = genai.LLMPipeline(settings["model"], "CPU", **options)
    stop = set(settings["stop"])

    def generate(prompt: Sequence[int], tokens: int) -> Answer:
        config = genai.GenerationConfig(max_new_tokens=tokens, do_sample=False)
        config.stop_token_ids = stop
        if settings["draft"] or settings["lookup"]:
            config.num_assistant_tokens = settings["length"]
        if settings["lookup"]:
            config.max_ngram_size = settings["lookup"]
        result = pipeline.generate(ov.Tensor(np.array([prompt], np.int64)), config)
        output = [int(token) for token in result.tokens[0] if token not in stop]
        first = result.perf_metrics.get_ttft().mean / 1e3
        whole = result.perf_metrics.get_generate_duration().mean / 1e3
        return Answer(output, first, whole - first)

    return generate


if __name__ == "__main__":
    serve(open_model)
