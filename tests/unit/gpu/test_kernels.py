"""The checks of the kernels, on kernels compiled for a host; and that they find wrong ones."""

from __future__ import annotations

import pytest

from speccompile.plugins.cubins import kernel_sources
from tests.gpu.arena import Arena
from tests.gpu.bandwidth import Bench, measure_rows, measure_state
from tests.gpu.kernels import check_compaction, check_large, check_masks, check_verdicts
from tests.gpu.round_steps import check_rounds
from tests.gpu.sections import Task
from tests.host_device import HostDevice
from tests.kernels import build_host_kernels
from tests.unit.gpu.devices import HostClock, host_device

SIZE = 48 << 20


def check_everything(device: HostDevice) -> Task:
    arena, task = Arena(device, SIZE), Task(60.0)
    assert check_masks(device, arena, task, cases=6) == 18
    assert check_compaction(device, arena, task, cases=6) == 24
    assert check_rounds(device, arena, task, cases=6) == 36
    assert check_verdicts(device, arena, task, seeds=3) == 3 * 3 * (4 + 2) * 16
    assert check_large(device, arena, task, [4915]) == 3 * 3 + 2 * 5
    return task


@pytest.mark.parametrize("eager", [True, False])
def test_right_kernels_pass(eager: bool) -> None:
    task = check_everything(host_device(eager=eager))
    assert task.outcome().reason == ""


def test_wrong_kernels_are_found() -> None:
    sources = {**kernel_sources()}
    for file, right, wrong in (
        ("residual.cuh", "q[i] * rejection.draft_scale", "q[i]"),
        ("philox.cuh", "round < 10", "round < 9"),
        ("tree_mask.cu", "length + depth - window", "length - window"),
        ("compact.cu", "path[i] != i", "path[i] != i + 1"),
        ("round.cu", "length + step - (rows - 1)", "length + step"),
    ):
        assert right in sources[file]
        sources[file] = sources[file].replace(right, wrong)
    differences = check_everything(host_device(kernels=build_host_kernels(sources))).differences
    for said in ("bushes", "Philox", "sliding_mask", "CompactRows", "draft_lengths"):
        assert any(said in difference for difference in differences), said
    assert not any(said in each for said in ("position_ids", "commit") for each in differences)


def test_every_kernel_is_timed() -> None:
    device, task = host_device(), Task(60.0)
    bench = Bench(device, HostClock(), 1 << 18, 1e9)
    arena = Arena(device, SIZE)
    measure_rows(bench, arena, task, vocabulary=512, nodes=3)
    measure_state(bench, arena, task)
    kernels = {name.split()[0] for name in task.figures}
    assert kernels == {"rows", "walk", "tree_mask", "keep_logits", "compact_rows"}
    assert task.figures["rows fp16 V=512 N=3 greedy"]["bytes"] == 3 * 512 * 2
    assert task.figures["rows fp16 V=512 N=3 sampled"]["bytes"] == 5 * 512 * 2
    assert all(figures["us_warm"] > 0 < figures["us_cold"] for figures in task.figures.values())
