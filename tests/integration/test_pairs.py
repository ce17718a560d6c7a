"""Targets and drafts that differ: in padding, context, template; and tokenizers that do not fit."""

from __future__ import annotations

import copy
import io
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
import pytest
from rich.console import Console

from speccompile.cli.build_summary import print_summary
from speccompile.compiler.build import Built
from speccompile.compiler.execute import Observer, StageResult
from speccompile.compiler.memory import cache_bytes, weight_bytes
from speccompile.compiler.pairing import PairError
from speccompile.compiler.reference import ContractEngine
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.runner import Runner
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Request, Session
from tests.building import Builder, RecordedDraft, save_model
from tests.families import Tiny, tiny

USED, ROWS = 512, 576
SHORT = 128  # the context that the draft was trained for
PROMPT = list(range(40, 140))


class Models(NamedTuple):
    """Two of one tokenizer that mostly agree: as they are, and with their vocabulary padded."""

    plain: Path
    padded: Path
    padded_model: Any


class Seen(Observer):
    def __init__(self) -> None:
        self.stages: list[str] = []

    def finished(self, result: StageResult) -> None:
        self.stages.append(result.name)


@pytest.fixture(scope="module")
def models(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Models:
    settings = {"bos_token_id": None, "eos_token_id": 0}
    model = tiny("llama", max_position_embeddings=256, **settings)
    folder = tmp_path_factory.mktemp("plain")
    plain = save_model(model.model, folder, model_folder)
    wide = tiny("llama", vocab_size=ROWS, max_position_embeddings=SHORT, **settings)
    padded = _padded(model, wide)
    folder = save_model(padded, tmp_path_factory.mktemp("padded"), model_folder)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text(encoding="utf-8").replace("<|", "< |"), encoding="utf-8")
    return Models(plain, folder, padded)


@pytest.fixture(scope="module")
def pair(models: Models, build_of: Builder) -> Callable[[str], Built]:
    """The pair with the padded draft, on one backend."""

    @cache
    def build(backend: str) -> Built:
        return build_of(
            target={"source": models.plain},
            draft={"source": models.padded},
            engine={"cpu": [backend]},
        )

    return build


@pytest.fixture(scope="module")
def reversed_pair(models: Models, build_of: Builder) -> Built:
    """The pair with the padded target, whose contracts are kept."""
    return build_of(
        target={"source": models.padded},
        draft={"source": models.plain},
        engine={"cpu": ["onnxruntime"], "memory_gb": 0.01},
        context={"length": SHORT},
        artifact={"keep_onnx": True},
    )


BACKENDS = pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])


def test_the_padding_would_be_chosen_if_it_were_there(models: Models) -> None:
    """Else the tests below could not fail."""
    import torch

    with torch.inference_mode():
        logits = models.padded_model(torch.tensor([PROMPT])).logits[0]
    assert (logits.argmax(-1) >= USED).float().mean() > 0.9


@BACKENDS
def test_a_padded_draft_proposes_no_padding(pair: Callable[[str], Built], backend: str) -> None:
    _check_no_padding(pair(backend))
    vocabularies = {
        name: model["vocabulary"] for name, model in pair(backend).report["models"].items()
    }
    assert vocabularies == {
        "target": {"rows": USED, "used": USED, "padding": 0},
        "draft": {"rows": ROWS, "used": USED, "padding": ROWS - USED},
    }


def test_a_padded_target_generates_no_padding(reversed_pair: Built) -> None:
    _check_no_padding(reversed_pair)
    models = reversed_pair.report["models"]
    assert models["target"]["vocabulary"] == {"rows": ROWS, "used": USED, "padding": ROWS - USED}
    assert reversed_pair.manifest.model.vocab_size == USED


