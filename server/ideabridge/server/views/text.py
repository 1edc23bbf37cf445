"""Write numbers, values and errors in a short, readable form."""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.context.failure import ErrorEntry, read_failure
from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.context.request import tokens_of
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.names import readable_json, visible
from ideabridge.tools.typed import read_as

_LONGEST_VALUE: Final = 160
"""Maximum length, in characters, of a value that is shown on one line."""

_SENT: Final = 1000
"""Maximum number of characters shown of a value that a tool sent even though its call failed."""


def shortened_json(value: JSON, most: int = _LONGEST_VALUE) -> str:
    """Return a value as JSON on one line, truncated to `most` characters. For a large value, the
    text gives the approximate number of characters.
    """
    beginning = Beginning(value, most)
    text = readable_json(beginning.value, compact=True)
    if len(text) <= most:
        return text
    length = len(encode(value)) if beginning.is_cut else len(text)
    return f"{text[:most]}... ({length:,} characters)"


class Beginning:
    """The first part of a value. Its readable JSON begins with the same `most` characters as that
    of the whole value, and is hardly longer than `most`.

    Formatting several megabytes as readable JSON would take seconds, and people see only the
    beginning.

    Attributes:
        value: the first part of the value.
        is_cut: whether the part is smaller than the whole value, whose JSON then has more than
            `most` characters.
    """

    def __init__(self, value: JSON, most: int) -> None:
        self.is_cut = False
        self._left = most + 1
        self.value = self._of(value)

    def _of(self, value: JSON) -> JSON:
        if isinstance(value, str):
            return self._of_text(value)
        # Count one for each member, because it takes at least one character.
        self._left -= 1
        if isinstance(value, dict):
            members: dict[str, JSON] = {}
            for key, member in value.items():
                if self._is_full():
                    break
                name = self._of_text(key)
                members[name] = self._of(member)

            return members

        if isinstance(value, list):
            items: list[JSON] = []
            for item in value:
                if self._is_full():
                    break
                items.append(self._of(item))
            return items

        return value

    def _of_text(self, text: str) -> str:
        beginning = text[: max(0, self._left) + 1]
        self._left -= len(beginning)
        if len(beginning) < len(text):
            self.is_cut = True
        return beginning

    def _is_full(self) -> bool:
        if self._left < 0:
            self.is_cut = True
        return self._left < 0


def source_text(program: str) -> str:
    """Return the text of a program in readable form, keeping its lines and indentation. Hidden
    characters are escaped.
    """
    lines: list[str] = []
    for line in program.split("\n"):
        code = line.lstrip(" \t")
        lines.append(line[: len(line) - len(code)] + visible(code, "\t"))
    return "\n".join(lines)


def message_of(error: JSON) -> str:
    """Return the message of an error entry on one line."""
    return read_failure(error).message.replace("\n", " ")


def skipped_line(skipped: JSONObject) -> str:
    """Return a line about a skipped call of a run: the place, the tool, and the reason."""
    instance = f" of {skipped['instance']}" if "instance" in skipped else ""
    return f"calls[{skipped.get('place')}] {skipped.get('tool')}{instance}: {skipped.get('why')}"


def parameters_text(schema: JSONObject) -> str:
    """Return the names of a tool's parameters, with the optional ones in brackets."""
    takes = read_as(SchemaKeywords, schema)
    return ", ".join(name if name in takes.required else f"[{name}]" for name in takes.properties)


def error_line(entry: JSONObject) -> str:
    """Return a line about an error of a run, beginning with the name of the call."""
    read = read_as(ErrorEntry, entry)
    name = ""
    if read.call is not None:
        name = f"{read.call.get('_id') or read.call.get('_tool')}: "

    sent = read_failure(read.error).sent
    more = ""
    if sent is not None:
        more = (
            "; the server sent the following, which nobody checked: "
            f"{shortened_json(without_payloads(sent), _SENT)}"
        )

    return f"{name}{message_of(read.error)}{more}"


def cost_of_request(size: int) -> str:
    """Return a note about the cost of a Request of `size` bytes, with an estimate in tokens."""
    return f"{size:,} bytes, about {tokens_of(size):,} tokens"
