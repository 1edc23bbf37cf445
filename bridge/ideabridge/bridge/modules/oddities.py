"""Oddities: what a module sends that is not what the protocol says, and what was done with it.

A module that is a little odd still works: the reader of its messages skips or repairs the odd
member and notes that here. People see the notes in `ideabridge modules list`, in `doctor` and on the
page; models never do.
"""

from __future__ import annotations

from typing import Final

MAX_ODDITIES: Final = 40
"""Different notes that are kept for one module. Those beyond are counted together."""

_CHARACTERS: Final = 300


class Oddities:
    """The notes on one module: each text once, with the number of times it was noted."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._others = 0

    def note(self, text: str) -> None:
        """Note an oddity, as "left out `icons` of tool 'search': it is not a list"."""
        text = text[:_CHARACTERS]
        if text in self._counts:
            self._counts[text] += 1
        elif len(self._counts) < MAX_ODDITIES:
            self._counts[text] = 1
        else:
            self._others += 1

    @property
    def lines(self) -> list[str]:
        """The notes for people, in the order in which they first occurred; a repeated one has its count."""
        lines: list[str] = []
        for text, count in self._counts.items():
            lines.append(text if count == 1 else f"{text} ({count:,} times)")
        if self._others:
            lines.append(f"and {self._others:,} other oddities")
        return lines
