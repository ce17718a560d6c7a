"""A mistake against the schema in a line: the key, what is wrong with it, and the way out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import get_args

from pydantic_core import ErrorDetails

from speccompile.compiler.recipes.schema import Recipe, Table

__all__ = ["did_you_mean", "explain"]


def explain(error: ErrorDetails) -> str:
    """One error of pydantic's, in the words of a recipe."""
    key = _dotted(error["loc"])
    value = json.dumps(error["input"], ensure_ascii=False, default=str)
    match error["type"]:
        case "missing" if "figures" in error["loc"]:
            return f"{key} is missing; a figure needs name, value, unit and kind"
        case "missing" if "experts" in error["loc"]:
            return f"{key} is missing; an expert needs name and source"
        case "missing":
            return f"{key} is missing; a recipe needs at least name and target.source"
        case "extra_forbidden":
            return f"{key} is unknown; {_known_keys(error['loc'])}"
        case "literal_error":
            expected: str = error.get("ctx", {})["expected"]
            choices = re.findall(r"'([^']+)'", expected)
            listing = "it should be " + expected.replace("'", '"')
            return f"{key} is {value}; {did_you_mean(str(error['input']), choices) or listing}"
        case "value_error":
            return f"{key} {error.get('ctx', {})['error']}"
        case kind if kind in _TYPES:
            return f"{key} is {value}; it should be {_TYPES[kind]}"
        case _:
            return f"{key} is {value}; {re.sub(r'^(Input|String|Tuple) ', 'it ', error['msg'])}"


_TYPES = {
    "model_type": "a table",
    "dict_type": "a table",
    "tuple_type": "a list",
    "path_type": "a path in quotes",
}


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """The question after the choice that is nearest to `word`; empty if none is near."""
    return "".join(f"did you mean {near}?" for near in get_close_matches(word.lower(), choices, 1))


def _dotted(location: Sequence[int | str]) -> str:
    """A location as TOML writes it: patterns of layers have dots of their own."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part != "[key]":  # pydantic's word for the key itself being wrong, not its value
            text += f".{part}" if re.fullmatch(r"[\w-]+", part) else f'."{part}"'
    return text.removeprefix(".")


def _known_keys(location: Sequence[int | str]) -> str:
    """What to write instead of an unknown key: one nearby, one of another table, or any."""
    *path, word = (part for part in location if isinstance(part, str))
    table: type[Table] = Recipe
    for name in path:
        table = _tables(table)[name]
    keys = _keys(table)
    if near := did_you_mean(word, keys):
        return near
    if elsewhere := [
        f"{name}.{word}" for name, sub in _tables(Recipe).items() if word in _keys(sub)
    ]:
        return f"did you mean {' or '.join(elsewhere)}?"
    return f"{'.'.join(path) or 'a recipe'} takes {', '.join(keys)}"


def _keys(table: type[Table]) -> list[str]:
    return [field.alias or name for name, field in table.model_fields.items()]


def _tables(table: type[Table]) -> dict[str, type[Table]]:
    """The tables in a table, by their keys; those of a list of tables, too."""
    found: dict[str, type[Table]] = {}
    for name, field in table.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Table):
                found[field.alias or name] = kind
    return found
