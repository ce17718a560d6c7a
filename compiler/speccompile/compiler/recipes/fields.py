"""The types of a recipe's fields that are more than a number in a range."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationInfo,
)
from pydantic_core import PydanticKnownError

from speccompile.compiler.recipes.paths import portable, resolve_file, resolve_source
from speccompile.runtime.draft_names import expert_refusal

__all__ = [
    "Activations",
    "Architectures",
    "Capacities",
    "DraftLength",
    "Engines",
    "ExpertName",
    "FigureCommand",
    "File",
    "LayerPrecision",
    "Layers",
    "Line",
    "OutlierThreshold",
    "Precision",
    "Sha256",
    "Smoothing",
    "Source",
    "once_by_name",
]

Architecture = Literal["sm75", "sm80", "sm86", "sm89", "sm90", "sm100", "sm120", "sm121"]
LayerPrecision = Literal["fp32", "fp16", "bf16", "int8"]
Precision = Literal["fp32", "fp16", "bf16", "int8", "mixed"]

_Item = TypeVar("_Item")
_NamedItem = TypeVar("_NamedItem", bound="_Named")


def _line(text: str) -> str:
    if len(text.splitlines()) > 1:
        raise ValueError("has several lines; write one")
    return text


def _draft_length(value: object) -> object:
    # Neither Literal (true and 1.0 equal 1) nor a union (one error per branch) says it as well.
    if value == "auto" or (type(value) is int and 1 <= value <= 8):
        return value
    raise PydanticKnownError("literal_error", {"expected": "1 to 8, or 'auto'"})


def _engines(engines: tuple[str, ...]) -> tuple[str, ...]:
    if not engines:  # not `min_length`, which counts only the items that are right
        raise ValueError("is empty; name an engine, or leave the key out for all of them")
    return _once(engines)


def _once(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    for item in items:
        if items.count(item) > 1:
            raise ValueError(f"repeats {item}; name each once")
    return items


class _Named(Protocol):
    name: str


def _once_by_name(items: tuple[_NamedItem, ...]) -> tuple[_NamedItem, ...]:
    _once(tuple(item.name for item in items))
    return items


def _expert_name(name: str) -> str:
    if refusal := expert_refusal(name):
        raise ValueError(refusal)
    return name


def _pinned(digest: str | None, info: ValidationInfo) -> str | None:
    source = info.data.get("source", "")
    if digest is None and source.startswith("pypi:"):
        raise ValueError("is missing; a pypi: source must be pinned by its file's SHA-256")
    if digest is not None and source == "target":
        raise ValueError('pins nothing when the source is "target"; set target.sha256')
    return digest


def _layers(table: object) -> object:
    """A table as the pairs it consists of: frozen, and in the order in which patterns apply."""
    return None if table is None else tuple(_PATTERNS.validate_python(table).items())


def _pattern(pattern: str) -> str:
    if pattern.endswith(".weight"):
        raise ValueError("ends in .weight, which patterns leave out")
    return pattern


def _flat(precision: object) -> object:
    if isinstance(precision, Mapping):
        raise ValueError("is a table; put a pattern with dots in quotes")
    return precision


def _mixed_alone(layers: Patterns | None, info: ValidationInfo) -> Patterns | None:
    mixed = info.data.get("precision", "") == "mixed"
    if layers is None:
        if mixed:
            raise ValueError('is missing; precision = "mixed" takes it from this table')
        return layers
    if not mixed and "precision" in info.data:
        precision = info.data["precision"]
        raise ValueError(f'needs precision = "mixed", but it is "{precision}"; remove one of them')
    if "*" not in dict(layers):
        raise ValueError('has no pattern "*"; begin with it, for what no other pattern matches')
    return layers


def _of_int8(value: object, info: ValidationInfo) -> object:
    """Refuse what changes INT8 layers alone in a model that has none."""
    precision, layers = info.data.get("precision"), info.data.get("layers")
    # A precision or table that is itself wrong is not in `data`: one mistake, not two.
    known = precision is not None and (precision != "mixed" or layers is not None)
    int8 = precision == "int8" or (precision == "mixed" and "int8" in dict(layers or ()).values())
    if value not in (0, "dynamic") and known and not int8:
        if precision == "mixed":
            raise ValueError("works on INT8 layers, but no pattern in layers is int8; leave it out")
        raise ValueError(
            f'works on INT8 layers, but precision is "{precision}"; '
            'leave it out, or choose "int8" or "mixed"'
        )
    return value


def _with_measurement(command: str, info: ValidationInfo) -> str:
    if not command and info.data.get("kind") == "measured":
        raise ValueError("is missing; a measured figure needs the command that measured it")
    return command


# Lax on the outside alone: TOML has strings and lists where we keep paths and (frozen) tuples.
_Lax = Field(strict=False)
_Located = PlainSerializer(portable)
_Hex = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]
_Int8Only = AfterValidator(_of_int8)
_PATTERNS = TypeAdapter(
    dict[
        Annotated[str, AfterValidator(_pattern)], Annotated[LayerPrecision, BeforeValidator(_flat)]
    ],
    config=ConfigDict(strict=True),
)
Patterns = tuple[tuple[str, LayerPrecision], ...]

Line = Annotated[str, AfterValidator(_line)]
Source = Annotated[str, Field(min_length=1), AfterValidator(resolve_source), _Located]
Sha256 = Annotated[_Hex | None, Field(validate_default=True), AfterValidator(_pinned)]
File = Annotated[Path, _Lax, AfterValidator(resolve_file), _Located]
Layers = Annotated[
    Patterns | None,
    Field(validate_default=True),
    BeforeValidator(_layers),
    AfterValidator(_mixed_alone),
]
OutlierThreshold = Annotated[float, Field(ge=0.0), _Int8Only]
Smoothing = Annotated[float, Field(ge=0.0, le=1.0), _Int8Only]
Activations = Annotated[Literal["dynamic", "static"], _Int8Only]
ExpertName = Annotated[str, AfterValidator(_expert_name)]
once_by_name = AfterValidator(_once_by_name)
DraftLength = Annotated[int | Literal["auto"], BeforeValidator(_draft_length)]
Engines = Annotated[tuple[Literal["openvino", "onnxruntime"], ...], _Lax, AfterValidator(_engines)]
Architectures = Annotated[tuple[Architecture, ...], _Lax, AfterValidator(_once)]
Capacities = Annotated[
    tuple[Annotated[int, Field(ge=64, le=131072, multiple_of=32)], ...],
    _Lax,
    AfterValidator(_once),
]
FigureCommand = Annotated[str, Field(validate_default=True), AfterValidator(_with_measurement)]
