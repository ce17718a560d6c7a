from __future__ import annotations

import numpy as np
import pytest
import torch

from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.drafts.lesson import lessons, loss_of, surprise_of
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.training import stands
from speccompile.compiler.drafts.translations import as_response, translate
from speccompile.compiler.drafts.translator import Translator
from tests.t5_models import VOCABULARY, TinyT5, tiny_t5

RNG = np.random.default_rng(3)
SOURCES = [[*RNG.integers(2, VOCABULARY, 3 + 2 * number).tolist(), 1] for number in range(9)]
ALL = torch.arange(VOCABULARY)
END = 1


@pytest.fixture(scope="module", params=["v1.1", "gated-tied"])
def tiny(request: pytest.FixtureRequest) -> TinyT5:
    return tiny_t5(str(request.param))


@pytest.fixture(scope="module")
def translator(tiny: TinyT5) -> Translator:
    names = tensor_shapes(tiny.config)
    return Translator.over(tiny.config, {name: torch.tensor(tiny.read(name)) for name in names})


@pytest.fixture(scope="module")
def answers(translator: Translator) -> list[Response]:
    return translate(translator.model, SOURCES, length=12, end=END)


def test_it_answers_as_transformers_does(tiny: TinyT5, answers: list[Response]) -> None:
    """Each text by itself there, together here, and until each answer ends."""
    ended = answers[0].tokens[2]  # whatever is said: an end that comes at different times
    model = Translator.over(
        tiny.config, {name: torch.tensor(tiny.read(name)) for name in tensor_shapes(tiny.config)}
    ).model
    found = translate(model, SOURCES, length=12, end=int(ended))
    for source, answer in zip(SOURCES, found, strict=True):
        expected = tiny.model.generate(
            torch.tensor([source]),
            max_new_tokens=12,
            do_sample=False,
            use_cache=False,
            eos_token_id=int(ended),
        )[0, 1:].tolist()
        assert answer.prompt.tolist() == source
        assert answer.tokens.tolist() == expected
    assert len({len(answer.tokens) for answer in found}) > 1


def test_a_lesson_is_what_transformers_computes(
    tiny: TinyT5, translator: Translator, answers: list[Response]
) -> None:
    for response in answers:
        [lesson] = lessons([response], ALL, VOCABULARY, 1 << 20, 0)
        with torch.no_grad():
            rows = translator.logits(lesson).numpy()
        expected = tiny.logits(response.prompt.tolist(), [0, *response.tokens[:-1].tolist()])
        assert np.abs(rows - expected).max() / np.abs(expected).max() < 1e-5


def test_lessons_do_not_depend_on_their_company(
    translator: Translator, answers: list[Response]
) -> None:
    def surprise(responses: list[Response]) -> list[float]:
        found = list[float]()
        for lesson in lessons(responses, ALL, VOCABULARY, 1 << 20, 0):
            loss = surprise_of(translator.logits(lesson), lesson)
            found.append(float(loss.total.detach()) * len(lesson.said))
        return found

    alone = sum(sum(surprise([each])) for each in answers)
    [together] = surprise(answers)
    assert together == pytest.approx(alone, rel=1e-4)


def test_its_own_answers_are_all_right(translator: Translator, answers: list[Response]) -> None:
    assert min(stands(translator, answers).positions) == 1.0
    [lesson] = lessons(answers, ALL, VOCABULARY, 1 << 20, 0)
    logits = translator.logits(lesson)
    loss = loss_of(logits, lesson)
    assert float(loss.overlap) == pytest.approx(float(lesson.probabilities.sum(1).mean()), abs=1e-3)
    assert loss.overlap > loss_of(logits.roll(1, 0), lesson).overlap + 0.02


def test_an_answer_from_a_book_is_all_of_its_law() -> None:
    response = as_response([5, 6, 1], [7, 8, 1])
    assert response.likeliest.tolist() == [[7], [8], [1]]
    assert response.probabilities.tolist() == [[1.0]] * 3
    [lesson] = lessons([response], ALL, VOCABULARY, 1 << 20, 0)
    logits = torch.zeros(3, VOCABULARY)
    assert float(surprise_of(logits, lesson).total) == pytest.approx(np.log(VOCABULARY))


def test_it_begins_where_rows_and_scores_are_about_one(tiny: TinyT5) -> None:
    translator = Translator.untaught(tiny.config, 0)
    [lesson] = lessons([as_response(SOURCES[-1], SOURCES[-2])], ALL, VOCABULARY, 1 << 20, 0)
    with torch.no_grad():
        logits = translator.logits(lesson)
    assert 0.3 < float(logits.std()) < 3.0
    again = Translator.untaught(tiny.config, 0)
    other = Translator.untaught(tiny.config, 1)
    name = "model.layers.0.cross_attn.q_proj.weight"
    assert torch.equal(translator.trained[name], again.trained[name])
    assert not torch.equal(translator.trained[name], other.trained[name])
