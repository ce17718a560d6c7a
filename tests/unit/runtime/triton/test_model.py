"""The model that Triton calls, on a stub of its interface: a request gets what it asks for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import triton_python_backend_utils as pb_utils

from speccompile.runtime.errors import EngineError
from speccompile.runtime.options import Options
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Session
from speccompile.runtime.triton.repository import write_model
from tests.table_artifact import give_tables, write_artifact
from tests.unit.runtime.triton.models import ask, initialize

PROMPT = "w1 w2 w3 w1"


@pytest.fixture
def version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an exported version; its model's change of the path is undone."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    give_tables(monkeypatch)
    return write_model(write_artifact(tmp_path / "tiny"), tmp_path / "models")


@pytest.fixture
def model(version: Path) -> Any:  # noqa: ANN401
    return initialize(version)


def plain(version: Path, options: Options) -> str:
    """What the target alone would write."""
    runner = Runner.open(version / "artifact", on="cpu")
    output = next(runner.outputs(runner.session("none"), runner.encode(PROMPT), options))
    return "".join(output)


def test_the_answer_is_the_targets(version: Path, model: Any) -> None:  # noqa: ANN401
    answer = ask(model, version, {"text_input": PROMPT, "max_tokens": 12})
    assert answer.texts == [plain(version, Options(max_new_tokens=12))]
    assert answer.reasons == ["length"]
    assert answer.counts == [(4, 12)]


def test_a_stream_says_the_same_in_pieces(version: Path, model: Any) -> None:  # noqa: ANN401
    answer = ask(model, version, {"text_input": PROMPT, "max_tokens": 12, "stream": True})
    assert len(answer.texts) > 3
    assert "".join(answer.texts) == plain(version, Options(max_new_tokens=12))
    assert answer.texts[-1] == ""
    assert answer.reasons == [""] * (len(answer.texts) - 1) + ["length"]
    assert {length for length, _ in answer.counts} == {4}
    lengths = [length for _, length in answer.counts]
    assert lengths == sorted(lengths)
    assert lengths[-1] == 12


def test_every_option_reaches_the_runtime(
    version: Path,
    model: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Options] = []
    outputs = Runner.outputs

    def outputs_seen(self: Runner, session: Session, prompt: list[int], options: Options) -> Any:  # noqa: ANN401
        seen.append(options)
        return outputs(self, session, prompt, options)

    monkeypatch.setattr(Runner, "outputs", outputs_seen)
    asked: dict[str, Any] = {
        "min_tokens": 2,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.75,
        "min_p": 0.125,
        "seed": (1 << 64) - 1,
        "repetition_penalty": 1.5,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.5,
        "stop": ["w9", "ä"],
        "stop_tokens": [6, 7],
        "bad_words": ["w5"],
    }
    answer = ask(model, version, {"text_input": PROMPT, "max_tokens": 9, "raw": True, **asked})
    assert answer.error is None
    del asked["min_tokens"]
    expected = Options(max_new_tokens=9, min_new_tokens=2, audited=True, **asked)
    assert seen == [expected]


@pytest.mark.parametrize("form", ["json_schema", "regex", "grammar"])
def test_a_form_of_the_output_is_followed(
    form: str,
    version: Path,
    model: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Options] = []

    def outputs(self: Runner, session: Session, prompt: list[int], options: Options) -> Any:  # noqa: ANN401
        seen.append(options)
        return iter([self.stream(session, prompt, options.request())])

    monkeypatch.setattr(Runner, "outputs", outputs)
    assert ask(model, version, {"text_input": PROMPT, "max_tokens": 1, form: "x"}).error is None
    assert getattr(seen[0], form) == "x"


def test_a_seed_repeats_the_output(version: Path, model: Any) -> None:  # noqa: ANN401
    def draw(seed: int) -> list[str]:
        return ask(
            model,
            version,
            {"text_input": PROMPT, "max_tokens": 24, "temperature": 1.0, "seed": seed},
        ).texts

    assert draw(5) == draw(5) != draw(6)
    options = Options(max_new_tokens=24, temperature=1.0, seed=5, audited=True)
    assert draw(5) == [plain(version, options)]


def test_a_stop_text_ends_the_output(version: Path, model: Any) -> None:  # noqa: ANN401
    whole = ask(model, version, {"text_input": PROMPT, "max_tokens": 12}).texts[0]
    stop = whole.split()[3]
    answer = ask(model, version, {"text_input": PROMPT, "max_tokens": 12, "stop": [stop]})
    assert answer.texts[0] == whole[: whole.index(stop)]
    assert answer.reasons == ["stop"]


def test_requests_are_answered_in_turn(version: Path, model: Any) -> None:  # noqa: ANN401
    """Also behind one that is refused."""
    first = ask(model, version, {"text_input": PROMPT, "max_tokens": 8})
    assert ask(model, version, {"text_input": PROMPT, "top_p": 0.0}).error is not None
    assert ask(model, version, {"text_input": PROMPT, "max_tokens": 8}).texts == first.texts


def test_what_cannot_be_is_refused_as_the_callers(version: Path, model: Any) -> None:  # noqa: ANN401
    refused = {
        "top_p": ask(model, version, {"text_input": PROMPT, "top_p": 0.0}),
        "max_new_tokens": ask(model, version, {"text_input": PROMPT, "max_tokens": -1}),
        "the prompt has 0 tokens": ask(model, version, {"text_input": ""}),
        "the prompt has 100 tokens": ask(model, version, {"text_input": "w1 " * 100}),
        "temperatur is unknown; did you mean temperature?": ask(
            model, version, {"text_input": PROMPT}, parameters={"temperatur": 1.0}
        ),
        "n is unknown; there are text_input, raw": ask(
            model, version, {"text_input": PROMPT}, parameters={"n": 2}
        ),
        "bad_words is not UTF-8": ask(
            model, version, {"text_input": PROMPT, "bad_words": [b"\xff"]}
        ),
        "text_input is not UTF-8": ask(model, version, {"text_input": [b"\xff"], "stream": True}),
    }
    for message, answer in refused.items():
        assert answer.error is not None, message
        assert message in answer.error.message()
        assert answer.error.code() == pb_utils.TritonError.INVALID_ARG
        assert answer.texts == []


def test_an_engine_that_fails_is_the_servers_error(
    version: Path,
    model: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = ask(model, version, {"text_input": PROMPT, "max_tokens": 8})

    def fail(*_: object) -> None:
        raise EngineError("the engine failed")

    with monkeypatch.context() as patch:
        patch.setattr("speccompile.runtime.session.prefill", fail)
        answer = ask(model, version, {"text_input": "w3 w3", "max_tokens": 8})
    assert answer.error is not None
    assert answer.error.message() == "the engine failed"
    assert answer.error.code() == pb_utils.TritonError.INTERNAL
    assert ask(model, version, {"text_input": PROMPT, "max_tokens": 8}).texts == whole.texts


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_more_is_decoded_for_a_client_that_left(
    stream: bool,
    version: Path,
    model: Any,  # noqa: ANN401
) -> None:
    answer = ask(
        model,
        version,
        {"text_input": PROMPT, "max_tokens": 40, "stream": stream},
        cancel_after=2 if stream else 0,
    )
    assert len(answer.texts) == (2 if stream else 0)
    assert answer.error is not None
    assert answer.error.code() == pb_utils.TritonError.CANCELLED
    assert ask(model, version, {"text_input": PROMPT, "max_tokens": 6}).reasons == ["length"]


def test_an_artifact_that_was_changed_is_not_loaded(version: Path) -> None:
    (version / "artifact/engines/target.onnx").write_bytes(b"tarset")
    with pytest.raises(pb_utils.TritonModelException, match=r"'engines/target[.]onnx' changed"):
        initialize(version)


def test_the_parameters_of_the_config_count(version: Path) -> None:
    with pytest.raises(pb_utils.TritonModelException, match="nowhere"):
        initialize(version, on="nowhere")