@BACKENDS
def test_a_draft_of_shorter_context_stops_proposing_there(
    pair: Callable[[str], Built], backend: str
) -> None:
    built = pair(backend)
    assert built.manifest.engines["draft"].capacity == SHORT
    runner = Runner.open(built.path)
    plain, _ = _generate(runner, PROMPT, Request(120), drafted=False)
    tokens, draft = _generate(runner, PROMPT, Request(120), drafted=True)
    assert tokens == plain
    assert len(tokens) == 120
    proposed = [length + len(proposal) for length, proposal in draft.proposals if proposal]
    assert max(proposed) == SHORT + 1  # the last row that it has is asked for the token after it
    assert [proposal for length, proposal in draft.proposals if length > SHORT] != []
    assert not any(proposal for length, proposal in draft.proposals if length > SHORT)
    # A prompt that the draft cannot hold is decoded plainly, from its first token on.
    long = [*PROMPT, *plain[:60]]
    assert _generate(runner, long, Request(20), drafted=True)[0] == plain[60:80]


@BACKENDS
def test_the_report_compares_the_draft_with_its_full_precision(
    pair: Callable[[str], Built], backend: str
) -> None:
    (entry,) = [entry for entry in pair(backend).report["candidates"] if entry["role"] == "draft"]
    quality = entry["quality"]
    assert entry["precision"] == "int8"
    assert quality["kl_divergence"] > 0
    assert 0.5 < quality["acceptance"] < 1
    # On the same contexts, against the same choices of the target.
    assert 0 < abs(quality["acceptance"] - quality["reference_acceptance"]) < 0.1
    assert 0 < abs(quality["sampled_acceptance"] - quality["reference_sampled_acceptance"]) < 0.1


def test_another_chat_template_is_a_warning_that_is_seen(pair: Callable[[str], Built]) -> None:
    built = pair("openvino")
    (warning,) = json.loads((built.path / "reports/build.json").read_text("utf-8"))["warnings"]
    assert warning.startswith("line 1 of the chat template is ")
    assert "%}<|{{ m['role']" in warning
    assert warning.endswith("to the draft; the target's is used")
    printed = io.StringIO()
    print_summary(Console(file=printed, width=1000), built)
    assert f"warning: {warning}" in printed.getvalue().splitlines()
    runner = Runner.open(built.path)
    assert "<|user|>" in runner.tokenizer.decode(
        runner.encode_chat([{"role": "user", "content": "x"}]), skip_special_tokens=False
    )


