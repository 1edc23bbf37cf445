"""Notes on a server's messages that violate the protocol, and on how they were repaired.

A server that violates the protocol slightly still works: the reader of its messages skips or
repairs the malformed member, and records a note. People see the notes in `ideabridge servers list`,
in `doctor` and on the page. Models never see them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.names import printable_line

MAX_ODDITIES: Final = 40
"""The maximum number of different notes that are stored for one server. Further notes are only
counted.
"""

_CHARACTERS: Final = 300
_STORED: Final = 2000
"""The number of characters of an example that are stored. Fewer characters are shown, so that a
secret is recognised even if the shown text ends within the secret.
"""
_EXAMPLE_CHARACTERS: Final = 120


@dataclass(slots=True)
class _Oddity:
    """A note, how often it was made, and the server's text the first time."""

    count: int
    example: str


class Oddities:
    """The notes on one server. Equal notes are stored once, with a count.

    Args:
        secrets: the values to mask in the notes.
        quotes: whether the notes may quote what the server wrote; see `Modules.quotes`.
    """

    def __init__(
        self, secrets: Secrets | None = None, quotes: Callable[[], bool] = lambda: True
    ) -> None:
        self._secrets = secrets
        self._quotes = quotes
        self._oddities: dict[str, _Oddity] = {}
        self._others = 0

    def note(self, text: str, example: str = "") -> None:
        """Record an oddity.

        Args:
            text: the deviation and the repair, such as "tools[2].icons: expected a list; left out".
            example: what the server wrote. It is shown only to people who may see the server's
                output.
        """
        text = text[:_STORED]
        example = example[:_STORED]
        oddity = self._oddities.get(text)
        if oddity is not None:
            oddity.count += 1
        elif len(self._oddities) < MAX_ODDITIES:
            self._oddities[text] = _Oddity(1, example)
        else:
            self._others += 1

    def forget(self, beginning: str) -> None:
        """Forget the notes that begin with `beginning`, because the server will send these messages
        again.
        """
        self._oddities = {
            text: oddity
            for text, oddity in self._oddities.items()
            if not text.startswith(beginning)
        }

    @property
    def lines(self) -> list[str]:
        """The notes as people see them, in order of first occurrence. Repeated notes include their
        count.
        """
        quotes = self._quotes()
        lines: list[str] = []
        for text, oddity in list(self._oddities.items()):
            line = self._shown(text)
            if oddity.example and quotes:
                line += f", such as '{self._shown(oddity.example, _EXAMPLE_CHARACTERS)}'"

            if oddity.count > 1:
                line += f" ({oddity.count:,} times)"

            lines.append(line)

        if self._others:
            lines.append(f"and {self._others:,} other oddities")

        return lines

    def _shown(self, text: str, limit: int = _CHARACTERS) -> str:
        """Mask the secrets in a string, shorten it, and escape control characters."""
        if self._secrets is not None:
            text = self._secrets.mask_start(text, limit)
        return printable_line(text[:limit])
