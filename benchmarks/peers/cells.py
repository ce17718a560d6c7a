"""What is compared: for each class of weights, every peer's ways of decoding that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.models import Model
from benchmarks.peers.peer import OURS, Peer
from speccompile.runtime.runner import Runner

__all__ = ["BITS_16", "INT8", "PLAIN", "Cell", "Subject", "cells_of", "weights_of"]

BITS_16, INT8 = "16-bit weights", "INT8 weights"
"""The classes. The first multiplies FP16 weights in FP32; the second's products are each peer's."""

PLAIN = "plain"
_GUESSES = 5  # tokens a round, of peers that do not choose it themselves
_NGRAM = 3  # tokens that must have been seen


@dataclass(frozen=True)
class Cell:
    peer: Peer
    weights: str
    mode: str
    settings: Mapping[str, Any]
    """Of its worker."""

    @property
    def name(self) -> str:
        return f"{self.peer.name}, {self.weights}, {self.mode}"


@dataclass(frozen=True)
class Subject:
    """What all have in common: the models as files, where peers lie, and how they are run.

    `draft` is a model of its own, or None where there is none but the target itself.
    """

    target: Model
    draft: Model | None
    home: Path
    threads: int
    context: int
    stop: tuple[int, ...]


def weights_of(artifact: Runner) -> str:
    return INT8 if artifact.manifest.engines["target"].precision == "int8" else BITS_16


def cells_of(artifacts: Sequence[Runner], peers: Sequence[Peer], subject: Subject) -> list[Cell]:
    """Ours first; of peers, the classes of weights that `artifacts` have."""
    cells: list[Cell] = []
    for artifact in artifacts:
        weights = weights_of(artifact)
        cells += _ours(artifact, weights, subject)
        for peer in peers:
            common = {"threads": subject.threads, "stop": list(subject.stop)}
            ways = _WAYS[peer.name](peer, weights, subject)
            cells += [Cell(peer, weights, mode, {**common, **own}) for mode, own in ways]
    return cells


Ways = Iterator[tuple[str, dict[str, Any]]]


def _ours(artifact: Runner, weights: str, subject: Subject) -> Iterator[Cell]:
    usual = artifact.usual_draft
    modes = {PLAIN: "none", "n-gram": "ngram"}
    if usual not in modes.values():
        modes["its draft"] = usual
    for mode, draft in modes.items():
        settings = {"model": str(artifact.artifact.root), "draft": draft}
        yield Cell(OURS, weights, mode, {**settings, "threads": subject.threads})


def _llama_cpp(peer: Peer, weights: str, subject: Subject) -> Ways:
    model = subject.target.gguf("q8_0" if weights == INT8 else "f16")
    settings = {"model": str(model), "context": subject.context}
    yield PLAIN, {**settings, "options": []}
    if draft := _draft(weights, subject):
        options = ["--spec-type", "draft-simple", "--spec-draft-n-max", str(_GUESSES)]
        options += ["--model-draft", str(draft.gguf("q8_0"))]
        yield f"draft {_GUESSES}", {**settings, "options": options}
    yield "n-gram", {**settings, "options": ["--spec-type", "ngram-simple"]}


def _onnxruntime_genai(peer: Peer, weights: str, subject: Subject) -> Ways:
    precision = "int8" if weights == INT8 else "fp32"
    settings = {
        "model": str(subject.target.onnx(peer, subject.home, precision)),
        # Two models' threads spin against one another else, and halve each other's speed.
        "session": {"session.force_spinning_stop": "1"},
        "draft": None,
        "speculative": None,
    }
    yield PLAIN, settings
    if draft := _draft(weights, subject):
        folder = draft.onnx(peer, subject.home, "int8")
        guesses = {"max_draft_tokens": _GUESSES}
        yield f"draft {_GUESSES}", {**settings, "draft": str(folder), "speculative": guesses}
    ngram = {"ngram_size": _NGRAM, "ngram_chained_lookup": True, "min_adaptive_k": 2}
    yield "n-gram", {**settings, "speculative": ngram}


def _openvino_genai(peer: Peer, weights: str, subject: Subject) -> Ways:
    precision = "int8" if weights == INT8 else "fp16"
    folder = subject.target.openvino(peer, subject.home, precision)
    settings = {"model": str(folder), "draft": None, "lookup": 0, "length": _GUESSES}
    yield PLAIN, settings
    if draft := _draft(weights, subject):
        small = draft.openvino(peer, subject.home, "int8")
        yield f"draft {_GUESSES}", {**settings, "draft": str(small)}
    yield "n-gram", {**settings, "lookup": _NGRAM}


def _transformers(peer: Peer, weights: str, subject: Subject) -> Ways:
    if weights == INT8:
        return  # its 8-bit weights are for GPUs
    settings = {"model": str(subject.target.huggingface()), "draft": None, "lookup": 0}
    yield PLAIN, settings
    if subject.draft:
        yield "draft", {**settings, "draft": str(subject.draft.huggingface())}
    yield "n-gram", {**settings, "lookup": _GUESSES}


def _draft(weights: str, subject: Subject) -> Model | None:
    """A target in 16 bits may be drafted for by itself in INT8, as our artifact's is."""
    return subject.draft or (subject.target if weights == BITS_16 else None)


_WAYS = {
    "llama.cpp": _llama_cpp,
    "ONNX Runtime GenAI": _onnxruntime_genai,
    "OpenVINO GenAI": _openvino_genai,
    "transformers": _transformers,
}
