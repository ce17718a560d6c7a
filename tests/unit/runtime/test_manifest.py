import json
from dataclasses import fields, replace
from hashlib import sha256
from typing import Any, Literal, get_args

import pytest

from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.files import FileEntry
from speccompile.runtime.manifest import (
    EngineInfo,
    GpuEngines,
    Manifest,
    ModelInfo,
    PlanInfo,
    Requirements,
    parse_manifest,
)

Precision = Literal["fp32", "fp16", "bf16", "int8", "mixed"]

TARGET = EngineInfo(
    role="target",
    backend="openvino",
    graph="engines/cpu/target.xml",
    precision="fp16",
    arithmetic="fp32",
    layers=2,
    kv_heads=2,
    heads=4,
    head_dim=16,
    capacity=256,
    vocab_size=512,
    min_rows=1,
    shares_cache=False,
)
DRAFT = replace(TARGET, role="draft", graph="engines/cpu/draft.onnx", backend="onnxruntime")
MANIFEST = Manifest(
    schema=6,
    name="tiny",
    compiler_version="0.1.0",
    model=ModelInfo(512, 256, 2, 2, 16, None, (0, 2)),
    engines={"target": TARGET, "draft": DRAFT},
    requires=Requirements("x86_64", ("avx2",), {"openvino": "2026.4"}),
    provenance={"recipe": {"prompts": ["é\n", None, 1.5, True, -3]}},
    files={path: FileEntry("0" * 64, 3, "engine") for path in (TARGET.graph, DRAFT.graph)},
)

PLAN = PlanInfo(
    role="target",
    plan="engines/sm89/target.plan",
    precision="fp16",
    rule="traversal",
    layers=2,
    kv_heads=2,
    heads=4,
    head_dim=16,
    capacity=288,
    vocab_size=512,
    batch=1,
    rows=128,
    shares_cache=False,
)
GPU = GpuEngines(
    library="tensorrt_rtx",
    library_version="1.7.1.116",
    architecture="sm89",
    cuda="13.0",
    kernels="engines/sm89/kernels.cubin",
    plugin="0" * 64,
    plans=(PLAN,),
)
WITH_GPU = replace(
    MANIFEST,
    gpus={"sm89": GPU},
    files={
        **MANIFEST.files,
        **dict.fromkeys((PLAN.plan, GPU.kernels), FileEntry("1" * 64, 3, "engine")),
    },
)


def refusal(data: bytes) -> str:
    with pytest.raises(ArtifactError) as caught:
        parse_manifest(data, "a/manifest.json")
    message = str(caught.value)
    assert message.startswith("a/manifest.json: ")
    assert "\n" not in message
    return message


def test_round_trip() -> None:
    data = MANIFEST.to_bytes()
    read = parse_manifest(data, "manifest.json")
    assert read == MANIFEST
    assert read.identity == sha256(data).hexdigest()
    assert isinstance(read.engines["target"], EngineInfo)


IDS = "engines/cpu/token_ids.bin"
RESTRICTED = replace(
    MANIFEST,
    engines={"target": TARGET, "draft": replace(DRAFT, token_ids=IDS)},
    files={**MANIFEST.files, IDS: FileEntry("2" * 64, 8, "engine")},
)


def test_a_draft_may_leave_tokens_out() -> None:
    read = parse_manifest(RESTRICTED.to_bytes(), "manifest.json")
    assert read == RESTRICTED
    assert read.engines["draft"].token_ids == IDS
    assert read.engines["draft"].vocab_size == MANIFEST.model.vocab_size


def test_tokens_are_left_out_by_a_draft_alone_and_named_beside_its_graph() -> None:
    both = {role: replace(engine, token_ids=IDS) for role, engine in MANIFEST.engines.items()}
    targets = replace(RESTRICTED, engines=both)
    assert "engines['target'].token_ids: only a draft may" in refusal(targets.to_bytes())
    missing = replace(RESTRICTED, files=MANIFEST.files)
    assert "engines['draft'].token_ids is no file" in refusal(missing.to_bytes())
    elsewhere = replace(RESTRICTED.engines["draft"], token_ids="run.pyz")
    away = replace(
        RESTRICTED,
        engines={"target": TARGET, "draft": elsewhere},
        files={**MANIFEST.files, "run.pyz": FileEntry("2" * 64, 8, "runtime")},
    )
    assert "is not beside the graph: 'run.pyz'" in refusal(away.to_bytes())


