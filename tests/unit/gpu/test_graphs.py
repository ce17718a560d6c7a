"""The checks of rounds, on a host: the same decoders, sessions and definitions, only smaller."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from speccompile.runtime.device_session import DeviceSession
from speccompile.runtime.session import Request
from tests.gpu.graphs import (
    TINY,
    check_memory,
    check_texts,
    layered_pair,
    measure_rounds,
    noisy_pair,
)
from tests.gpu.sections import Task
from tests.gpu.texts import same_text
from tests.gpu.torch_decoder import Decoder, random_weights
from tests.gpu.torch_model import HostQueue
from tests.host_device import HostDevice
from tests.unit.gpu.devices import HostClock, host_device

CPU = torch.device("cpu")
SIX = replace(TINY, layers=6)


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
def test_captured_rounds_say_what_decoding_is_defined_to(shares_cache: bool) -> None:
    device, task = host_device(eager=False), Task(60.0)
    pair = noisy_pair(HostQueue(device), TINY, capacity=96, shares_cache=shares_cache)
    check_texts(device, pair, task, lengths=[1, 4], tokens=32)
    assert task.outcome().reason == ""
    [figures] = task.figures.values()
    assert figures["different tokens"] > 10
    assert 0.2 < figures["accepted"][4] < 0.9


def test_another_text_than_the_definition_s_is_found() -> None:
    device, task = host_device(), Task(60.0)
    pair = noisy_pair(HostQueue(device), TINY, capacity=96, shares_cache=False)
    wrong = replace(pair, target=Decoder(TINY, random_weights(TINY, 9), 96, CPU, torch.float32))
    prompt = [3, 4, 5]
    found = list(DeviceSession(wrong.rounds(device)).generate(prompt, Request(8, draft_length=0)))
    expected = list(DeviceSession(pair.rounds(device)).generate(prompt, Request(8, draft_length=0)))
    same_text(task, "greedy", found, expected, prompt, pair.target_rows, 1e-4)
    assert "of the largest logit away" in task.differences[0]


def test_a_tie_is_no_difference() -> None:
    def rows(_: object) -> np.ndarray:
        return np.array([[0.0, 10.0, 9.9995, 5.0]], np.float32)

    task = Task(60.0)
    assert same_text(task, "greedy", [1, 2, 3], [1, 1, 3], [0], rows, 1e-4) == 1
    assert task.outcome().status == "ok"
    assert same_text(task, "greedy", [1, 3, 3], [1, 1, 3], [0], rows, 1e-4) == 1
    assert task.outcome().status == "failed"


def test_rounds_are_timed_with_graphs_and_without_and_hold_no_more() -> None:
    device, task = host_device(), Task(60.0)
    pair = layered_pair(HostQueue(device), SIX, 2, capacity=300, dtype=torch.float32)
    rounds = pair.rounds(device)
    measure_rounds(device, HostClock(), pair, rounds, task, tokens=40)
    check_memory(device, rounds, task, rounds_of_each=20)
    assert task.outcome().reason == ""
    assert task.figures["session, K = 4"]["tokens_per_round"] > 3
    assert task.figures["round, K = 4"]["ms_graph"] > 0 < task.figures["round, K = 4"]["ms_eager"]
    assert task.figures["memory of rounds"]["rounds"] >= 20


def test_memory_that_rounds_take_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    device, task = host_device(), Task(60.0)
    pair = layered_pair(HostQueue(device), TINY, 1, capacity=96, dtype=torch.float32)
    held = iter(range(0, 10 << 30, 4 << 20))

    def growing(_: HostDevice) -> int:
        return next(held)

    monkeypatch.setattr("tests.gpu.graphs._held", growing)
    check_memory(device, pair.rounds(device), task, rounds_of_each=2)
    assert "bytes of the device's memory" in task.outcome().reason
