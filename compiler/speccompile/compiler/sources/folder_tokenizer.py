"""The tokenizer of a Hugging Face model folder, with its chat template and special token ids."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from speccompile.compiler.sources.checkpoint import SourceError, TokenizerFiles
from speccompile.compiler.sources.metadata import Metadata, read_json
from speccompile.compiler.sources.spiece import read_spiece

__all__ = ["folder_tokenizer"]

_EXTRA_IDS = 100  # of T5, where its settings say nothing


def folder_tokenizer(folder: Path, config: Metadata, *, ends_texts: bool = False) -> TokenizerFiles:
    """Read tokenizer.json and the optional files beside it; `config` is the folder's config.json.

    Where it `ends_texts`, the tokenizer puts the end token behind each, as that of T5 does.

    Generation ends, as in transformers, at the tokens of generation_config.json, else of
    config.json, else at the tokenizer's own end token. Raises SourceError for an absent or
    malformed file.
    """
    settings = _read_optional(folder / "tokenizer_config.json")
    tokenizer, text = _tokenizer(folder, settings)
    generation = _read_optional(folder / "generation_config.json")
    bos_token, eos_token = _token(settings, "bos_token"), _token(settings, "eos_token")
    stated_bos = _ids(generation, "bos_token_id") or _ids(config, "bos_token_id")
    stated_eos = _ids(generation, "eos_token_id") or _ids(config, "eos_token_id")
    end_ids = stated_eos or _looked_up(tokenizer, eos_token)
    if ends_texts and end_ids and tokenizer.encode("").ids != list(end_ids[:1]):
        end = tokenizer.id_to_token(end_ids[0])
        tokenizer.post_processor = TemplateProcessing(
            single=["$A", end], pair=["$A", end, "$B", end], special_tokens=[(end, end_ids[0])]
        )
        text = tokenizer.to_str()
    bos_ids = stated_bos or _looked_up(tokenizer, bos_token)
    return TokenizerFiles(
        tokenizer_json=text,
        chat_template=_chat_template(folder, settings),
        bos_token_id=bos_ids[0] if bos_ids else None,
        eos_token_ids=end_ids,
        bos_token=bos_token,
        eos_token=eos_token,
    )


def _tokenizer(folder: Path, settings: Metadata) -> tuple[Tokenizer, str]:
    """The tokenizer of tokenizer.json, else of T5's spiece.model, and its JSON."""
    path, pieces = folder / "tokenizer.json", folder / "spiece.model"
    if not path.is_file() and pieces.is_file():
        extra_ids = settings.optional("extra_ids", int)
        tokenizer = read_spiece(pieces, extra_ids=_EXTRA_IDS if extra_ids is None else extra_ids)
        return tokenizer, tokenizer.to_str()
    if not path.is_file():
        raise SourceError(
            f"{path}: no such file; save the model's fast tokenizer beside its weights"
        )
    try:
        text = path.read_text(encoding="utf-8")
        return Tokenizer.from_str(text), text
    except Exception as error:  # tokenizers raises nothing narrower
        raise SourceError(f"{path}: not readable as a tokenizer ({error})") from error


def _read_optional(path: Path) -> Metadata:
    return read_json(path) if path.is_file() else Metadata(str(path), {})


def _ids(settings: Metadata, key: str) -> tuple[int, ...]:
    """One token id or a list of them."""
    if isinstance(settings.values.get(key), list):
        return tuple(settings.sequence(key, int))
    token_id = settings.optional(key, int)
    return () if token_id is None else (token_id,)


def _token(settings: Metadata, key: str) -> str | None:
    """A token's text, which older files wrap in the fields of an AddedToken."""
    value = settings.values.get(key)
    if isinstance(value, dict):
        return Metadata(f"{settings.where}: {key}", value).required("content", str)
    return settings.optional(key, str)


def _looked_up(tokenizer: Tokenizer, token: str | None) -> tuple[int, ...]:
    token_id = None if token is None else tokenizer.token_to_id(token)
    return () if token_id is None else (token_id,)


def _chat_template(folder: Path, settings: Metadata) -> str | None:
    """The template's own file, where there is one, or the (default) one in the settings."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    if not isinstance(settings.values.get("chat_template"), list):
        return settings.optional("chat_template", str)
    for entry in settings.sequence("chat_template", dict):
        named = Metadata(f"{settings.where}: chat_template", entry)
        if named.required("name", str) == "default":
            return named.required("template", str)
    return None
