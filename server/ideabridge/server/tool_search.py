"""ToolSearch: tools found by words (DESIGN 6). For catalogues too large to list."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

from ideabridge.bridge.offer import look_alikes
from ideabridge.tools.encoding import JSON
from ideabridge.tools.tool import Tool, ToolKey

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_WORDS: Final = 32
_MOST_CHARACTERS: Final = 10_000
"""Of the words that are looked for; 4 MB of them take a second to take apart."""

_WEIGHTS: Final = {"name": 6.0, "module": 3.0, "parameter": 2.0, "description": 1.0}
_SUFFIXES: Final = ("ing", "es", "ed", "s")


class ToolSearch:
    """An index over one list of tools; made again when the list is another.

    Attributes:
        look_alikes: of the last list; see `look_alikes`.
    """

    def __init__(self) -> None:
        self._tools: list[Tool] = []
        self._indexed: list[dict[str, float]] = []
        self._frequency: Counter[str] = Counter()
        self.look_alikes: dict[ToolKey, str] = {}

    def find(self, tools: list[Tool], words: str, limit: int, module: str | None = None) -> tuple[list[Tool], int]:
        """The tools that fit the words best, best first, and how many fit at all.

        Args:
            tools: every tool there is.
            words: any text; none: every tool fits, in the order of the list.
            limit: how many to give at most.
            module: only this module's tools.
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
        return [tools[number] for _, number in scored[:limit]], len(scored)

    def fits(self, tools: list[Tool], words: str) -> bool:
        """Whether a tool fits every word, so that others can hardly fit better; no words: none does."""
        if tools is not self._tools:
            self._index(tools)
        wanted = set(_words(words[:_MOST_CHARACTERS]))
        return bool(wanted) and any(self._fits(terms, wanted) for terms in self._indexed)

    @staticmethod
    def _fits(terms: dict[str, float], wanted: set[str]) -> bool:
        return all(word in terms or any(term.startswith(word) for term in terms) for word in wanted)

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
            description = _description(schema)
            if description:
                texts.append(("description", description))
    for kind, text in texts:
        for word in _words(text):
            terms[word] = max(terms.get(word, 0.0), _WEIGHTS[kind])
    return terms


def _description(schema: JSON) -> str:
    told = schema.get("description") if isinstance(schema, dict) else None
    return told[:500] if isinstance(told, str) else ""


def _words(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(_CAMEL.sub(" ", text).lower())]


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            return word[: -len(suffix)]
    return word
