"""Plain decoding of an artifact against OpenVINO GenAI, on the same weights and arithmetic.

    pip install openvino-genai==2026.4.1
    python benchmarks/against_openvino_genai.py artifacts/smollm2-135m MODEL.gguf

MODEL.gguf is the file that the artifact was built from. GenAI reads a copy of it whose matrices are
dequantized to FP16, which are the artifact's weights; both sum in FP32 and keep an FP32 cache. Each
prompt is decoded greedily by both, in turn, and the ratio is taken prompt by prompt.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import openvino as ov
import openvino_genai as genai  # pyright: ignore[reportMissingImports]  # only to be compared

from speccompile.cli.prompts import read_prompts
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Request


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("artifact", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--prompts", type=Path, help="one a line, or JSON lines with a `prompt`")
    parser.add_argument("--limit", type=int, default=20, help="how many prompts")
    parser.add_argument("--tokens", type=int, default=128)
    arguments = parser.parse_args()
    runner = Runner.open(arguments.artifact)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.gguf"
        write_fp16(arguments.gguf, model)
        pipeline = genai.LLMPipeline(
            str(model), "CPU", INFERENCE_PRECISION_HINT="f32", KV_CACHE_PRECISION="f32"
        )
        return compare(runner, pipeline, arguments)


def compare(runner: Runner, pipeline: Any, arguments: argparse.Namespace) -> int:
    ours: list[float] = []
    theirs: list[float] = []
    same = 0
    prompts = read_prompts(arguments.prompts)[: arguments.limit]
    for index, text in enumerate(["Say hello.", *prompts]):
        prompt = runner.encode_chat([{"role": "user", "content": text}])
        first, second = (plain, peer) if index % 2 else (peer, plain)
        results = dict(side(runner, pipeline, prompt, arguments.tokens) for side in (first, second))
        if index == 0:
            continue  # warm-up
        ours.append(results["speccompile"][1])
        theirs.append(results["genai"][1])
        same += results["speccompile"][0] == results["genai"][0]
        print(
            f"{index}/{len(prompts)}: {ours[-1]:.1f} against {theirs[-1]:.1f} tokens/s", flush=True
        )
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(
        f"plain decoding, median tokens/s: speccompile {statistics.median(ours):.1f}, "
        f"OpenVINO GenAI {statistics.median(theirs):.1f}; "
        f"median ratio {statistics.median(ratios):.3f}; "
        f"same tokens on {same} of {len(prompts)} prompts"
    )
    return 0


Side = tuple[str, tuple[list[int], float]]


def plain(runner: Runner, pipeline: Any, prompt: list[int], tokens: int) -> Side:
    session = runner.session("none")
    stop = frozenset(runner.manifest.model.eos_token_ids)
    request = Request(max_new_tokens=tokens, draft_length=0, stop_tokens=stop)
    output = list(session.generate(prompt, request))
    return "speccompile", (output, session.statistics.tokens_per_second)


def peer(runner: Runner, pipeline: Any, prompt: list[int], tokens: int) -> Side:
    config = genai.GenerationConfig(max_new_tokens=tokens, do_sample=False)
    config.stop_token_ids = set(runner.manifest.model.eos_token_ids)
    result = pipeline.generate(ov.Tensor(np.array([prompt], np.int64)), config)
    output = [token for token in result.tokens[0] if token not in config.stop_token_ids]
    return "genai", (output, 1e3 / result.perf_metrics.get_tpot().mean)


def write_fp16(source: Path, destination: Path) -> None:
    """Copy a GGUF file with its matrices dequantized to FP16."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(destination, str(reader.fields["general.architecture"].contents()))
    for key, entry in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if entry.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, entry.contents())
        elif key == "general.file_type":
            writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        else:
            writer.add_key_value(key, entry.contents(), entry.types[0])
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float16 if values.ndim > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    sys.exit(main())
