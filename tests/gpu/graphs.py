"""Rounds of torch decoders as captured graphs: what they say, what they hold, what they take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from speccompile.runtime.device import Device
from speccompile.runtime.device_memory import host_array
from speccompile.runtime.device_model import DeviceModel, place_models
from speccompile.runtime.device_session import DeviceSession
from speccompile.runtime.engines.device_engine import DeviceEngine
from speccompile.runtime.request import Request
from speccompile.runtime.round_state import AHEAD, Round
from speccompile.runtime.rounds import Kind, Rounds
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.gpu.opening import open_cuda
from tests.gpu.sections import Skip, Task
from tests.gpu.texts import TIE, TIE_HALF, greedy_text, same_text, sampled_text
from tests.gpu.timing import Clock, CudaClock
from tests.gpu.torch_decoder import Decoder, Shape, first_layers, noisy, random_weights
from tests.gpu.torch_model import CudaQueue, Queue, TorchModel

__all__ = [
    "LARGE",
    "TINY",
    "Pair",
    "WatchedRounds",
    "check_memory",
    "check_texts",
    "layered_pair",
    "measure_rounds",
    "noisy_pair",
    "run",
]

TINY = Shape(512, 64, 96, 2, 4, 2)
LARGE = Shape(32768, 1024, 2816, 10, 16, 4)
"""180 million parameters."""
LARGE_DRAFT_LAYERS = 2

_LENGTH = 200  # of a sequence whose rounds are timed
_SLACK = 2 << 20  # bytes; other processes of the GPU may come and go


def run(task: Task) -> None:
    if not torch.cuda.is_available():
        raise Skip(f"torch {torch.__version__} has no CUDA that runs here")
    torch.set_float32_matmul_precision("highest")
    with open_cuda(task) as device:
        queue, clock = CudaQueue(device), CudaClock(device)
        for shares_cache in (False, True):
            pair = noisy_pair(queue, TINY, capacity=160, shares_cache=shares_cache)
            check_texts(device, pair, task, lengths=range(1, 9), tokens=96)
        pair = layered_pair(queue, LARGE, LARGE_DRAFT_LAYERS, capacity=1024)
        rounds = pair.rounds(device)
        measure_rounds(device, clock, pair, rounds, task, tokens=256)
        check_memory(device, rounds, task, rounds_of_each=200)


@dataclass(frozen=True)
class Pair:
    """Two decoders of one vocabulary."""

    queue: Queue
    target: Decoder
    draft: Decoder
    shares_cache: bool
    rows: int = 64

    def models(self, device: Device) -> dict[str, DeviceModel]:
        target = TorchModel(self.queue, self.target, "target", "traversal", self.rows)
        draft = TorchModel(self.queue, self.draft, "draft", "walk", self.rows)
        models = {"target": target, "draft": draft}
        return place_models(device, models, shares_cache=self.shares_cache)

    def rounds(self, device: Device) -> WatchedRounds:
        models = self.models(device)
        return WatchedRounds(
            device, models["target"], models["draft"], shares_cache=self.shares_cache
        )

    def target_rows(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        return _numpy(self.target.complete(tokens))

    def draft_rows(self, tokens: Sequence[int], committed: int) -> NDArray[np.float32]:
        if not self.shares_cache:
            return _numpy(self.draft.complete(tokens))
        given = self.target.keys_and_values(tokens[:committed])
        return _numpy(self.draft.complete(tokens, given))


class WatchedRounds(Rounds):
    """Rounds that note how many were on the device when the host began to wait for one."""

    most_ahead = 0
    _latest = 0

    def launch(self, kind: Kind) -> Round:
        launched = super().launch(kind)
        self._latest = launched.number
        return launched

    def result(self, launched: Round) -> list[list[int]]:
        self.most_ahead = max(self.most_ahead, self._latest - launched.number + 1)
        return super().result(launched)

    def eager(self, kind: Kind) -> None:
        """Enqueue a round without a graph, one call after the other."""
        self._record(kind)
        self.state.enqueued(kind.batch, kind.rows)


def noisy_pair(queue: Queue, shape: Shape, *, capacity: int, shares_cache: bool) -> Pair:
    """In fp32, so that a greedy token is no matter of rounding: the draft is the target, changed
    by so much that its opinion often differs."""
    weights = random_weights(shape, 1)
    decoders = [
        Decoder(shape, each, capacity, queue.where, torch.float32)
        for each in (weights, noisy(weights, 2, 0.2))
    ]
    return Pair(queue, decoders[0], decoders[1], shares_cache)


def layered_pair(
    queue: Queue, shape: Shape, layers: int, *, capacity: int, dtype: torch.dtype = torch.float16
) -> Pair:
    """The draft has the first `layers` of the target, whose others change little: what they take is
    what they would take with any weights."""
    weights = random_weights(shape, 3, quiet_from=layers)
    small = Shape(
        shape.vocabulary, shape.hidden, shape.intermediate, layers, shape.heads, shape.kv_heads
    )
    target = Decoder(shape, weights, capacity, queue.where, dtype)
    draft = Decoder(small, first_layers(weights, layers), capacity, queue.where, dtype)
    return Pair(queue, target, draft, shares_cache=False)


def check_texts(
    device: Device, pair: Pair, task: Task, *, lengths: Iterable[int], tokens: int
) -> None:
    """Texts of captured rounds are those of the definition, for every number of proposals."""
    prompt = [int(token) for token in np.random.default_rng(5).integers(3, 500, 21)]
    what = "a shared cache" if pair.shares_cache else "caches of their own"
    rounds = pair.rounds(device)
    session = DeviceSession(rounds)
    plain = greedy_text(pair.target_rows, prompt, tokens)
    by_host = Session(DeviceEngine(device, rounds.state.target))
    found = list(by_host.generate(prompt, Request(tokens, draft_length=0)))
    same_text(task, f"the host's loop, {what}", found, plain, prompt, pair.target_rows, TIE)
    accepted: dict[int, float] = {}
    for length in (0, *lengths):
        # The loop of the host wrote over the rows that the rounds left.
        rounds.cached.drop(0)
        found = list(session.generate(prompt, Request(tokens, draft_length=length)))
        name = f"greedy, K = {length}, {what}"
        same_text(task, name, found, plain, prompt, pair.target_rows, TIE)
        accepted[length] = round(session.statistics.acceptance, 3)
        _check_sampled(session, pair, task, f"K = {length}, {what}", prompt, length, tokens // 2)
    task.compare(f"rounds on the device at a time, {what}", rounds.most_ahead, AHEAD)
    task.note(f"texts with {what}", {"different tokens": len(set(plain)), "accepted": accepted})


def _check_sampled(
    session: DeviceSession,
    pair: Pair,
    task: Task,
    what: str,
    prompt: Sequence[int],
    length: int,
    tokens: int,
) -> None:
    """A seed gives one text, and it is the definition's: of one seed of two at least, for sums in
    another order move the bounds between tokens by about 1e-6, and a number may fall there."""
    parted: list[tuple[list[int], list[int]]] = []
    for seed in (length, length + (1 << 63)):
        sampling = Sampling(0.9, top_k=50, top_p=0.95, seed=seed)
        request = Request(tokens, sampling, draft_length=length)
        texts = [list(session.generate(prompt, request)) for _ in range(2)]
        task.compare(f"a seed twice, {what}", texts[1], texts[0])
        rows = pair.target_rows, pair.draft_rows
        expected = sampled_text(*rows, prompt, sampling, length, tokens)
        if texts[0] != expected:
            parted.append((texts[0], expected))
    if len(parted) == 2:
        task.compare(f"sampled, {what}", *parted[0])


def measure_rounds(
    device: Device, clock: Clock, pair: Pair, rounds: WatchedRounds, task: Task, *, tokens: int
) -> None:
    """Time of a token, plainly and by rounds; and of a round, with a graph and without."""
    prompt = [int(token) for token in np.random.default_rng(6).integers(0, 500, 64)]
    session = DeviceSession(rounds)
    texts: dict[int, list[int]] = {}
    for length in (0, 4, 8):
        request = Request(tokens, draft_length=length)
        for _ in range(2):  # the first captures
            texts[length] = list(session.generate(prompt, request))
        statistics = session.statistics
        figures: dict[str, object] = {
            "ms_per_token": round(1e3 * statistics.decode_seconds / statistics.decode_tokens, 4),
            "ms_per_round": round(1e3 * statistics.decode_seconds / statistics.rounds, 4),
            "tokens_per_round": round(statistics.accepted_length, 3),
            "tokens_as_plain": same_text(
                task, f"K = {length}", texts[length], texts[0], prompt, pair.target_rows, TIE_HALF
            ),
        }
        task.note(f"session, K = {length}", figures)
    for length in (0, 4):
        task.note(f"round, K = {length}", _graph_and_eager(device, clock, rounds, length))


def _graph_and_eager(
    device: Device, clock: Clock, rounds: WatchedRounds, length: int, times: int = 20
) -> dict[str, float]:
    """The same round at the same length, over and over: a stopped sequence stays where it is."""
    kind = Kind(1, length, sampled=False)
    rounds.state.begin(Sampling(), _LENGTH)
    _stop(device, rounds, 1)
    graph = rounds.prepare(kind)
    rounds.arrange(kind)
    rounds.eager(kind)

    def by_graph() -> None:
        for _ in range(times):
            rounds.launch(kind)

    def eagerly() -> None:
        for _ in range(times):
            rounds.eager(kind)

    graph.replay()
    seconds = {"graph": clock.seconds(by_graph), "eager": clock.seconds(eagerly)}
    # Nobody read these rounds, and the device counted more of them than the host.
    rounds.reset()
    _stop(device, rounds, 0)
    figures = {f"ms_{name}": round(1e3 * taken / times, 4) for name, taken in seconds.items()}
    return {**figures, "speedup": round(seconds["eager"] / seconds["graph"], 2)}


def check_memory(device: Device, rounds: WatchedRounds, task: Task, *, rounds_of_each: int) -> None:
    """Rounds take no memory beyond what their graphs do."""
    session = DeviceSession(rounds)
    prompt = [int(token) for token in np.random.default_rng(7).integers(0, 500, 32)]

    def some_rounds() -> int:
        count = 0
        while count < rounds_of_each:
            list(session.generate(prompt, Request(200, draft_length=4)))
            count += session.statistics.rounds
        return count

    some_rounds()
    before, start = _held(device), time.perf_counter()
    grown: list[int] = []
    count = some_rounds()
    grown.append(_held(device) - before)
    if grown[0] > 0:  # of another process, perhaps; a leak goes on
        before = _held(device)
        count += some_rounds()
        grown.append(_held(device) - before)
    if min(grown) > _SLACK:
        task.wrong(f"{count} rounds took {grown} bytes of the device's memory")
    seconds = round(time.perf_counter() - start, 2)
    figures = {"rounds": count, "grown_bytes": grown, "seconds": seconds, "held_bytes": before}
    task.note("memory of rounds", figures)


def _held(device: Device) -> int:
    memory = device.memory()
    return memory.total - memory.free


def _stop(device: Device, rounds: Rounds, value: int) -> None:
    """Have the first sequence stay as it is, or go on."""
    size = np.dtype(np.int64).itemsize
    pinned = device.allocate_pinned(size)
    host_array(pinned, size).view(np.int64)[:] = value
    device.upload(rounds.state.addresses(1)["stopped"], pinned, size)
    rounds.state.settle("stopping a sequence")


def _numpy(logits: torch.Tensor) -> NDArray[np.float32]:
    rows: NDArray[np.float32] = logits.cpu().numpy()
    return rows
