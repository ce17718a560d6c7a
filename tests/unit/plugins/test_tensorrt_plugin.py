"""The plugins as TensorRT uses them: made of fields, asked, and run, here on the host's memory."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.plugins.launches import Launch
from speccompile.plugins.schema import NAMESPACE, RULES, VERSION, Rule, spec_verify
from speccompile.plugins.tensorrt_plugin import Registration, register
from speccompile.plugins.tree import tree_mask
from tests.kernels import HostKernels, addresses, host_kernels
from tests.trees import random_rounds, verdicts, verify_inputs

trt: Any = pytest.importorskip(
    "tensorrt_rtx", reason="needs TensorRT: pip install 'speccompile[tensorrt-rtx]'"
)

_TYPES: Mapping[np.dtype[Any], Any] = {
    np.dtype(np.float32): trt.DataType.FLOAT,
    np.dtype(np.float16): trt.DataType.HALF,
    np.dtype(np.int64): trt.DataType.INT64,
    np.dtype(np.int32): trt.DataType.INT32,
    np.dtype(np.bool_): trt.DataType.BOOL,
}
_BUILD, _RUN = trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME
_STREAM = 7


class _HostStream:
    """Runs launches at once, on host addresses."""

    def __init__(self) -> None:
        self.loaded = 0
        self.kernels: HostKernels | None = None

    def load(self) -> None:
        self.loaded += 1

    def launch(self, launch: Launch, stream: int) -> None:
        assert stream == _STREAM
        assert self.kernels is not None
        self.kernels.launch(launch)


@pytest.fixture
def stream() -> _HostStream:
    return _HostStream()


@pytest.fixture
def registration(stream: _HostStream) -> Generator[Registration]:
    registration = register(trt, stream)
    yield registration
    registration.close()


def _make(operator: str, phase: object = _BUILD, **fields: str | int) -> Any:  # noqa: ANN401
    """The plugin of a node called "it"."""
    creator = trt.get_plugin_registry().get_creator(operator, VERSION, NAMESPACE)
    arrays = {name: _field_data(value) for name, value in fields.items()}
    kinds = {np.int8: trt.PluginFieldType.CHAR, np.int32: trt.PluginFieldType.INT32}
    collection = trt.PluginFieldCollection(
        [trt.PluginField(name, data, kinds[data.dtype.type]) for name, data in arrays.items()]
    )
    return creator.create_plugin("it", collection, phase)


def _field_data(value: str | int) -> NDArray[Any]:
    """Text with the closing zero that the ONNX parser gives it."""
    if isinstance(value, str):
        return np.frombuffer(value.encode() + b"\0", np.int8)
    return np.array([value], np.int32)


def _descriptions(arrays: Sequence[NDArray[np.generic]]) -> list[Any]:
    linear = trt.TensorFormat.LINEAR
    return [SimpleNamespace(dims=a.shape, type=_TYPES[a.dtype], format=linear) for a in arrays]


def _run(
    plugin: Any,  # noqa: ANN401
    inputs: Mapping[str, NDArray[np.generic]],
    outputs: Mapping[str, NDArray[np.generic]],
) -> None:
    shapes = [SimpleNamespace(max=array.shape) for array in inputs.values()]
    size = plugin.get_workspace_size(shapes, [])
    workspace = np.zeros(size + 16, np.uint8)
    aligned = -(-workspace.ctypes.data // 16) * 16
    plugin.enqueue(
        _descriptions(list(inputs.values())),
        _descriptions(list(outputs.values())),
        list(addresses(inputs).values()),
        list(addresses(outputs).values()),
        aligned,
        _STREAM,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("rule", RULES)
def test_verification_is_the_oracles(
    rule: Rule,
    dtype: type[np.floating[Any]],
    registration: Registration,
    stream: _HostStream,
) -> None:
    stream.kernels = host_kernels()
    rounds = random_rounds(3, batch=6, nodes=7, vocabulary=37).astype(dtype)
    wanted = verdicts(rule, rounds)
    found = {name: np.full_like(array, 99) for name, array in wanted.items()}

    _run(_make("SpecVerify", rule=rule), verify_inputs(rule, rounds), found)

    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert registration.calls["SpecVerify.enqueue"] == 1


@pytest.mark.parametrize("window", [0, 5])
def test_the_mask_is_the_oracles(
    window: int, registration: Registration, stream: _HostStream
) -> None:
    stream.kernels = host_kernels()
    rounds = random_rounds(4, batch=5, nodes=6, vocabulary=3)
    wanted = tree_mask(rounds.parents, rounds.lengths, 32, window)
    found = [np.zeros_like(array) for array in wanted]
    names = ("position_ids", "attention_mask", "sliding_mask")

    _run(
        _make("TreeMask", capacity=32, window=window),
        {"parents": rounds.parents, "lengths": rounds.lengths},
        dict(zip(names, found, strict=True)),
    )

    for array, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_plan_makes_the_same_plugin_again(registration: Registration) -> None:
    plugin = _make("TreeMask", capacity=32, window=5)

    kept = _fields(plugin)
    again = _make("TreeMask", _RUN, **kept)

    assert kept == {"capacity": 32, "window": 5, "version": VERSION}
    assert _fields(again) == kept
    assert _fields(again.clone()) == kept


def test_a_plan_of_another_version_is_refused(registration: Registration) -> None:
    reason = f"of version 0, not {VERSION}"

    with pytest.raises(ValueError, match=reason):
        _make("SpecVerify", _RUN, rule="walk", version="0")

    assert registration.refusals == [
        f"node 'it' (SpecVerify): the plan's SpecVerify is {reason}",
    ]


@pytest.mark.parametrize(
    ("operator", "fields", "reason"),
    [
        ("SpecVerify", {"rule": "best"}, "no rule 'best'; it has greedy, walk"),
        ("SpecVerify", {}, "needs the attribute rule, of type str"),
        ("TreeMask", {"capacity": 8}, "needs the attribute window, of type int"),
        ("TreeMask", {"capacity": "8", "window": 0}, "needs the attribute capacity, of type int"),
    ],
)
def test_wrong_attributes_are_refused(
    operator: str, fields: dict[str, str | int], reason: str, registration: Registration
) -> None:
    with pytest.raises(ValueError, match=reason):
        _make(operator, **fields)

    assert reason in registration.refusals[0]


def _fields(plugin: Any) -> dict[str, str | int]:  # noqa: ANN401
    """What a plugin leaves in a plan."""
    return {
        field.name: field.data.tobytes().decode()
        if field.type == trt.PluginFieldType.CHAR
        else int(field.data[0])
        for field in plugin.get_fields_to_serialize()
    }


def _tensors(rule: Rule, **changed: type[np.generic]) -> list[Any]:
    """Descriptions of all inputs and outputs, for logits in float16."""
    types = {"int64": np.int64, "float32": np.float32, "logits": np.float16}
    operator = spec_verify(rule)
    arguments = (*operator.inputs, *operator.outputs)
    arrays = [np.empty(0, changed.get(each.name, types.get(each.type))) for each in arguments]
    return [SimpleNamespace(desc=description) for description in _descriptions(arrays)]


def _supported(rule: Rule, tensors: list[Any], inputs: int | None = None) -> list[bool]:
    plugin = _make("SpecVerify", rule=rule)
    count = len(spec_verify(rule).inputs) if inputs is None else inputs
    return [
        plugin.supports_format_combination(position, tensors, count)
        for position in range(len(tensors))
    ]


@pytest.mark.parametrize("rule", RULES)
def test_the_types_of_the_schema_are_supported(rule: Rule, registration: Registration) -> None:
    assert all(_supported(rule, _tensors(rule)))
    assert all(_supported(rule, _tensors(rule, logits=np.float32, draft_logits=np.float32)))
    assert not registration.refusals


def test_other_types_are_not_supported(registration: Registration) -> None:
    names = [argument.name for argument in spec_verify("traversal").inputs]

    for name, dtype in (
        ("tokens", np.int32),
        ("sampling", np.float16),
        ("draft_logits", np.float32),
        ("logits", np.int64),
    ):
        supported = _supported("traversal", _tensors("traversal", **{name: dtype}))
        assert not supported[names.index(name)]

    assert registration.refusals[0] == "node 'it' (SpecVerify): tokens is int32, and not int64"


def test_only_dense_tensors_are_supported(registration: Registration) -> None:
    tensors = _tensors("greedy")
    tensors[0].desc.format = trt.TensorFormat.HWC

    assert _supported("greedy", tensors) == [False] + [True] * (len(tensors) - 1)


def test_the_number_of_inputs_has_to_fit(registration: Registration) -> None:
    assert not any(_supported("walk", _tensors("walk"), inputs=4))
    assert registration.refusals[0].startswith("node 'it' (SpecVerify): it has 4 inputs, and not ")


def test_kernels_are_loaded_with_a_context_and_no_earlier(
    registration: Registration, stream: _HostStream
) -> None:
    plugin = _make("SpecVerify", rule="walk")
    assert stream.loaded == 0

    plugin.attach_to_context(None)

    assert stream.loaded == 1


def test_plugins_are_registered_once(registration: Registration, stream: _HostStream) -> None:
    with pytest.raises(RuntimeError, match="SpecVerify is registered already"):
        register(trt, stream)


def test_closing_makes_room_for_another_registration(stream: _HostStream) -> None:
    for _ in range(2):
        registration = register(trt, stream)
        assert _make("TreeMask", capacity=8, window=0).num_outputs == 3
        registration.close()

    assert trt.get_plugin_registry().get_creator("TreeMask", VERSION, NAMESPACE) is None
