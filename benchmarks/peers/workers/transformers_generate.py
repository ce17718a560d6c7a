"""Hugging Face transformers: `generate`, plainly, with prompt lookup or with an assistant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from serving import Answer, Generate, serve
from transformers import AutoModelForCausalLM


class Watch:
    """Sees tokens as `generate` streams them: the prompt first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """There is nothing to flush."""


def open_model(settings: dict[str, Any]) -> Generate:
    torch.set_num_threads(settings["threads"] or torch.get_num_threads())
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(settings["model"], dtype=torch.float32).eval()
    stop = set(settings["stop"])
    options: dict[str, Any] = {}
    if settings["lookup"]:
        options["prompt_lookup_num_tokens"] = settings["lookup"]
    if settings["draft"]:
        options["assistant_model"] = load(settings["draft"], dtype=torch.float32).eval()

    def generate(prompt: Sequence[int], tokens: int) -> Answer:
        ids = torch.tensor([prompt])
        watch = Watch()
        start = time.perf_counter()
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=settings["stop"],
                pad_token_id=0,
                streamer=watch,
                **options,
            )
        end = time.perf_counter()
        said = [token for token in output[0, len(prompt) :].tolist() if token not in stop]
        return Answer(said, watch.times[1] - start, end - watch.times[1])

    return generate


if __name__ == "__main__":
    serve(open_model)
