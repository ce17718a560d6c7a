"""The exported model as the server holds it: its module loaded from where it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

__all__ = ["Answer", "ask", "initialize", "load_model"]

_TENSOR = re.compile(r'(input|output) \{ name: "(\w+)" data_type: TYPE_(\w+) dims: (-?1)')
_TYPES: Mapping[str, type] = {
    "STRING": np.object_,
    "BOOL": np.bool_,
    "INT32": np.int32,
    "UINT64": np.uint64,
    "FP32": np.float32,
}


class Answer:
    """What a request brought: a list of its responses' texts, and what the last one says."""

    def __init__(self, sender: pb_utils.InferenceResponseSender) -> None:
        assert sender.final, "the server would wait for ever"
        self.error: pb_utils.TritonError | None = sender.responses[-1].error()
        given = [
            {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
            for response in sender.responses
            if not response.has_error()
        ]
        for tensors in given:
            assert all(values.shape == (1,) for values in tensors.values())
        self.texts = [tensors["text_output"][0].decode() for tensors in given]
        self.reasons = [tensors["finish_reason"][0].decode() for tensors in given]
        self.counts = [
            (int(tensors["num_input_tokens"][0]), int(tensors["num_output_tokens"][0]))
            for tensors in given
        ]


def load_model(version: Path) -> Any:  # noqa: ANN401
    """The class in the ``model.py`` of a version's folder."""
    spec = spec_from_file_location("exported_model", version / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TritonPythonModel


def initialize(version: Path, **parameters: str) -> Any:  # noqa: ANN401
    """A model that the server has loaded, with some of its config's parameters changed."""
    model = load_model(version)()
    config = {
        "input": [
            {"name": name, "dims": [int(dims)]}
            for kind, name, _, dims in _tensors(version)
            if kind == "input"
        ],
        "parameters": {
            name: {"string_value": value}
            for name, value in {"on": "cpu", "threads": "0", **parameters}.items()
        },
    }
    model.initialize({"model_config": json.dumps(config)})
    return model


def ask(
    model: Any,  # noqa: ANN401
    version: Path,
    inputs: Mapping[str, object],
    *,
    parameters: Mapping[str, object] | None = None,
    cancel_after: int | None = None,
) -> Answer:
    """What the model answers to `inputs`, in the types of its config."""
    types = {name: _TYPES[of] for kind, name, of, _ in _tensors(version) if kind == "input"}
    tensors: dict[str, NDArray[Any]] = {
        name: np.array([_value(each) for each in _several(value)], dtype=types[name])
        for name, value in inputs.items()
    }
    request = pb_utils.InferenceRequest(tensors, parameters, cancel_after)
    assert model.execute([request]) is None
    return Answer(request.sender)


def _tensors(version: Path) -> list[tuple[str, str, str, str]]:
    return _TENSOR.findall((version.parent / "config.pbtxt").read_text(encoding="utf-8"))


def _several(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _value(value: object) -> object:
    return value.encode() if isinstance(value, str) else value
