"""An artifact on disk whose engines are tables, with plans for a GPU beside those for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from speccompile.plugins.launches import Launch
from speccompile.runtime import host
from speccompile.runtime.artifact import Artifact
from speccompile.runtime.device_engines import DeviceEngines
from speccompile.runtime.device_model import place_models
from speccompile.runtime.engine import Engine
from speccompile.runtime.files import FileEntry
from speccompile.runtime.gpus import PlanPair
from speccompile.runtime.manifest import (
    EngineInfo,
    GpuEngines,
    Manifest,
    ModelInfo,
    PlanInfo,
    Requirements,
)
from speccompile.runtime.measurements import unmeasured
from speccompile.runtime.placement import Placement
from tests.cuda import PLANS
from tests.host_device import HostDevice
from tests.table_model import TableModel, half
from tests.unit.runtime.tables import VOCABULARY, Table, TableEngine, make_table, near_table
from tests.verify_kernels import run_any_launch

__all__ = [
    "DRAFT",
    "FOLDER",
    "GPU_ENGINES",
    "TARGET",
    "TablePlans",
    "give_tables",
    "write_artifact",
]

FOLDER = "tensorrt-rtx-sm89"
CONTEXT = 64
TARGET = make_table(1)
DRAFT = near_table(TARGET, 2)
EXPERT = near_table(TARGET, 3)


def plan(role: Literal["target", "draft"], capacity: int) -> PlanInfo:
    target = role == "target"
    return PlanInfo(
        role=role,
        plan=f"engines/{FOLDER}/{role}-{capacity}.plan",
        precision="fp16" if target else "int8",
        rule="traversal" if target else "walk",
        layers=1,
        kv_heads=1,
        heads=1,
        head_dim=1,
        capacity=capacity,
        vocab_size=VOCABULARY,
        batch=1,
        rows=16,
        shares_cache=not target,
    )


GPU_ENGINES = replace(
    PLANS,
    kernels=f"engines/{FOLDER}/kernels.cubin",
    plans=tuple(plan(role, size) for role in ("target", "draft") for size in (CONTEXT + 8, 40)),
)


def write_artifact(
    root: Path, gpus: Mapping[str, GpuEngines] | None = None, experts: Sequence[str] = ()
) -> Path:
    """The artifact in the folder `root`; tokens are written w0 to w7."""
    gpus = {FOLDER: GPU_ENGINES} if gpus is None else gpus
    words = {f"w{token}": token for token in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    contents = {
        "engines/target.onnx": b"target",
        "engines/draft.onnx": b"draft",
        **{f"engines/{name}.onnx": name.encode() for name in experts},
        "tokenizer/tokenizer.json": tokenizer.to_str().encode(),
    }
    for engines in gpus.values():
        contents |= {
            path: path.encode() for path in (engines.kernels, *(p.plan for p in engines.plans))
        }
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    manifest = Manifest(
        schema=6,
        name="tiny",
        compiler_version="0.1.0",
        model=ModelInfo(VOCABULARY, CONTEXT, 1, 1, 1, None, ()),
        engines={
            "target": _engine("target", "target"),
            **{name: _engine("draft", name) for name in ("draft", *experts)},
        },
        requires=Requirements(host.describe().architecture, (), {}),
        provenance={},
        files={
            path: FileEntry(sha256(content).hexdigest(), len(content), "engine")
            for path, content in contents.items()
        },
        gpus=gpus,
    )
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    (root / "measurements.json").write_bytes(unmeasured(manifest).to_bytes())
    return root


def give_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engines for the CPU be tables."""

    def open_engine(info: EngineInfo, graph: Path, **settings: object) -> Engine:
        return TableEngine({"target": TARGET, "draft": DRAFT}.get(graph.stem, EXPERT))

    monkeypatch.setattr("speccompile.runtime.runner.open_engine", open_engine)


@dataclass
class TablePlans:
    """Opens plans as tables on a device of the host; see `OpenPlans`."""

    target: Table = field(default_factory=lambda: half(TARGET))
    draft: Table = field(default_factory=lambda: half(DRAFT))
    noise: float = 0.0
    run: Callable[[Launch], None] = run_any_launch
    opened: list[PlanPair] = field(default_factory=list[PlanPair])
    devices: list[HostDevice] = field(default_factory=list[HostDevice])
    closed: int = 0

    def __call__(self, artifact: Artifact, placement: Placement) -> DeviceEngines:
        pair = placement.pair
        self.opened.append(pair)
        device = HostDevice(eager=False, run=self.run)
        self.devices.append(device)
        models: dict[str, TableModel] = {
            plan.role: TableModel(
                device,
                self.target if plan.role == "target" else self.draft,
                plan.role,
                plan.rule,
                capacity=plan.capacity,
                rows=plan.rows,
                noise=self.noise,
            )
            for plan in pair.plans
        }
        placed = place_models(device, models, shares_cache=True, batch=1)
        return DeviceEngines(device, placed, shares_cache=True, close=self._close)

    def _close(self) -> None:
        self.closed += 1


def _engine(role: Literal["target", "draft"], name: str) -> EngineInfo:
    return EngineInfo(
        *(role, "openvino", f"engines/{name}.onnx", "fp16", "fp32", 1, 1, 1, 1, CONTEXT),
        vocab_size=VOCABULARY,
        min_rows=1,
        shares_cache=False,
    )
