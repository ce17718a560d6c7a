"""The page that all reports are written on: it loads nothing, so it works offline and on paper."""

from __future__ import annotations

from importlib.resources import files

import jinja2

__all__ = ["render_page"]


def render_page(template: str, **values: object) -> str:
    """Fill `template`, the text of a Jinja template that extends ``page.html``.

    All text from outside is escaped; only what is `Markup`, our own drawings, is put in as it is.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.from_string(template).render(**values)


def _source(name: str) -> str:
    return files("speccompile.compiler.report").joinpath(name).read_text(encoding="utf-8")
