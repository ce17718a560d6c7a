"""The operator CachedAttention: against numpy, and bit for bit among its own rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from speccompile.plugins.cpu.library import DOMAIN
from speccompile.plugins.tree import ancestors, depths
from speccompile.runtime.engines.onnxruntime_session import load_operators
from speccompile.runtime.engines.ort import ort

Floats = NDArray[np.float32]

SLOTS, LONGEST = 160, 120
HEADS, KV_HEADS = 6, 2
CHAIN = tuple(range(-1, 40))
TREES = ((-1, 0, 0, 1, 1, 2, 5), (-1, -1, 0, 1, 1, 4, 3, 6, 2, 8))
NAMES = (
    *("query", "key", "value", "key_cache", "value_cache", "past_lens", "position_ids"),
    *("ancestors", "cosines", "sines", "bias"),
)


@dataclass(frozen=True)
class Shape:
    """Of attention: heads of so many channels, of which the first 2 x `half` are turned."""

    dim: int = 64
    half: int = 32
    softcap: float = 0.0
    window: int = 0
    biased: bool = False
    packed: bool = True

    @property
    def scale(self) -> float:
        return float(self.dim**-0.5)

    @property
    def angles(self) -> Floats:
        """[positions, half]."""
        steps = np.arange(self.half) / max(self.half, 1)
        return np.outer(np.arange(SLOTS), 100.0**-steps).astype(np.float32)


SHAPES = (
    Shape(),
    Shape(packed=False),
    Shape(dim=128, half=64),
    Shape(dim=256, half=128, softcap=5.0),
    Shape(dim=80, half=16),
    Shape(dim=20, half=4),
    Shape(dim=4, half=0),
    Shape(window=9),
    Shape(half=0, biased=True),
)


def numbers(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@dataclass
class Sequence:
    """Caches and rows of one: row i of the sequence is the same whatever runs beside it."""

    shape: Shape
    past: int

    def __post_init__(self) -> None:
        caches = KV_HEADS, SLOTS, self.shape.dim
        self.keys, self.values = numbers(1, *caches), numbers(2, *caches)
        self.rows = numbers(3, 40, (HEADS + 2 * KV_HEADS) * self.shape.dim)
        self.biases = numbers(4, 40, HEADS, SLOTS)

    def step(self, picked: NDArray[np.int64], parents: NDArray[np.int64]) -> Step:
        return Step(self, picked, parents)


@dataclass
class Step:
    """Rows `picked` of a sequence, each behind its parent in the step, or (-1) behind the cache."""

    of: Sequence
    picked: NDArray[np.int64]
    parents: NDArray[np.int64]

    @property
    def is_chain(self) -> bool:
        return bool((self.parents == np.arange(-1, len(self.parents) - 1)).all())

    def feeds(self) -> dict[str, Any]:
        shape, positions = self.of.shape, self.of.past + depths(self.parents)
        rows = self.of.rows[self.picked]
        tree = np.zeros((0, 0), np.bool_) if self.is_chain else ancestors(self.parents)
        apart = np.split(rows, np.array([HEADS, HEADS + KV_HEADS]) * shape.dim, 1)
        inputs = [rows, None, None] if shape.packed else apart
        values: dict[str, Any] = dict(zip(NAMES, inputs, strict=False))
        values |= {"key_cache": self.of.keys, "value_cache": self.of.values}
        values |= {"past_lens": np.int32(self.of.past), "position_ids": positions}
        if shape.half:
            values |= {"cosines": np.cos(shape.angles), "sines": np.sin(shape.angles)}
        if shape.biased:
            values["bias"] = self.biases().transpose(1, 0, 2)
        feeds = {name: np.asarray(each)[None] for name, each in values.items() if each is not None}
        for name in feeds.keys() & {"cosines", "sines"}:
            feeds[name] = feeds[name][0]
        return feeds | {"ancestors": tree}

    def positions_of_slots(self) -> NDArray[np.int64]:
        at, past = np.arange(SLOTS), self.of.past
        at[past : past + len(self.picked)] = past + depths(self.parents)
        return at

    def biases(self) -> Floats:
        """[N, H, SLOTS], which speak of positions."""
        return self.of.biases[self.picked][:, :, self.positions_of_slots()]

    def expected(self) -> NDArray[np.float64]:
        """[N, H D], in fp64."""
        shape, past = self.of.shape, self.of.past
        positions = past + depths(self.parents)
        rows = self.of.rows[self.picked].astype(np.float64)
        heads = rows.reshape(len(rows), -1, shape.dim)
        turned = _turned(heads[:, : HEADS + KV_HEADS], shape, positions)
        keys, values = self.of.keys.astype(np.float64), self.of.values.astype(np.float64)
        keys[:, past : past + len(rows)] = turned[:, HEADS:].swapaxes(0, 1)
        values[:, past : past + len(rows)] = heads[:, HEADS + KV_HEADS :].swapaxes(0, 1)
        at = self.positions_of_slots()
        seen = np.zeros((len(rows), SLOTS), np.bool_)
        seen[:, :past] = True
        seen[:, past : past + len(rows)] = ancestors(self.parents)
        if shape.window:
            seen &= at > positions[:, None] - shape.window
        mixed = np.empty((len(rows), HEADS, shape.dim))
        for head in range(HEADS):
            of = head * KV_HEADS // HEADS
            scores = turned[:, head] @ keys[of].T * shape.scale
            if shape.softcap:
                scores = shape.softcap * np.tanh(scores / shape.softcap)
            if shape.biased:
                scores = scores + self.biases()[:, head]
            scores = np.where(seen, scores, -np.inf)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            mixed[:, head] = weights / weights.sum(1, keepdims=True) @ values[of]
        return mixed.reshape(len(rows), -1)


def _turned(heads: NDArray[np.float64], shape: Shape, at: NDArray[np.int64]) -> NDArray[np.float64]:
    a, b = heads[..., : shape.half], heads[..., shape.half : 2 * shape.half]
    cosines, sines = (each(shape.angles)[at][:, None] for each in (np.cos, np.sin))
    turned = [a * cosines - b * sines, b * cosines + a * sines, heads[..., 2 * shape.half :]]
    return np.concatenate(turned, axis=-1)


def session(shape: Shape, inputs: dict[str, Any], threads: int = 1) -> ort.InferenceSession:
    values = {
        name: ir.Value(
            name=name,
            type=ir.TensorType(ir.tensor(array).dtype),
            shape=ir.Shape([None] * np.ndim(array)),
        )
        for name, array in inputs.items()
    }
    given: dict[str, int | float] = {"heads": HEADS, "kv_heads": KV_HEADS, "window": shape.window}
    given |= {"scale": shape.scale, "softcap": shape.softcap}
    operands = [values.get(name) for name in NAMES]
    attributes = ir.convenience.convert_attributes(given)
    node = ir.Node(DOMAIN, "CachedAttention", operands, attributes, num_outputs=3)
    for output, name in zip(node.outputs, ("mixed", "keys", "values"), strict=True):
        output.name, output.type = name, ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        list(values.values()), node.outputs, nodes=[node], opset_imports={"": 24, DOMAIN: 1}
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    assert load_operators(options) is None
    model = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(shape: Shape, feeds: dict[str, Any], threads: int = 1) -> tuple[Floats, Floats, Floats]:
    """What is mixed, [N, H D], and both caches, [Hkv, S, D]."""
    found = session(shape, feeds, threads).run(None, feeds)
    mixed, keys, values = (np.asarray(each, np.float32)[0] for each in found)
    return mixed, keys, values


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("past", [0, 5, LONGEST])
@pytest.mark.parametrize("parents", [CHAIN[:1], CHAIN[:7], CHAIN[:33], *TREES], ids=str)
def test_it_is_what_numpy_finds(shape: Shape, past: int, parents: tuple[int, ...]) -> None:
    step = Sequence(shape, past).step(np.arange(len(parents)), np.array(parents))
    mixed, _, _ = run(shape, step.feeds())
    np.testing.assert_allclose(mixed, step.expected(), atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("past", [0, 5, LONGEST])
def test_a_row_has_the_same_bits_in_any_company_tree_and_threads(shape: Shape, past: int) -> None:
    sequence = Sequence(shape, past)
    for parents in (np.array(CHAIN[:33]), *map(np.array, TREES)):
        together, _, _ = run(shape, sequence.step(np.arange(len(parents)), parents).feeds(), 2)
        for row in range(len(parents)):
            path = np.flatnonzero(ancestors(parents)[row])
            alone, _, _ = run(shape, sequence.step(path, np.arange(-1, len(path) - 1)).feeds())
            np.testing.assert_array_equal(together[row], alone[-1], f"row {row} of {parents}")


def test_bits_tell_one_order_of_sums_from_another() -> None:
    """What the test above would see: the same numbers in the cache, the other way round."""
    shape = Shape(half=0)
    forth, back = Sequence(shape, 64), Sequence(shape, 64)
    back.keys[:, :64], back.values[:, :64] = forth.keys[:, 63::-1], forth.values[:, 63::-1]
    one, other = (
        run(shape, each.step(np.arange(1), np.array([-1])).feeds())[0] for each in (forth, back)
    )
    np.testing.assert_allclose(one, other, atol=2e-6)
    assert (one != other).any()


def test_the_caches_get_the_rows_and_nothing_else() -> None:
    shape, past = Shape(), 11
    sequence = Sequence(shape, past)
    _, keys, values = run(shape, sequence.step(np.arange(3), np.array(CHAIN[:3])).feeds())
    heads = sequence.rows[:3].reshape(3, -1, shape.dim)
    turned = _turned(heads[:, HEADS:-KV_HEADS].astype(np.float64), shape, past + np.arange(3))
    np.testing.assert_allclose(keys[:, past : past + 3], turned.swapaxes(0, 1), atol=1e-6)
    expected = heads[:, -KV_HEADS:].swapaxes(0, 1)
    np.testing.assert_array_equal(values[:, past : past + 3], expected)
    for found, given in ((keys, sequence.keys), (values, sequence.values)):
        np.testing.assert_array_equal(found[:, :past], given[:, :past])
        np.testing.assert_array_equal(found[:, past + 3 :], given[:, past + 3 :])


def test_a_cache_that_is_bound_as_both_is_updated_where_it_lies() -> None:
    shape = Shape()
    step = Sequence(shape, 11).step(np.arange(3), np.array(CHAIN[:3]))
    feeds = step.feeds()
    expected, keys, _ = run(shape, feeds)
    opened = session(shape, feeds)
    binding = opened.io_binding()
    caches = {name: feeds.pop(f"{name}_cache").copy() for name in ("key", "value")}
    for name, array in feeds.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    for name, array in caches.items():
        bound = ort.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(f"{name}_cache", bound)
        binding.bind_ortvalue_output(f"{name}s", bound)
    binding.bind_output("mixed")
    opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[-1].numpy()[0], expected)
    np.testing.assert_array_equal(caches["key"][0], keys)


def test_sequences_of_a_batch_are_those_alone() -> None:
    shape = Shape()
    steps = [Sequence(shape, past).step(np.arange(3), np.array(CHAIN[:3])) for past in (5, 40)]
    feeds = [step.feeds() for step in steps]
    shared = {"ancestors", "cosines", "sines"}
    both = {
        name: feeds[0][name] if name in shared else np.concatenate([each[name] for each in feeds])
        for name in feeds[0]
    }
    together = np.asarray(session(shape, both).run(None, both)[0], np.float32)
    for found, each in zip(together, feeds, strict=True):
        np.testing.assert_array_equal(found, run(shape, each)[0])


def test_what_is_not_a_number_stays_so() -> None:
    sequence = Sequence(replace(SHAPES[0], half=0), 20)
    sequence.keys[1, 3] = np.nan
    mixed, _, _ = run(sequence.shape, sequence.step(np.arange(1), np.array([-1])).feeds())
    heads = mixed.reshape(HEADS, -1)
    assert np.isnan(heads[3:]).all()
    assert np.isfinite(heads[:3]).all()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("past_lens", np.array([SLOTS - 2], np.int32), "no room for the rows"),
        ("past_lens", np.array([-1], np.int32), "no room for the rows"),
        ("past_lens", np.array([1, 1], np.int32), r"past_lens are \[B\]"),
        ("position_ids", np.array([[0, 1, SLOTS]], np.int64), "outside of the cosines"),
        ("position_ids", np.array([[-1, 0, 1]], np.int64), "outside of the cosines"),
        ("ancestors", np.ones((2, 3), np.bool_), r"ancestors are \[N, N\]"),
        ("query", numbers(0, 1, 3, 640 - 64), "not rows of these heads"),
        ("value_cache", numbers(0, 1, KV_HEADS, SLOTS - 1, 64), "caches are not"),
        ("bias", numbers(0, 1, HEADS, 3, 13), "bias is"),
        ("sines", numbers(0, SLOTS, 33), "cosines and sines"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, value: NDArray[np.generic], message: str) -> None:
    shape = Shape()
    feeds = Sequence(shape, 11).step(np.arange(3), np.array(CHAIN[:3])).feeds() | {name: value}
    with pytest.raises(Exception, match=message):
        run(shape, feeds)