def test_contracts_are_kept_where_asked(
    reversed_pair: Built, pair: Callable[[str], Built], tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(reversed_pair.path, moved)
    files = open_artifact(moved).manifest.files
    kept = {path for path, entry in files.items() if entry.role == "contract"}
    names = ("contract.onnx", "weights.safetensors")
    assert kept == {f"model/{role}/{name}" for role in ("target", "draft") for name in names}
    graph = moved / "model/target/contract.onnx"
    inputs = ort.InferenceSession(graph, providers=["CPUExecutionProvider"]).get_inputs()
    assert [value.name for value in inputs][:2] == ["input_ids", "position_ids"]
    expected = Runner.open(moved).engine("target").step(PROMPT[:20])
    rows = ContractEngine(graph).step(PROMPT[:20])
    assert np.abs(rows - expected).max() <= 1e-4 * np.abs(expected).max()
    others = open_artifact(pair("openvino").path).manifest.files
    assert "contract" not in {entry.role for entry in others.values()}


def test_a_budget_is_refused_with_what_takes_it(models: Models, build_of: Builder) -> None:
    config, engines = tiny("llama").config, ["openvino", "onnxruntime"]
    sizes = {
        "target weights": weight_bytes(config, "fp16", {}, engines),
        "target cache": cache_bytes(config, 256 + 32),
        "draft weights": weight_bytes(config, "int8", {}, engines),
        "draft cache": cache_bytes(config, SHORT),
    }
    listing = ", ".join(f"{name} {size / 1e9:.3g}" for name, size in sizes.items())
    total = sum(sizes.values()) / 1e9
    seen = Seen()
    with pytest.raises(SpeccompileError) as refused:
        build_of(
            seen,
            target={"source": models.plain},
            draft={"source": models.padded},
            engine={"memory_gb": 0.0005, "cpu": engines},
        )
    assert str(refused.value) == (
        f"engine.memory_gb is 0.0005, but the artifact takes {total:.3g} GB ({listing}); "
        "raise it, lower context.length, or choose a lower precision"
    )
    assert {"reference", "quantize"}.isdisjoint(stage.split()[0] for stage in seen.stages)


def _eos_is_another(folder: Path) -> None:
    _edit(folder / "tokenizer_config.json", lambda content: content.update(eos_token="<|user|>"))


def _bos_is_given(folder: Path) -> None:
    _edit(folder / "tokenizer_config.json", lambda content: content.update(bos_token="<|end|>"))


def _merges_are_exchanged(folder: Path) -> None:
    def exchange(content: Any) -> None:  # noqa: ANN401
        merges = content["model"]["merges"]
        merges[0], merges[1] = merges[1], merges[0]

    _edit(folder / "tokenizer.json", exchange)


def _a_token_is_added(folder: Path) -> None:
    def add(content: Any) -> None:  # noqa: ANN401
        content["added_tokens"].append({**content["added_tokens"][0], "id": 512, "content": "<x>"})

    _edit(folder / "tokenizer.json", add)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (_merges_are_exchanged, "merge 0 is "),
        (_eos_is_another, "eos_token is '<|end|>' to the target and '<|user|>' to the draft"),
        (_bos_is_given, "bos_token is None to the target and '<|end|>' to the draft"),
        (_a_token_is_added, "token 512 is None to the target and '<x>' to the draft"),
    ],
)
def test_another_tokenizer_of_the_same_size_is_refused_by_the_first_difference(
    models: Models,
    build_of: Builder,
    tmp_path: Path,
    change: Callable[[Path], None],
    difference: str,
) -> None:
    other, seen = tmp_path / "other", Seen()
    shutil.copytree(models.plain, other)
    change(other)
    with pytest.raises(PairError) as refused:
        build_of(seen, target={"source": models.plain}, draft={"source": other})
    message = str(refused.value)
    assert message.startswith(difference)
    assert message.endswith(f"(target {models.plain}, draft {other})")
    assert seen.stages == ["load target", "load draft"]


def _padded(model: Tiny, wide: Tiny) -> Any:  # noqa: ANN401
    """`model` with a little noise in the shape of `wide`, where the rows of padding are so large
    that they would be chosen."""
    import torch

    weights = {name: values.clone() for name, values in model.model.state_dict().items()}
    torch.manual_seed(1)
    for values in weights.values():
        values += 0.02 * values.std() * torch.randn(values.shape)
    padding = torch.randn(ROWS - USED, 64) * 2.0
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = torch.cat([weights[name], padding])
    padded = copy.deepcopy(wide.model)
    padded.load_state_dict(weights)
    return padded


def _check_no_padding(built: Built) -> None:
    runner = Runner.open(built.path)
    hot = Request(100, sampling=Sampling(temperature=5.0, seed=7))
    tokens, draft = _generate(runner, PROMPT[:20], hot, drafted=True)
    proposed = {token for _, proposal in draft.proposals for token in proposal}
    assert len(set(tokens)) > 50  # hot indeed
    assert len(proposed) > 50
    assert max(*tokens, *proposed) < USED
    request = Request(100)
    plain, _ = _generate(runner, PROMPT[:20], request, drafted=False)
    speculative, draft = _generate(runner, PROMPT[:20], request, drafted=True)
    assert speculative == plain
    assert len(plain) == 100
    assert len(draft.proposals) < 80  # of which many stood


def _generate(
    runner: Runner, prompt: list[int], request: Request, *, drafted: bool
) -> tuple[list[int], RecordedDraft]:
    draft = RecordedDraft(ModelDraft(runner.engine("draft")))
    context = runner.manifest.model.context_length
    session = Session(runner.engine("target"), draft if drafted else None, context=context)
    return list(session.generate(prompt, request)), draft


def _edit(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