def test_every_field_is_part_of_the_identity() -> None:
    others = [
        replace(MANIFEST, name="other"),
        replace(MANIFEST, engines={"target": TARGET}),
        replace(MANIFEST, engines={"target": replace(TARGET, min_rows=2), "draft": DRAFT}),
        replace(MANIFEST, provenance={}),
        RESTRICTED,
        replace(MANIFEST, files={**MANIFEST.files, "run.pyz": FileEntry("0" * 64, 0, "runtime")}),
    ]
    assert len({MANIFEST.identity, *(other.identity for other in others)}) == len(others) + 1


def test_no_measured_figure_has_a_place_in_it() -> None:
    names = {field.name for kind in (Manifest, EngineInfo) for field in fields(kind)}
    assert names.isdisjoint({"cost_ms", "acceptance", "lossless", "defaults"})
    report = {"reports/build.json": FileEntry("0" * 64, 3, "report")}
    message = refusal(replace(MANIFEST, files={**MANIFEST.files, **report}).to_bytes())
    assert "files['reports/build.json'] is a report, which is measured" in message


def test_a_draft_is_optional() -> None:
    alone = replace(MANIFEST, engines={"target": TARGET})
    assert parse_manifest(alone.to_bytes(), "manifest.json") == alone
    nothing = replace(MANIFEST, engines={"draft": DRAFT})
    assert "engines['target'] is missing" in refusal(nothing.to_bytes())


def test_encoders_are_files_and_belong_to_a_start_token() -> None:
    encoder = "engines/cpu/encoder.onnx"
    reading = replace(
        MANIFEST,
        model=replace(MANIFEST.model, start_token_id=0),
        engines={
            role: replace(engine, backend="onnxruntime", encoder=encoder, shares_cache=False)
            for role, engine in MANIFEST.engines.items()
        },
        files={**MANIFEST.files, encoder: FileEntry("0" * 64, 1, "engine")},
    )
    read = parse_manifest(reading.to_bytes(), "manifest.json")
    assert read.engines["target"].encoder == encoder
    assert read.model.start_token_id == 0
    plain = replace(reading, model=MANIFEST.model)
    assert "].encoder does not fit model.start_token_id" in refusal(plain.to_bytes())
    without = replace(reading, files=MANIFEST.files)
    assert "].encoder is no file" in refusal(without.to_bytes())
    target = replace(reading.engines["target"], backend="openvino")
    other = replace(reading, engines={**reading.engines, "target": target})
    assert "engines['target'].encoder: openvino runs none" in refusal(other.to_bytes())
    draft = replace(reading.engines["draft"], encoder=None)
    blind = replace(reading, engines={**reading.engines, "draft": draft})
    assert "engines['draft'].encoder does not fit model" in refusal(blind.to_bytes())


@pytest.mark.parametrize("precision", get_args(Precision))
def test_precisions(precision: Precision) -> None:
    target = replace(TARGET, precision=precision)
    manifest = replace(MANIFEST, engines={"target": target, "draft": DRAFT})
    assert parse_manifest(manifest.to_bytes(), "manifest.json") == manifest


def test_only_a_draft_with_a_cache_of_its_own_may_end_before_the_target() -> None:
    short = replace(DRAFT, capacity=128)
    manifest = replace(MANIFEST, engines={"target": TARGET, "draft": short})
    assert parse_manifest(manifest.to_bytes(), "manifest.json") == manifest
    sharing = replace(
        manifest, engines={"target": TARGET, "draft": replace(short, shares_cache=True)}
    )
    assert "engines['draft'].capacity is below the context" in refusal(sharing.to_bytes())


CODE = replace(DRAFT, graph="engines/cpu/code.onnx")
WITH_EXPERTS = replace(
    MANIFEST,
    engines={"target": TARGET, "draft": DRAFT, "code": CODE, "chat": CODE},
    files={**MANIFEST.files, CODE.graph: FileEntry("3" * 64, 3, "engine")},
)


