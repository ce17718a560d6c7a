"""A student's trace, in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from speccompile.compiler.drafts.evaluate_folder import trace_student, weights_share
from speccompile.compiler.drafts.figures import StepCosts, figures
from speccompile.compiler.drafts.student import Student
from speccompile.compiler.drafts.training import stands
from tests.families import tiny
from tests.unit.compiler.drafts.tiny import VOCABULARY, answers, decoder_of

MODEL = tiny("llama-tied")
ALL = torch.arange(VOCABULARY)
COSTS = StepCosts.predicted(0.5)


def student(layers: tuple[int, ...] = (0, 1), vocabulary: torch.Tensor = ALL) -> Student:
    return Student.of(MODEL.config, MODEL.read, layers, vocabulary)


def laws(hidden: NDArray[np.float16]) -> NDArray[np.float32]:
    logits: NDArray[np.float32] = decoder_of().logits(torch.from_numpy(hidden).float()).numpy()
    return logits


def test_the_laws_are_those_that_the_target_answered_by() -> None:
    for answer in answers():
        logits = laws(answer.hidden)
        assert (logits.argmax(-1) == answer.tokens).mean() > 0.95
        law = (
            torch.from_numpy(logits)
            .softmax(-1)
            .gather(1, torch.from_numpy(answer.likeliest).long())
        )
        np.testing.assert_allclose(law.numpy(), answer.probabilities, atol=0.01)


def test_all_layers_are_the_target() -> None:
    [found] = figures({"x": [*trace_student(student(), laws, answers())]}, COSTS, depth=4).values()
    assert min(found.positions) > 0.9  # in bfloat16
    assert found.overlap > 0.95


def test_it_stands_as_far_as_training_says() -> None:
    for layers in ((0,), (1,)):
        traces = [*trace_student(student(layers), laws, answers())]
        [found] = figures({"x": traces}, COSTS, depth=4).values()
        told = stands(student(layers), answers())
        assert found.positions == pytest.approx(told.positions)
        assert found.tokens_a_round[4] == pytest.approx(told.tokens_a_round)
        assert found.overlap < 0.95


def test_a_draft_without_the_tokens_that_are_said_never_stands() -> None:
    said = {token for answer in answers() for token in answer.tokens.tolist()}
    others = torch.tensor([token for token in range(VOCABULARY) if token not in said])
    traces = [*trace_student(student(vocabulary=others), laws, answers())]
    assert all((each.ranks == VOCABULARY).all() for each in traces)
    [found] = figures({"x": traces}, COSTS, depth=4).values()
    assert found.positions == (0.0,) * 4
    assert found.tokens_a_round[8] == 1.0


def test_the_share_of_weights() -> None:
    config = MODEL.config
    assert weights_share(config, config, VOCABULARY) == 1.0
    trained = student((0,)).trained.values()
    layers = sum(values.numel() for values in trained if values.ndim == 2)
    half, head = student((0,)).decoder.config, VOCABULARY * config.hidden_size
    expected = (layers + head // 4) / (2 * layers + head)
    assert weights_share(half, config, VOCABULARY // 4) == pytest.approx(expected)
