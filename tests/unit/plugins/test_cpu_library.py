"""The operators for CPUs: against numpy, bit for bit among themselves, and compiled."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from speccompile.plugins.cpu import library as module
from speccompile.plugins.cpu.library import DOMAIN, LIBRARY, WIDTH, CpuLibraryError, cpu_library
from speccompile.runtime.engines.onnxruntime_session import load_operators
from speccompile.runtime.engines.ort import ort

Array = NDArray[np.generic]
Floats = NDArray[np.float32]

TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8)
DEPTH, MANY = 67, 18  # beyond so many rows, panels are converted first
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 13, MANY, MANY + 1, 40)


def matrix(kind: type, columns: int) -> Array:
    """[columns, DEPTH]."""
    random = np.random.default_rng(columns)
    if kind is np.int8:
        return random.integers(-127, 128, (columns, DEPTH), np.int8)
    return random.normal(0, 1, (columns, DEPTH)).astype(kind)


def rows(count: int) -> Floats:
    """The same ones, and further ones behind them."""
    return np.random.default_rng(1).normal(0, 1, (40, DEPTH)).astype(np.float32)[:count]


def panels_of(weights: Array) -> Array:
    missing = -len(weights) % WIDTH
    padded = np.concatenate([weights, np.zeros((missing, weights.shape[1]), weights.dtype)])
    return np.ascontiguousarray(padded.reshape(-1, WIDTH, weights.shape[1]).transpose(0, 2, 1))


def run(
    operator: str, inputs: Mapping[str, Array], *, threads: int = 1, **attributes: int
) -> Floats:
    """What the operator makes of `inputs`, in their order."""
    values = [
        ir.Value(name=name, type=ir.TensorType(ir.tensor(array).dtype), shape=ir.Shape(array.shape))
        for name, array in inputs.items()
    ]
    given = [ir.AttrInt64(name, value) for name, value in attributes.items()]
    node = ir.Node(DOMAIN, operator, values, given)
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    imports = {"": 24, DOMAIN: 1}
    for value, array in zip(values, inputs.values(), strict=True):
        value.const_value = ir.tensor(array, name=value.name)
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=values, opset_imports=imports)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    # What does not depend on inputs is otherwise computed when the session is opened.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert load_operators(options) is None
    model = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {})
    return np.asarray(found, np.float32)


def product(weights: Array, count: int, scales: Floats | None = None, threads: int = 1) -> Floats:
    inputs: dict[str, Array] = {"x": rows(count), "panels": panels_of(weights)}
    if scales is not None:
        inputs["scales"] = np.concatenate([scales, np.zeros(-len(scales) % WIDTH, np.float32)])
    return run("PanelMatMul", inputs, threads=threads, columns=len(weights))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("columns", [1, WIDTH, 40, 5 * WIDTH])
@pytest.mark.parametrize("count", COUNTS)
def test_products_are_those_of_numpy(kind: type, columns: int, count: int) -> None:
    weights = matrix(kind, columns)
    scales = np.linspace(0.5, 2, columns, dtype=np.float32) if kind is np.int8 else None
    expected = rows(count).astype(np.float64) @ weights.astype(np.float64).T
    if scales is not None:
        expected *= scales
    found = product(weights, count, scales)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("kind", TYPES)
def test_a_row_has_the_same_bits_in_any_company_and_on_any_threads(kind: type) -> None:
    weights = matrix(kind, 5 * WIDTH + 3)
    expected = _chains(weights, rows(40))
    for count in COUNTS:
        np.testing.assert_array_equal(product(weights, count), expected[:count])
    np.testing.assert_array_equal(product(weights, 7, threads=2), expected[:7])
    # Numbers that are summed in another order are others: the comparison can tell.
    turned = np.ascontiguousarray(weights[:, ::-1])
    assert (_chains(turned, rows(40)[:, ::-1]) != expected).any()


def _chains(weights: Array, x: Floats) -> Floats:
    """Each number as one chain of fused products. In 64 bits of mantissa products are exact, and
    sums so nearly that rounding them to 24 bits is as good as rounding once."""
    sums = np.zeros((len(x), len(weights)), np.float32)
    for place, column in enumerate(weights.astype(np.longdouble).T):
        sums = (sums + x[:, place, None].astype(np.longdouble) * column).astype(np.float32)
    return sums


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_the_matrix_are_looked_up(kind: type) -> None:
    weights = matrix(kind, 40)
    ids = np.array([[39, 0, 16], [7, 15, 39]])
    found = run("PanelGather", {"panels": panels_of(weights), "ids": ids})
    np.testing.assert_array_equal(found, weights.astype(np.float32)[ids])


@pytest.mark.parametrize(
    ("operator", "inputs", "columns", "message"),
    [
        ("PanelMatMul", {"x": rows(2)[:, 1:]}, 40, "not as deep as the panels"),
        ("PanelMatMul", {"x": rows(2)}, 49, "columns are not those of the panels"),
        ("PanelMatMul", {"x": rows(2)}, 32, "columns are not those of the panels"),
        ("PanelGather", {"ids": np.array([48])}, None, "an id is outside of the panels"),
        ("PanelGather", {"ids": np.array([-1])}, None, "an id is outside of the panels"),
    ],
)
def test_what_does_not_fit_is_refused(
    operator: str, inputs: dict[str, Array], columns: int | None, message: str
) -> None:
    panels: dict[str, Array] = {"panels": panels_of(matrix(np.float16, 40))}
    ordered = inputs | panels if operator == "PanelMatMul" else panels | inputs
    attributes = {} if columns is None else {"columns": columns}
    with pytest.raises(Exception, match=message):
        run(operator, ordered, **attributes)


def test_scales_that_are_not_padded_and_other_types_are_refused() -> None:
    panels, scales = panels_of(matrix(np.int8, 40)), np.ones(40, np.float32)
    with pytest.raises(Exception, match=r"scales are \[panels \* 16\]"):
        run("PanelMatMul", {"x": rows(1), "panels": panels, "scales": scales}, columns=40)
    with pytest.raises(Exception, match="panels are float32, float16, bfloat16 or int8"):
        run("PanelMatMul", {"x": rows(1), "panels": panels.astype(np.int32)}, columns=40)
    with pytest.raises(Exception, match=r"panels are \[panels, depth, 16\]"):
        run("PanelMatMul", {"x": rows(1), "panels": panels[:, :, :8].copy()}, columns=40)


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cpu_library(tmp_path / "new")
    assert [*(tmp_path / "new").iterdir()] == [first]
    monkeypatch.setenv("CC", "/no/such/compiler")
    assert cpu_library(tmp_path / "new") == first
    with pytest.raises(CpuLibraryError, match=r"/no/such/compiler cannot be run \(No such file"):
        cpu_library(tmp_path / "elsewhere")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CpuLibraryError, match="false does not compile the operators"):
        cpu_library(tmp_path / "elsewhere")
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_processor_that_they_are_not_for_is_the_reason() -> None:
    class Refusing:
        def register_custom_ops_library(self, path: str) -> None:
            assert path.endswith(".so")
            raise RuntimeError("the processor has\nno AVX2 and FMA")

    assert load_operators(Refusing()) == "the processor has no AVX2 and FMA"


def test_a_folder_that_cannot_be_written_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CpuLibraryError, match=r"file/.* cannot be written .*\$SPECCOMPILE_CACHE"):
        cpu_library(tmp_path / "file")


def test_what_comes_with_the_package_needs_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = cpu_library(tmp_path / "compiled").read_bytes()
    monkeypatch.setenv("CC", "/no/such/compiler")
    installed = tmp_path / "package"
    installed.mkdir()
    (installed / LIBRARY).write_bytes(library)

    def package(_: str) -> Path:
        return installed

    monkeypatch.setattr(module, "files", package)
    assert cpu_library(tmp_path / "cache") == installed / LIBRARY
    assert not (tmp_path / "cache").exists()


def test_in_an_archive_it_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = cpu_library(tmp_path / "compiled").read_bytes()
    with zipfile.ZipFile(tmp_path / "run.pyz", "w") as archive:
        archive.writestr(f"cpu/{LIBRARY}", library)

    def package(_: str) -> Traversable:
        return zipfile.Path(tmp_path / "run.pyz", "cpu/")

    monkeypatch.setattr(module, "files", package)
    monkeypatch.setenv("CC", "/no/such/compiler")
    unpacked = cpu_library(tmp_path / "cache")
    assert unpacked.read_bytes() == library
    written = unpacked.stat().st_mtime_ns
    assert cpu_library(tmp_path / "cache").stat().st_mtime_ns == written


def test_the_sources_are_package_data() -> None:
    names = {file.name for file in files("speccompile.plugins.cpu").iterdir()}
    assert {"operators.c", "panels.h", "cached_attention.h", "onnxruntime.h"} <= names