def test_experts_are_the_engines_beside_the_draft() -> None:
    assert parse_manifest(WITH_EXPERTS.to_bytes(), "manifest.json") == WITH_EXPERTS
    assert WITH_EXPERTS.experts == ("chat", "code")
    assert WITH_EXPERTS.drafts == ("draft", "chat", "code")
    assert (MANIFEST.experts, MANIFEST.drafts) == ((), ("draft",))
    assert replace(MANIFEST, engines={"target": TARGET}).drafts == ()


@pytest.mark.parametrize(
    ("engines", "message"),
    [
        ({"draft": DRAFT, "ngram": CODE}, "the key 'ngram' of engines is 'ngram', which means"),
        ({"draft": DRAFT, "../x": CODE}, "use lower case letters, digits, _ and -"),
        ({"draft": DRAFT, "code": TARGET}, "engines['code'].role is 'target'"),
        ({"code": CODE}, "engines['code'] is an expert beside no draft"),
        (
            {name: replace(CODE, shares_cache=True) for name in ("draft", "code")},
            "engines: draft and code share one cache, where one can",
        ),
    ],
)
def test_faults_of_experts(engines: dict[str, EngineInfo], message: str) -> None:
    faulty = replace(WITH_EXPERTS, engines={"target": TARGET, **engines})
    assert message in refusal(faulty.to_bytes())


def test_engines_for_gpus() -> None:
    assert parse_manifest(WITH_GPU.to_bytes(), "manifest.json") == WITH_GPU
    assert WITH_GPU.identity != MANIFEST.identity


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (replace(GPU, architecture="89"), ".architecture must be like sm89, not '89'"),
        (replace(GPU, cuda="13"), ".cuda must be major.minor, not '13'"),
        (replace(GPU, kernels="x"), ".kernels is no file: 'x'"),
        (replace(GPU, plans=(replace(PLAN, plan="x"),)), ".plans[0].plan is no file: 'x'"),
        (replace(GPU, plans=(replace(PLAN, role="draft"),)), " has no plan of the target"),
        (
            replace(GPU, plans=(PLAN, replace(PLAN, role="draft", capacity=64, shares_cache=True))),
            ": no target has the cache of 'engines/sm89/target.plan'",
        ),
    ],
)
def test_faults_of_engines_for_gpus(changed: GpuEngines, message: str) -> None:
    assert f"gpus['sm89']{message}" in refusal(replace(WITH_GPU, gpus={"sm89": changed}).to_bytes())


def test_a_flipped_or_missing_byte_is_refused() -> None:
    data = MANIFEST.to_bytes()
    for index in range(0, len(data), 3):
        refusal(bytes([*data[:index], data[index] ^ 1, *data[index + 1 :]]))
        refusal(data[:index] + data[index + 1 :])


def test_an_artifact_of_the_first_schema_is_refused_by_what_is_read() -> None:
    message = refusal(b'{"schema": 1, "defaults": {}}')
    assert "schema 1 is older than this speccompile reads (6): build it again" in message


# The place in the document, what is put there, and what the refusal says.
FAULTS: list[tuple[str, object, str]] = [
    ("model kv_head", 1, "model has the unknown key 'kv_head'"),
    ("model eos_token_ids", [1, -2], "model.eos_token_ids[1] must be a whole number from 0"),
    ("engines draft role", "target", "engines['draft'].role is 'target'"),
    ("engines draft precision", "int4", "engines['draft'].precision must be one of fp32, fp16, "),
    ("engines draft cost_ms", {}, "engines['draft'] has the unknown key 'cost_ms'"),
    ("engines draft graph", "x", "engines['draft'].graph is no file: 'x'"),
    ("engines target capacity", 8, "engines['target'].capacity is below the context of 256"),
    ("requires packages numpy", "2", "requires.packages['numpy'] must be major.minor, not '2'"),
    (f"files {TARGET.graph} sha256", "A" * 64, f"files['{TARGET.graph}'].sha256 must be 64 lower"),
    ("files ../up", {"sha256": "0" * 64, "size": 0, "role": "x"}, "files['../up'] is absolute or"),
]


@pytest.mark.parametrize(("place", "value", "message"), FAULTS)
def test_fields(place: str, value: object, message: str) -> None:
    *outer, key = place.split()
    changed: dict[str, Any] = json.loads(MANIFEST.to_bytes())
    holder = changed
    for name in outer:
        holder = holder[name]
    holder[key] = value
    assert message in refusal(json.dumps(changed).encode())
