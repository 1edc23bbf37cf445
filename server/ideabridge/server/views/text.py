"""Text: short forms of numbers, values and errors, for people."""

from __future__ import annotations

from typing import Final

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import readable_json, visible

_LONGEST_VALUE: Final = 160
"""The most characters of a value that is shown in one line."""


def counted(count: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shortened(value: JSON) -> str:
    """A value as JSON in one line, cut after 160 characters."""
    text = readable_json(value, compact=True)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text):,} characters)"


def source_text(program: str) -> str:
    """The text of a program for people: its lines and indentation as they are, everything that hides as escapes."""
    lines: list[str] = []
    for line in program.split("\n"):
        code = line.lstrip(" \t")
        lines.append(line[: len(line) - len(code)] + visible(code, "\t"))
    return "\n".join(lines)


def message_of(error: JSON) -> str:
    """The message of an error entry, in one line."""
    return str(error.get("message", error) if isinstance(error, dict) else error).replace("\n", " ")


def error_line(entry: JSONObject) -> str:
    """An error of a run in one line, after the name of its call."""
    call = entry.get("call")
    name = f"{call.get('_id') or call.get('_tool')}: " if isinstance(call, dict) else ""
    return name + message_of(entry.get("error"))
