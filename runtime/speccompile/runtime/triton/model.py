"""A model of Triton Inference Server's Python backend: it answers with the artifact beside it.

`speccompile export triton` puts this file there. The runtime is the artifact's own, its `run.pyz`:
the server's Python needs no more than what that needs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # the server fills it once this file is imported

_ARTIFACT = Path(__file__).resolve().parent / "artifact"
sys.path.insert(0, str(_ARTIFACT / "run.pyz"))

from speccompile.runtime.errors import RequestError, SpeccompileError  # noqa: E402
from speccompile.runtime.options import Options  # noqa: E402
from speccompile.runtime.output import Output  # noqa: E402
from speccompile.runtime.runner import Runner  # noqa: E402
from speccompile.runtime.session import Session  # noqa: E402

__all__ = ["TritonPythonModel"]

_OPTIONS = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
"""Inputs that other backends name so; every other one has the name of its option."""
_OF_MODEL = ("text_input", "raw", "stream")
"""Inputs that are no options."""


class TritonPythonModel:
    """What the server calls. Requests come one after the other to one session, whose cache spares
    what a prompt has in common with the last one."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Check the artifact and open it; raises TritonModelException where that is refused."""
        config = json.loads(args["model_config"])
        settings = {
            name: value["string_value"] for name, value in config.get("parameters", {}).items()
        }
        self._inputs: dict[str, Sequence[int]] = {
            tensor["name"]: tensor["dims"] for tensor in config["input"]
        }
        try:
            self._runner = Runner.open(
                _ARTIFACT, on=settings.get("on", "cpu"), threads=int(settings.get("threads", "0"))
            )
            self._session = self._runner.session()
        except SpeccompileError as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, requests: Sequence[pb_utils.InferenceRequest]) -> None:
        """Answer each with one response, or with one for each piece of text and one at the end."""
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        for request in requests:
            sender = request.get_response_sender()
            try:
                for response, last in self._responses(request, sender):
                    sender.send(response, flags=final if last else 0)
            except SpeccompileError as error:
                of_caller, codes = isinstance(error, RequestError), pb_utils.TritonError
                code = codes.INVALID_ARG if of_caller else codes.INTERNAL
                sender.send(_refusal(str(error), code), flags=final)

    def finalize(self) -> None:
        """Give a GPU back."""
        self._runner.close()

    def _responses(
        self, request: pb_utils.InferenceRequest, sender: pb_utils.InferenceResponseSender
    ) -> Iterator[tuple[pb_utils.InferenceResponse, bool]]:
        inputs = self._read(request)
        stream = inputs.get("stream", False)
        prompt = self._prompt(inputs)
        output = self._output(prompt, inputs)
        for piece in output:
            if sender.is_cancelled():
                yield _refusal("the client went away", pb_utils.TritonError.CANCELLED), True
                return
            if stream:
                yield _response(prompt, output, piece), False
        yield _response(prompt, output, "" if stream else output.text, output.finish), True

    def _prompt(self, inputs: Mapping[str, Any]) -> list[int]:
        runner, text = self._runner, inputs["text_input"]
        raw = inputs.get("raw", False)
        return runner.encode_raw(text) if raw or runner.reads_source else runner.encode(text)

    def _output(self, prompt: list[int], inputs: Mapping[str, Any]) -> Output:
        given = {
            _OPTIONS.get(name, name): value
            for name, value in inputs.items()
            if name not in _OF_MODEL
        }
        options = Options(**given)
        # On a GPU a seed means the random numbers of its rounds.
        audited = options.seed is not None and isinstance(self._session, Session)
        options = replace(options, audited=audited)
        return next(self._runner.outputs(self._session, prompt, options))

    def _read(self, request: pb_utils.InferenceRequest) -> dict[str, Any]:
        """The inputs that the request has; raises RequestError for what the model does not know."""
        for name in json.loads(request.parameters() or "{}"):
            near = get_close_matches(name, self._inputs, 1)
            way_out = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._inputs)}"
            raise RequestError(f"{name} is unknown; {way_out}")
        found: dict[str, Any] = {}
        for name, dims in self._inputs.items():
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None:
                values = [_text(name, value) for value in tensor.as_numpy().tolist()]
                found[name] = values if list(dims) == [-1] else values[0]
        return found


def _text(name: str, value: object) -> object:
    """A value of a tensor; the server has texts as bytes."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not UTF-8 text ({error.reason})") from error


def _response(
    prompt: Sequence[int], output: Output, text: str, finish: str = ""
) -> pb_utils.InferenceResponse:
    counts = len(prompt), len(output.tokens)
    return pb_utils.InferenceResponse(
        output_tensors=[
            pb_utils.Tensor("text_output", np.array([text.encode()], dtype=np.object_)),
            pb_utils.Tensor("finish_reason", np.array([finish.encode()], dtype=np.object_)),
            pb_utils.Tensor("num_input_tokens", np.array(counts[:1], dtype=np.int32)),
            pb_utils.Tensor("num_output_tokens", np.array(counts[1:], dtype=np.int32)),
        ]
    )


def _refusal(message: str, code: int) -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message, code))
