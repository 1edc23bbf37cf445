"""What a docstring says of a function and its parameters (Google style)."""

from __future__ import annotations

import inspect
import re
from typing import Final

_SECTION: Final = re.compile(
    r"(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|See Also|Attributes|Todo"
    r"|References)\s*:\s*"
)
_PARAMETERS: Final = ("Args", "Arguments", "Parameters", "Params")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^:]*\))?\s*:\s*(.*)")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """(what stands before the first section, the text of each parameter in `Args:`), lines of a paragraph joined."""
    lines = inspect.cleandoc(text).splitlines() if text else []
    body: list[str] = []
    parameters: dict[str, str] = {}
    section: str | None = None
    indent: int | None = None
    current: str | None = None
    for line in lines:
        heading = _SECTION.fullmatch(line)
        if heading is not None:
            section, indent, current = heading[1], None, None
        elif section is None:
            body.append(line)
        elif section in _PARAMETERS and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = depth if indent is None else indent
            entry = _ENTRY.fullmatch(line.strip()) if depth <= indent else None
            if entry is not None:
                current = str(entry[1])
                parameters[current] = entry[2].strip()
            elif current is not None and depth > indent:
                parameters[current] = f"{parameters[current]} {line.strip()}".strip()
    return _paragraphs(body), {name: told for name, told in parameters.items() if told}


def _paragraphs(lines: list[str]) -> str:
    """The text with the line breaks of its source taken out; indented lines and lists keep theirs."""
    result: list[str] = []
    for line in lines:
        own_line = not line.strip() or line[:1] in " -*>" or (bool(result) and (not result[-1] or result[-1][0] in " "))
        if result and result[-1] and not own_line:
            result[-1] += f" {line.strip()}"
        else:
            result.append(line.rstrip())
    return "\n".join(result).strip()
