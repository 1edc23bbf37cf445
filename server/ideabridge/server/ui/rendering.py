"""Fill in the page's templates, in this process or in a worker."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ideabridge.server.ui import showing, tool_titles
from ideabridge.server.ui.coloured import in_colours
from ideabridge.server.ui.tool_effects import effect_of
from ideabridge.server.ui.tool_texts import about_tool
from ideabridge.tools.names import printable

FILES: Final = Path(__file__).parent


def render(template: str, **values: Any) -> str:
    """Fill a template with values."""
    return load(template).render(**values)


def load(template: str) -> Template:
    """Return a template. The first use in a process compiles the template, which takes up to 0.1
    s.
    """
    return _environment().get_template(template)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FILES / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_readable,
        auto_reload=False,
    )
    files = sorted((FILES / "static").iterdir())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    shared: dict[str, Any] = {"files": digest}
    environment.globals.update(shared)
    environment.filters.update(showing.FILTERS)
    environment.filters.update(tool_titles.FILTERS)
    environment.filters["in_colours"] = in_colours
    environment.filters["about_tool"] = about_tool
    environment.filters["effect"] = effect_of
    return environment


def _readable(value: object) -> object:
    """Make hidden characters visible in the output of templates.

    Rendered parts of pages are left unchanged, because their templates have already done so.
    """
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value
