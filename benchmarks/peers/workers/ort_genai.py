"""ONNX Runtime GenAI: a model folder, with n-grams or with a model that drafts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime_genai as og  # pyright: ignore[reportMissingImports]
from serving import Answer, Generate, serve


def open_model(settings: dict[str, Any]) -> Generate:
    config = og.Config(settings["model"])
    options = {"intra_op_num_threads": settings["threads"], **settings["session"]}
    changes: dict[str, Any] = {"model": {"decoder": {"session_options": options}}}
    if folder := settings["draft"]:
        draft = _decoder(Path(folder))
        draft["filename"] = os.path.relpath(Path(folder, draft["filename"]), settings["model"])
        draft["session_options"] |= options
        changes["model"]["draft"] = draft
    config.overlay(json.dumps(changes))
    model = og.Model(config)
    stop = _stop(Path(settings["model"]))

    def generate(prompt: Sequence[int], tokens: int) -> Answer:
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(max_length=len(prompt) + tokens, do_sample=False)
        if settings["speculative"]:
            parameters.set_speculative_options(**settings["speculative"])
        start = time.perf_counter()
        generator = og.Generator(model, parameters)
        generator.append_tokens(list(prompt))
        generator.generate_next_token()
        first = time.perf_counter()
        while not generator.is_done():
            generator.generate_next_token()
        end = time.perf_counter()
        output = [int(token) for token in generator.get_sequence(0)[len(prompt) :]]
        return Answer([token for token in output if token not in stop], first - start, end - first)

    return generate


def _decoder(folder: Path) -> dict[str, Any]:
    decoder: dict[str, Any] = _config(folder)["model"]["decoder"]
    return decoder


def _stop(folder: Path) -> set[int]:
    stop = _config(folder)["model"]["eos_token_id"]
    return set(stop) if isinstance(stop, list) else {stop}


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "genai_config.json").read_text("utf-8"))
    return config


if __name__ == "__main__":
    serve(open_model)
