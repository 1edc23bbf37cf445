"""Describe the faults in text that a person wrote, with their lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.errors import PlanError
from ideabridge.server.ui.showing import as_json
from ideabridge.server.views.text import message_of
from ideabridge.tools.encoding import JSONObject

_LINE: Final = re.compile(r"\bline (\d{1,6})\b")
_CALL: Final = re.compile(r'"_tool"\s*:')
_LONGEST_SOURCE: Final = 300


@dataclass(frozen=True, slots=True)
class TextFault:
    """A fault in a text.

    Attributes:
        where: the call, the output, or "" for the whole text.
        message: a description of the fault.
        line: the line number, from 1, or None if unknown.
        source: the text of that line, or "".
    """

    where: str
    message: str
    line: int | None
    source: str

    @classmethod
    def of(cls, message: str, text: str, where: str = "", line: int | None = None) -> TextFault:
        """Return a fault in a text. Without `line`, the line comes from the message if it names
        one.
        """
        named = _LINE.search(message)
        if line is None and named is not None:
            line = int(named[1])

        lines = text.split("\n")
        if line is None or not 1 <= line <= len(lines):
            return cls(where, message, None, "")
        return cls(where, message, line, lines[line - 1][:_LONGEST_SOURCE])


def faults_of_plan(error: PlanError, text: str) -> list[TextFault]:
    """Return each fault in a plan or a program."""
    calls = [text.count("\n", 0, match.start()) + 1 for match in _CALL.finditer(text)]
    faults: list[TextFault] = []
    for entry in error.errors:
        members: JSONObject = dict(entry)
        call = members.get("call")
        place = members.get("place")
        if call is None:
            name = "output"
        elif isinstance(call, dict):
            name = str(call.get("_tool"))
        else:
            name = as_json(call)

        line: int | None = None
        if place is not None:
            name = f"{place} {name}"
        if isinstance(place, int) and place < len(calls):
            line = calls[place]
        faults.append(TextFault.of(message_of(members.get("error")), text, name, line))

    return faults
