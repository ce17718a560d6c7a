from __future__ import annotations

from pathlib import Path

import pytest

from speccompile.compiler.tensorrt.network import NetworkFacts
from speccompile.compiler.tensorrt.refusals import check_plugins, refusal
from speccompile.runtime.errors import EngineError
from tests.plans import ATTENTION, HEAD, ROUND, model

_GRAPH = Path("step.onnx")


def _refuse(*said: str, graph: str = ATTENTION) -> str:
    return str(refusal(_GRAPH, model(graph), None, "TensorRT 9", list(said)))


def test_what_is_known_goes_before_what_is_said_first() -> None:
    message = _refuse("Conv: something else", "Softmax: Non-zero zero point is not supported")

    assert message == (
        "step.onnx: INT8 has to be symmetric; quantize without zero points "
        "(TensorRT 9: Softmax: Non-zero zero point is not supported)"
    )


def test_what_is_not_known_is_quoted_in_one_line() -> None:
    message = _refuse("Conv: a new\n  reason " + "x" * 500)

    assert message.startswith("step.onnx: TensorRT 9 refuses it: Conv: a new reason xxx")
    assert message.endswith("x…")
    assert len(message) < 300


def test_silence_is_an_error_too() -> None:
    assert _refuse() == "step.onnx: TensorRT 9 refuses it: it gives no reason"


def test_a_node_that_the_message_names_is_found() -> None:
    message = _refuse("Error Code 3 (values: The output tensor must be a network output. In x)")

    assert message.startswith("step.onnx: node 'values' (TensorScatter): a cache is updated in")


def test_a_node_without_a_name_is_found_by_its_output() -> None:
    graph = ATTENTION.replace("[values] ", "")
    text = "Error (node_of_new_value_cache: The output tensor must be a network output.)"

    message = _refuse(text, graph=graph)

    assert message.startswith("step.onnx: node of 'new_value_cache' (TensorScatter): ")


@pytest.mark.parametrize(("plugins", "missing"), [(("tree",), "verify"), (("verify",), "tree")])
def test_every_operator_of_ours_has_to_be_a_plugin(plugins: tuple[str, ...], missing: str) -> None:
    facts = NetworkFacts((), (), {}, plugins, {}, 0)

    with pytest.raises(EngineError, match=f"node '{missing}' .*took its function body"):
        check_plugins(_GRAPH, model(ROUND, **HEAD), facts)


def test_plugins_for_all_operators_pass() -> None:
    facts = NetworkFacts((), (), {}, ("tree", "verify"), {}, 0)

    check_plugins(_GRAPH, model(ROUND, **HEAD), facts)
