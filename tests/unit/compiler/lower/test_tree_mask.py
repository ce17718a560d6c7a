from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from speccompile.compiler.decoder import LayerKind
from speccompile.compiler.lower.passes import LoweringError, run_passes
from speccompile.compiler.lower.tree_mask import TREE_MASK_PASS
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.verify_functions import attach
from speccompile.plugins.schema import NAMESPACE, TREE_MASK, VERSION
from speccompile.plugins.tree import tree_mask
from tests.unit.compiler.lower.graphs import CAPACITY, CONFIG, STORAGES, TOKENS, contract, write

WINDOW = 6
SLIDING = replace(CONFIG, kinds=(replace(CONFIG.kinds[0], window=WINDOW), CONFIG.kinds[0]))
CONFIGS = {
    "one kind": CONFIG,
    "two kinds": replace(SLIDING, layer_kinds=(0, 1)),
    "all sliding": SLIDING,
    "no positions": replace(CONFIG, kinds=(LayerKind(None),)),
}
PARENTS = np.array([-1, 0, 0, 1, 1, 2, 4, 5])


@pytest.mark.parametrize("name", CONFIGS)
def test_a_tree_gives_what_the_masks_gave(tmp_path: Path, name: str) -> None:
    config = CONFIGS[name]
    write(tmp_path, STORAGES["fp32"], config)
    original, path = tmp_path / "contract.onnx", tmp_path / "model.onnx"
    ir.save(contract(tmp_path, config), original)
    engine = ContractEngine(original, threads=1)
    context = len(TOKENS) - len(PARENTS)
    engine.step(TOKENS[:context])
    window = WINDOW if "sliding_mask" in _inputs(contract(tmp_path, config)) else 0
    lengths = np.array([context])
    positions, mask, _ = tree_mask(PARENTS[None], lengths, CAPACITY, window)
    expected = engine.step_rows(TOKENS[context:], positions[0], mask[0, 0])

    model = contract(tmp_path, config)
    assert run_passes(model, [TREE_MASK_PASS]) == {"tree_mask": 1}
    assert _inputs(model)[:4] == ["input_ids", "parents", "lengths", "key_cache.0"]
    (node,) = (node for node in model.graph if node.op_type == "TreeMask")
    assert [value.name for value in node.outputs] == [each.name for each in TREE_MASK.outputs]
    assert [node.attributes[key].as_int() for key in TREE_MASK.attributes] == [CAPACITY, window]
    assert node.attributes["plugin_namespace"].as_string() == NAMESPACE
    assert node.attributes["plugin_version"].as_string() == VERSION
    assert node.domain == "speccompile"
    attach(model, TREE_MASK)
    ir.save(model, path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    caches = [each for each in _inputs(model) if "cache" in each]
    state = {each: np.zeros((1, 2, CAPACITY, 16), np.float32) for each in caches}
    for start, parents in ((0, np.arange(-1, context - 1)), (context, PARENTS)):
        ids = np.array([TOKENS[start : start + len(parents)]])
        feeds = {"input_ids": ids, "parents": parents[None], "lengths": np.array([start])}
        outputs = ["logits", *(f"new_{each}" for each in caches)]
        logits, *new = (np.asarray(value) for value in session.run(outputs, feeds | state))
        state = dict(zip(caches, new, strict=True))
    np.testing.assert_allclose(logits[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_graph_without_a_cache_is_refused() -> None:
    scatter = ir.node("TensorScatter", [ir.Value(name="cache")])
    graph = ir.Graph([], [], nodes=[scatter], opset_imports={"": 24})
    with pytest.raises(LoweringError, match=r"\Athe graph has no write_index"):
        run_passes(ir.Model(graph, ir_version=11), [TREE_MASK_PASS])


def _inputs(model: ir.Model) -> list[str]:
    return [str(value.name) for value in model.graph.inputs]
