"""Find tools by words, and compose the lines that describe tools to models.

SQLite's FTS5 ranks tools by BM25 in an in-memory table, and stems English words. A search covers
the words in a tool's name, its server's name, its parameters and their descriptions, and its own
description. It also covers synonyms of the verbs in the name. `benchmarks/lifting/finding.py`
measures the ranking with public catalogues.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final, NamedTuple

from ideabridge.bridge.offer.tool_names import look_alikes
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.stubs import OBSERVED
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.tools.encoding import JSONObject, encode_text
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.names import visible
from ideabridge.tools.tool import Tool, ToolKey
from ideabridge.tools.typed import read_as

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_WORDS: Final = 64
_MOST_CHARACTERS: Final = 10_000
"""Maximum number of characters searched for. Splitting 4 MB into words would take a second."""

_PREFIX: Final = 4
"""Minimum length, in characters, of a word that also finds longer words: `repo` finds
`repository`."""

_WEAK: Final = 0.3
"""A match is weak if its score is less than this fraction of the best score."""

_TABLE: Final = """
DROP TABLE IF EXISTS words;
CREATE VIRTUAL TABLE words USING fts5(
    name, module, parameters, description, synonyms, details, tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('rank', 'bm25(3.0, 1.0, 1.0, 1.0, 0.5, 0.3)');
"""
"""The numbers are the column weights. `details` contains the descriptions of the parameters."""

_ADD: Final = """
INSERT INTO words (rowid, name, module, parameters, description, synonyms, details) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_MATCH: Final = "SELECT rowid, -rank FROM words WHERE words MATCH ? LIMIT ?"

_ALIKE: Final = """
get fetch read retrieve obtain load
show display view print look
list enumerate all
find search query lookup locate look
create add make new insert register
delete remove drop erase clear cancel
update edit change set modify adjust alter
send post publish message email mail
calculate compute determine count
buy purchase order book reserve
start run execute launch begin
stop end halt close
convert translate transform
check verify validate test
download save store
price cost
movie film
picture image photo
folder directory
log history
"""
"""The words on one line are synonyms if they occur in a tool's name."""

_WORDLESS: Final = """
a about all also am an and any are as at be been but by can could did do does for from give had has have help here how
i if in into is it its just like me more most my need no not of on or other out over please should so some than that the
then there these this those to under up use using want was were what when where which who why will with would you your
"""
_IGNORED: Final = frozenset(_WORDLESS.split())
"""Words that carry no information about a task."""


def _synonyms() -> dict[str, set[str]]:
    synonyms: dict[str, set[str]] = {}
    for line in _ALIKE.split("\n"):
        words = set(line.split())
        for word in words:
            # A word can be on several lines.
            of_word = synonyms.setdefault(word, set())
            of_word.update(words - {word})

    return synonyms


_SYNONYMS: Final = _synonyms()


class Matches(NamedTuple):
    """The result of a search.

    Attributes:
        tools: the best matches, best first.
        total: the number of all tools that match.
    """

    tools: list[Tool]
    total: int


class ToolSearch:
    """An index of a list of tools, which is rebuilt when it is used with a different list.

    Attributes:
        look_alikes: the result of the function `look_alikes` for the list.
        names: the names of the tools in programs.
    """

    def __init__(self) -> None:
        self._tools: list[Tool] | None = None
        self._table = sqlite3.connect(":memory:", check_same_thread=False)
        self._exact: dict[str, list[int]] = {}
        self.look_alikes: dict[ToolKey, str] = {}
        self.names = ProgramNames(())

    def find(
        self,
        tools: list[Tool],
        words: str,
        limit: int,
        module: str | None = None,
        *,
        weak: bool = True,
    ) -> Matches:
        """Return the best matches. A tool whose name is exactly `words` comes first.

        Args:
            tools: the tools to search.
            words: any string. The empty string matches every tool, in the order of the list.
            limit: the maximum number of matches.
            module: the server whose tools to search, or None for all tools.
            weak: whether to include matches that are much worse than the best.
        """
        self._index(tools)
        words = words[:_MOST_CHARACTERS]
        word_list = _words(words)
        if not word_list:
            in_module = [tool for tool in tools if _is_in(tool, module)]
            return Matches(in_module[:limit], len(in_module))

        scores = self._scores(tools, word_list, module)
        best = max(scores.values(), default=0.0)
        for number in self._exact.get(words.strip().lower(), ()):
            if _is_in(tools[number], module):
                scores[number] = best + 1

        ranked = sorted(scores, key=lambda number: (-scores[number], number))
        if not weak:
            ranked = [number for number in ranked if scores[number] >= best * _WEAK]

        return Matches([tools[number] for number in ranked[:limit]], len(ranked))

    def _scores(self, tools: list[Tool], words: list[str], module: str | None) -> dict[int, float]:
        """Return the score of each tool that contains one of the words, keyed by its place."""
        any_word = " OR ".join(map(_word_query, words))
        scores: dict[int, float] = {}
        for number, score in self._matches(any_word):
            tool = tools[number]
            if not _is_in(tool, module):
                continue
            if tool.origin in self.look_alikes:
                # A look-alike comes after the tool that it resembles.
                score /= 2
            scores[number] = score

        return scores

    def fits(self, tools: list[Tool], words: str) -> bool:
        """Return whether any tool matches every word. Return False if there are no words."""
        self._index(tools)
        word_list = _words(words[:_MOST_CHARACTERS])
        if not word_list:
            return False

        every_word = " AND ".join(map(_word_query, word_list))
        matches = self._matches(every_word, most=1)
        return bool(matches)

    def _matches(self, query: str, most: int = -1) -> list[tuple[int, float]]:
        """Return the (place, score) of each tool that matches an FTS5 query. Higher scores are
        better.
        """
        return self._table.execute(_MATCH, (query, most)).fetchall()

    def _index(self, tools: list[Tool]) -> None:
        """Index a list of tools, unless it is the list that is indexed now."""
        if tools is self._tools:
            return

        self._tools = tools
        self.look_alikes = look_alikes(tools)
        self.names = ProgramNames(tools)
        self._exact = {}
        self._table.executescript(_TABLE)
        rows = ((number, *_texts(tool)) for number, tool in enumerate(tools))
        with self._table:
            self._table.executemany(_ADD, rows)

        for number, tool in enumerate(tools):
            for name in {tool.name.lower(), tool.label.lower()}:
                self._exact.setdefault(name, []).append(number)


def _is_in(tool: Tool, module: str | None) -> bool:
    """Return whether a tool belongs to the given server, or True if `module` is None."""
    return module is None or tool.module == module


def _texts(tool: Tool) -> tuple[str, ...]:
    """Return the text about a tool for each column of the table."""
    name = _split(tool.name)
    synonyms: set[str] = set()
    for word in name:
        synonyms.update(_SYNONYMS.get(word, ()))

    parameters: list[str] = []
    details: list[str] = []
    properties = read_as(SchemaKeywords, tool.parameters).properties
    for key, schema in islice(properties.items(), 100):
        parameters += _split(key)
        detail = read_as(SchemaKeywords, schema).description
        if detail is not None:
            details.append(detail[:300])

    module = _split(tool.module or "")
    description = _split(tool.description[:4000])
    detail_words = _split(" ".join(details))
    columns = (name, module, parameters, description, sorted(synonyms), detail_words)
    return tuple(" ".join(words) for words in columns)


def _split(text: str) -> list[str]:
    """Split a string into lower-case words. `readFile` becomes two words."""
    divided = _CAMEL.sub(" ", text)
    return _WORD.findall(divided.lower())


def _words(text: str) -> list[str]:
    """Return the words in a question that carry information about a task, or all words if none
    do.
    """
    words = list(dict.fromkeys(_split(text)))
    informative = [word for word in words if word not in _IGNORED]
    if informative:
        words = informative
    return words[:_MOST_WORDS]


def _word_query(word: str) -> str:
    """Return the query for a word.

    Unless the word is short, the query also matches longer words that begin with it.
    """
    if len(word) < _PREFIX:
        return f'"{word}"'
    return f'("{word}" OR "{word}"*)'


# -- lines -----------------------------------------------------------------------------------------

_NOTES: Final = 12
_NOTED: Final = 600


def tool_line(tool: Tool, names: ProgramNames, observed: JSONObject | None = None) -> str:
    """Return the signature of a tool, followed by the names for plans if these differ from those in
    the signature.

    Args:
        tool: the tool.
        names: the names of the tools in programs.
        observed: the shape of the tool's earlier results.
    """
    place = names.place(tool)
    # A tool that programs cannot call has no signature, so show its label instead.
    line = tool.label if place is None else names.signature(tool, observed)
    notes = _notes(tool, place, names)
    if not notes:
        return line
    if line.endswith(OBSERVED):
        # The line already ends with a comment, so add the names to it.
        return f"{line}, {notes}"
    return f"{line} # {notes}"


def _notes(tool: Tool, place: tuple[str, str] | None, names: ProgramNames) -> str:
    """Return the names of a tool and its server for plans, if they differ from those in the
    signature.
    """
    # A tool that programs cannot call has no signature there, so give the names for plans.
    module, function = place or (None, None)
    changed: list[str] = []
    if function != tool.name:
        changed.append(f"_tool: {encode_text(tool.name)}")
    if tool.module is not None and module != tool.module:
        changed.append(f"_module: {encode_text(tool.module)}")

    if place is not None:
        for python_name, real_name in names.parameters(tool).items():
            if python_name != real_name:
                changed.append(f"{python_name}: {encode_text(real_name)}")

    if len(changed) > _NOTES:
        changed[_NOTES:] = ["..."]

    return visible(", ".join(changed)[:_NOTED])
