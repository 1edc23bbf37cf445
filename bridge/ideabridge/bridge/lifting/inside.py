"""Inside: where a literal stands within a longer text that existed when it was written, such as an
address in a page.

Theory of operation. `Texts` has the texts of the input, the results and the earlier literals that
an author had seen. A part stands in a text only from the end of a word to the end of a word, so
that `cat` is not found in `concatenate`. Then each word of the part is a word of the text, too.
`Texts` lists the texts of each word, and searches those of the rarest word of a part. Nothing is
listed before something is looked for.

Bounds: words of `LISTED` characters are listed, and `_SEARCHED` characters are searched, in one
run. What is beyond them is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

LISTED: Final = 4_000_000
"""The most characters of the texts of one run whose words are listed."""

_SEARCHED: Final = 20_000_000
"""The most characters that are searched in one run."""

_EACH: Final = 50
"""What a text adds to the characters that are searched, however short it is."""

_SHORTEST: Final = 3
"""The characters of the shortest part that can identify its text."""

_TRIES: Final = 50
"""The most places of one text at which a part is compared."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Inside:
    """A part of a literal, and where it stood before.

    Attributes:
        part: the part.
        root: the reference that reads the document with a text in which it stands.
    """

    part: str
    root: str


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of the document that a reference reads."""

    root: str
    text: str


class Texts:
    """The texts that existed when a literal was written."""

    def __init__(self) -> None:
        self._texts: list[_Text] = []
        self._of_word: dict[str, list[int]] = {}
        self._unlisted = 0
        self._characters = 0
        self._searched = 0

    def add(self, root: str, text: str) -> None:
        """Add a text of the document that a reference reads."""
        if len(text) >= _SHORTEST and self._characters + len(text) <= LISTED:
            self._characters += len(text)
            self._texts.append(_Text(root, text))

    def roots_with(self, part: str) -> Iterator[str]:
        """Yield the references of the documents in which a part stands, in the order in which
        they were added.
        """
        self._list_words()
        words = _WORD.findall(part)
        if not words:
            return
        for number in min((self._of_word.get(word, []) for word in words), key=len):
            listed_text = self._texts[number]
            self._searched += len(listed_text.text) + _EACH
            if self._searched > _SEARCHED:
                return
            if stands_in(part, listed_text.text):
                yield listed_text.root

    def _list_words(self) -> None:
        """List the words of the texts that were added since the last time."""
        for number in range(self._unlisted, len(self._texts)):
            for word in set(_WORD.findall(self._texts[number].text)):
                self._of_word.setdefault(word, []).append(number)
        self._unlisted = len(self._texts)


def stands_in(part: str, text: str) -> bool:
    """Return whether a part stands in a text from the end of a word to the end of a word."""
    start = text.find(part)
    for _ in range(_TRIES):
        if start < 0:
            return False
        if not _is_within_word(text, start) and not _is_within_word(text, start + len(part)):
            return True
        start = text.find(part, start + 1)

    return False


def _is_within_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and all(
        char.isalnum() or char == "_" for char in text[at - 1 : at + 1]
    )


def core_of(text: str) -> str:
    """Return a text without what is not a word at its ends: `letter.txt` of `/letter.txt`."""
    words = list(_WORD.finditer(text))
    return text[words[0].start() : words[-1].end()] if words else ""
