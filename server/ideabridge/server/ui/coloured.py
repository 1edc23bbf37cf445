"""Show programs, SQL and patches with coloured syntax.

A text is coloured only if all its characters are visible, because people approve calls on the basis
of the text that the page shows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias, cast

from markupsafe import Markup, escape

from ideabridge.server.ui.showing import bounded
from ideabridge.tools.encoding import JSON
from ideabridge.tools.names import printable, visible

if TYPE_CHECKING:
    from pygments.lexer import Lexer

LONGEST_COLOURED: Final = 5000
"""Maximum length, in characters, of coloured text. The slowest text of this length takes 0.15 s."""

Language: TypeAlias = Literal["sql", "diff", "python", "json"]

_LOOKED_AT: Final = 2000
"""Number of characters that are read from a text to determine its language."""

_LINES: Final = {"+": "h-gi", "-": "h-gd", "@": "h-gu", "*": "h-gu"}
"""The CSS class for a line in a patch, by the line's first character."""

_SQL: Final = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*(?:select\b.+\bfrom\b|insert\s+into\b|update\s+\S+\s+set\b|delete\s+from\b|"
    r"(?:create|alter|drop|truncate)\s+(?:or\s+replace\s+)?(?:temp\w*\s+|unique\s+|materialized\s+)*"
    r"(?:table|view|index|schema|database|function|trigger|type|role|user)\b|"
    r"with\s+(?:recursive\s+)?\S+\s+as\s*\(|merge\s+into\b|explain\s+\S+)",
    re.IGNORECASE | re.DOTALL,
)
_PATCH: Final = re.compile(
    r"(?:\A|\n)(?:diff --git \S|\*\*\* Begin Patch\n|--- [^\n]+\n\+\+\+ [^\n]+\n|@@ -\d)"
)


def language_of(value: JSON) -> Language | None:
    """Return whether a value is SQL or a patch, or None if it is neither."""
    if not isinstance(value, str):
        return None
    beginning = value[:_LOOKED_AT]
    if _PATCH.search(beginning):
        return "diff"
    if _SQL.match(beginning):
        return "sql"
    return None


def coloured(text: str, language: Language) -> Markup | None:
    """Return `text` as HTML, with a `span` around each coloured word, or None if the text is too
    long or contains invisible characters.
    """
    if len(text) > LONGEST_COLOURED or visible(text, "\n\t") != text or printable(text) != text:
        return None

    if language == "diff":
        return _patch(text)

    # Import these only when they are needed, because importing Pygments takes a while and few pages
    # use it.
    from pygments import lexers
    from pygments.formatters.html import HtmlFormatter

    # The cast is needed because Pygments' annotations leave the options untyped.
    find = cast("Callable[..., Lexer]", lexers.get_lexer_by_name)
    lexer = find(language, stripnl=False, ensurenl=False)
    tokens = list(lexer.get_tokens(text))
    if "".join(part for _, part in tokens) != text:
        return None

    page = io.StringIO()
    formatter: HtmlFormatter[str] = HtmlFormatter(nowrap=True, classprefix="h-")
    write = cast("Callable[[Iterable[Any], TextIO], None]", formatter.format)
    write(tokens, page)
    html = page.getvalue()
    if not text.endswith("\n"):
        html = html.removesuffix("\n")
    return Markup(html)  # noqa: S704 - the formatter escapes the text


def in_colours(value: JSON) -> str:
    """Return a value as `bounded` text, coloured as JSON if possible. Strings stay plain text."""
    text = bounded(value)
    if isinstance(value, str):
        return text
    return coloured(text, "json") or text


def _patch(text: str) -> Markup:
    """Return a patch as HTML. The lexer from Pygments is not used because it takes half a minute
    for 20 kB of dashes.
    """
    lines: list[Markup] = []
    for line in text.split("\n"):
        kind = _LINES.get(line[:1])
        shown = escape(line)
        if kind is not None:
            shown = Markup('<span class="{}">{}</span>').format(kind, line)
        lines.append(shown)
    return Markup("\n").join(lines)
