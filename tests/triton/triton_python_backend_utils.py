"""Triton's module of that name, as far as our model calls it, for tests without a server.

It keeps what a model sends, and refuses a response after the final one, as the server does. It does
not cover the processes and the shared memory between server and model, that the server fills this
module only once a model's is imported, the types and shapes of tensors, which it takes as they
come, batching, scheduling, calls from model to model, BF16 and DLPack, time limits, nor the HTTP
and gRPC ends. `tests/e2e/test_standalone.py` runs the server itself, where it can be installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

__all__ = [
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "get_input_tensor_by_name",
]

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonModelException(Exception):  # Triton's name
    """What a model raises when it cannot be loaded."""


class TritonError:
    """An error of a response, with a code of Triton's."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG = 0, 1, 2, 3
    UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = 4, 5, 6, 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class Tensor:
    def __init__(self, name: str, values: NDArray[Any]) -> None:
        self._name, self._values = name, values

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> NDArray[Any]:
        return self._values


class InferenceResponse:
    def __init__(self, output_tensors: Sequence[Tensor], error: TritonError | None = None) -> None:
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class InferenceResponseSender:
    """Keeps the responses; is cancelled once `cancel_after` of them are there."""

    def __init__(self, cancel_after: int | None = None) -> None:
        self.responses: list[InferenceResponse] = []
        self.final = False
        self._cancel_after = cancel_after

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if self.final:
            raise TritonModelException("a response was sent after the final one")
        if response is None and not flags:
            raise TritonModelException("neither a response nor a flag was sent")
        if response is not None:
            self.responses.append(response)
        self.final = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL

    def is_cancelled(self) -> bool:
        return self._cancel_after is not None and len(self.responses) >= self._cancel_after


class InferenceRequest:
    """The inputs by name, texts as bytes, as the server has them."""

    def __init__(
        self,
        inputs: Mapping[str, NDArray[Any]],
        parameters: Mapping[str, Any] | None = None,
        cancel_after: int | None = None,
    ) -> None:
        self.inputs = {name: Tensor(name, values) for name, values in inputs.items()}
        self.sender = InferenceResponseSender(cancel_after)
        self._parameters = json.dumps(parameters or {})

    def get_response_sender(self) -> InferenceResponseSender:
        return self.sender

    def parameters(self) -> str:
        return self._parameters


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    return request.inputs.get(name)
