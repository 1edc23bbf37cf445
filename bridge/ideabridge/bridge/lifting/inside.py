"""Find a literal within longer strings that existed when it was written, such as an address within
a page.

Theory of operation. `Texts` holds the strings in the input, the results and the earlier literals
that an author had seen. A part is found only if it begins and ends at word boundaries, so `cat` is
not found in `concatenate`. Therefore, each word of the part is also a word of the string. `Texts`
lists the strings that contain each word, and searches only those that contain the rarest word of
the part. The lists are built on the first search.

Limits per run: the words in the first `LISTED_CHARACTERS` characters are listed, and
`_SEARCHED_CHARACTERS` characters are searched. Parts beyond these limits are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

LISTED_CHARACTERS: Final = 4_000_000
"""The maximum number of characters in one run's strings that are split into words for the lists."""

_SEARCHED_CHARACTERS: Final = 20_000_000
"""The maximum number of characters that are searched in one run."""

_EACH: Final = 50
"""The number of characters that each searched string uses up in addition to its length."""

_SHORTEST: Final = 3
"""The minimum length, in characters, of a part that can identify the string it comes from."""

_MOST_TRIES: Final = 50
"""The maximum number of places in one string that are compared with a part."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Inside:
    """A part of a literal, and where it appeared earlier.

    Attributes:
        part: the part.
        root: the reference that reads the document containing the part.
    """

    part: str
    root: str


@dataclass(frozen=True, slots=True)
class _Text:
    """A string from the document that a reference reads."""

    root: str
    text: str


class Texts:
    """The strings that existed when a literal was written."""

    def __init__(self) -> None:
        self._texts: list[_Text] = []
        self._of_word: dict[str, list[int]] = {}
        self._unlisted = 0
        self._characters = 0
        self._searched = 0

    def add(self, root: str, text: str) -> None:
        """Add a string from the document that a reference reads."""
        if len(text) >= _SHORTEST and self._characters + len(text) <= LISTED_CHARACTERS:
            self._characters += len(text)
            self._texts.append(_Text(root, text))

    def roots_with(self, part: str) -> Iterator[str]:
        """Yield the references of the documents that contain a part, in the order they were
        added.
        """
        self._list_words()
        words = _WORD.findall(part)
        if not words:
            return
        for number in min((self._of_word.get(word, []) for word in words), key=len):
            listed_text = self._texts[number]
            self._searched += len(listed_text.text) + _EACH
            if self._searched > _SEARCHED_CHARACTERS:
                return
            if stands_in(part, listed_text.text):
                yield listed_text.root

    def _list_words(self) -> None:
        """List the words of the strings that were added since the last call."""
        for number in range(self._unlisted, len(self._texts)):
            for word in set(_WORD.findall(self._texts[number].text)):
                self._of_word.setdefault(word, []).append(number)
        self._unlisted = len(self._texts)


def stands_in(part: str, text: str) -> bool:
    """Return whether `text` contains `part` between word boundaries."""
    start = text.find(part)
    for _ in range(_MOST_TRIES):
        if start < 0:
            return False
        if not _is_within_word(text, start) and not _is_within_word(text, start + len(part)):
            return True
        start = text.find(part, start + 1)

    return False


def _is_within_word(text: str, at: int) -> bool:
    if not 0 < at < len(text):
        return False
    return _is_word_character(text[at - 1]) and _is_word_character(text[at])


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"


def core_of(text: str) -> str:
    """Strip the marks before the first word and after the last one: `letter.txt` for
    `/letter.txt`.
    """
    words = list(_WORD.finditer(text))
    return text[words[0].start() : words[-1].end()] if words else ""
