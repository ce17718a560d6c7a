"""What a rehearsal refuses, and in which words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from speccompile.compiler.stages.rehearse import Rehearsed, check_accuracy, check_verdict
from speccompile.plugins.spec_verify import Tree, TreeVerdict
from speccompile.runtime.errors import EngineError
from tests.unit.compiler.test_gpu_engines import INFO

INT8 = replace(INFO, role="draft", precision="int8", rule="walk")
NAN = float("nan")
# Node 2 is what the target puts behind the root, 3 what it puts behind node 2.
TREE = Tree(np.array([7, 4, 5, 6]), np.array([-1, 0, 0, 2]))
LOGITS = np.eye(9, dtype=np.float32)[[1, 1, 5, 0, 6, 8]]  # two rows of a prompt, then the tree's
VERDICT = TreeVerdict([0, 2, 3], 8)


def test_close_enough_is_taken() -> None:
    check_accuracy(INFO, {"relative_error": 0.019, "kl_divergence": 1.0})
    check_accuracy(INT8, {"relative_error": 0.3, "kl_divergence": 0.049})


@pytest.mark.parametrize("error", [0.021, NAN])
def test_an_error_that_fp16_does_not_explain_is_refused(error: float) -> None:
    message = (
        rf"\ATensorRT's graph computes the target otherwise than the contract: relative_error "
        rf"{error:.3g} is above 0.02; leave engine.tensorrt out [^\n]*or choose another precision\Z"
    )
    with pytest.raises(EngineError, match=message):
        check_accuracy(INFO, {"relative_error": error, "kl_divergence": 0.0})


def test_int8_is_judged_by_its_divergence() -> None:
    with pytest.raises(EngineError, match=r"the draft .*: kl_divergence 0.06 is above 0.05; "):
        check_accuracy(INT8, {"relative_error": 0.0, "kl_divergence": 0.06})


def test_the_verdict_of_the_rule_is_taken() -> None:
    check_verdict(INFO, Rehearsed(LOGITS, TREE, VERDICT, [5, 6, 8]))


@pytest.mark.parametrize(
    ("verdict", "emitted"),
    [
        (TreeVerdict([0, 1], 8), [4, 8]),
        (TreeVerdict([0, 2, 3], 7), [5, 6, 7]),
        (VERDICT, [5, 8, 8]),
    ],
)
def test_another_verdict_is_refused(verdict: TreeVerdict, emitted: list[int]) -> None:
    message = r"the target judges otherwise than by its rule, traversal: .* not \[0, 2, 3\] and "
    with pytest.raises(EngineError, match=message):
        check_verdict(INFO, Rehearsed(LOGITS, TREE, verdict, emitted))
