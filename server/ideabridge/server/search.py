"""Search for tools by words, and the lines that describe tools to models."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.stubs import OBSERVED
from ideabridge.bridge.runs.offer import look_alikes
from ideabridge.tools.encoding import JSONObject, encode_text
from ideabridge.tools.names import visible
from ideabridge.tools.tool import Tool, ToolKey

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_WORDS: Final = 32
_MOST_CHARACTERS: Final = 10_000
"""Characters of the searched words: splitting 4 MB takes a second."""

_WEAK: Final = 0.3
"""A match with less than this share of the best score is weak."""

_WEIGHTS: Final = {"name": 6.0, "module": 3.0, "parameter": 2.0, "description": 1.0}
_SUFFIXES: Final = ("ing", "es", "ed", "s")


class ToolSearch:
    """An index of a list of tools. It is rebuilt when it is used with another list.

    Attributes:
        look_alikes: the function of this name, applied to the list.
        names: what programs call the tools.
    """

    def __init__(self) -> None:
        self._tools: list[Tool] = []
        self._indexed: list[dict[str, float]] = []
        self._frequency: Counter[str] = Counter()
        self.look_alikes: dict[ToolKey, str] = {}
        self.names = ProgramNames(())

    def find(
        self, tools: list[Tool], words: str, limit: int, module: str | None = None, *, weak: bool = True
    ) -> tuple[list[Tool], int]:
        """The best matches, best first, and the number of all matches.

        Args:
            tools: what is searched.
            words: any text; empty text matches every tool, in the order of the list.
            limit: the most matches.
            module: only tools of this module.
            weak: also those that fit much worse than the best.
        """
        if tools is not self._tools:
            self._index(tools)
        words = words[:_MOST_CHARACTERS]
        wanted = list(dict.fromkeys(_words(words)))[:_MOST_WORDS]
        whole = words.strip().lower()
        scored: list[tuple[float, int]] = []
        for number, tool in enumerate(tools):
            if module is not None and tool.module != module:
                continue
            score = self._score(number, wanted) + (100.0 if tool.name.lower() == whole else 0.0)
            if tool.origin in self.look_alikes:
                # After the tool that it looks like.
                score /= 2
            if score or not wanted:
                scored.append((-score, number))
        scored.sort()
        if scored and wanted and not weak:
            least = scored[0][0] * _WEAK
            limit = min(limit, sum(score <= least for score, _ in scored))
        return [tools[number] for _, number in scored[:limit]], len(scored)

    def fits(self, tools: list[Tool], words: str) -> bool:
        """Return whether some tool matches every word; false without words."""
        if tools is not self._tools:
            self._index(tools)
        wanted = set(_words(words[:_MOST_CHARACTERS]))
        return bool(wanted) and any(
            all(word in terms or any(term.startswith(word) for term in terms) for word in wanted)
            for terms in self._indexed
        )

    def _score(self, number: int, wanted: list[str]) -> float:
        terms = self._indexed[number]
        score = 0.0
        hit = 0
        for word in wanted:
            weight = terms.get(word, 0.0)
            if not weight and len(word) > 2:
                # Part of a word: `repo` finds `repository`.
                weight = max((0.5 * value for term, value in terms.items() if term.startswith(word)), default=0.0)
            if weight:
                hit += 1
                score += weight * math.log(1 + len(self._indexed) / (1 + self._frequency[word]))
        # A tool that fits every word beats one that fits a single word well.
        return score * (hit / len(wanted)) if wanted else 0.0

    def _index(self, tools: list[Tool]) -> None:
        self._tools = tools
        self.look_alikes = look_alikes(tools)
        self.names = ProgramNames(tools)
        self._indexed = [_terms(tool) for tool in tools]
        self._frequency = Counter(term for terms in self._indexed for term in terms)


def _terms(tool: Tool) -> dict[str, float]:
    terms: dict[str, float] = {}
    texts: list[tuple[str, str]] = [
        ("name", tool.name),
        ("module", tool.module or ""),
        ("description", tool.description[:4000]),
    ]
    properties = tool.parameters.get("properties")
    if isinstance(properties, dict):
        for name, schema in list(properties.items())[:100]:
            texts.append(("parameter", name))
            description = schema.get("description") if isinstance(schema, dict) else None
            if isinstance(description, str):
                texts.append(("description", description[:500]))
    for kind, text in texts:
        for word in _words(text):
            terms[word] = max(terms.get(word, 0.0), _WEIGHTS[kind])
    return terms


def _words(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(_CAMEL.sub(" ", text).lower())]


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            return word[: -len(suffix)]
    return word


# -- lines -----------------------------------------------------------------------------------------------------------

_NOTES: Final = 12
_NOTED: Final = 600


def tool_line(tool: Tool, names: ProgramNames, observed: JSONObject | None = None) -> str:
    """The signature of a tool, with its names in plans where they differ.

    Args:
        tool: the tool.
        names: what programs call the tools.
        observed: the shape of its earlier results.
    """
    place = names.place(tool)
    # Those that programs cannot call have no signature.
    line = tool.label if place is None else names.signature(tool, observed)
    notes = _notes(tool, place, names)
    return f"{line}{', ' if line.endswith(OBSERVED) else ' # '}{notes}" if notes else line


def _notes(tool: Tool, place: tuple[str, str] | None, names: ProgramNames) -> str:
    """The names in plans where they are not those in the signature."""
    changed: list[str] = []
    if place is None or place[1] != tool.name:
        changed.append(f"_tool: {encode_text(tool.name)}")
    if tool.module is not None and (place is None or place[0] != tool.module):
        changed.append(f"_module: {encode_text(tool.module)}")
    if place is not None:
        parameters = names.parameters(tool).items()
        changed += [f"{python}: {encode_text(real)}" for python, real in parameters if python != real]
    if len(changed) > _NOTES:
        changed[_NOTES:] = ["..."]
    return visible(", ".join(changed)[:_NOTED])
