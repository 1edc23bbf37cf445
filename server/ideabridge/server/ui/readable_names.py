"""Write the names of tools, which are meant for programs, in words for people.

A page shows the words first, and the name itself less prominently beside or below them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.tools.tool import Tool

_NAME: Final = re.compile(r"[^\W\d_][^\W_]*(?:[_./-]+[^\W_]+)*")
"""Matches a name made of words: `snake_case`, `kebab-case`, `camelCase` or `files.read`."""

_SEPARATORS: Final = re.compile(r"[_./-]+")
_HUMPS: Final = re.compile(
    # Before a capital letter that follows a small letter or a digit, as in `getURL`, and before the
    # last capital letter of several if it begins a word, as in `URLFor`, but not in `PRs`.
    r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))"
)

_NAMED_TOOLS: Final = 3
"""Number of tools that remain in a run's name when it is cut."""

_TOOLS: Final = re.compile(r"(?:program: )?[^\s+]+(?: \+ [^\s+]+)+")
"""Matches a title that consists of tool names; see `title_of_tools`."""

_OF_PROGRAM: Final = "program: "
_UNTITLED: Final = {"plan": "Untitled plan", "solve": "Untitled task", "session": "Direct calls"}


def in_words(name: str) -> str:
    """Return a name as words for the middle of a sentence: `find_customer` becomes `find customer`,
    and `getURLs` becomes `get URLs`. Text that is not a name is returned unchanged.
    """
    if _NAME.fullmatch(name) is None:
        return name

    words = _SEPARATORS.split(name)
    if len(words) == 1:
        words = _HUMPS.split(name)
    return " ".join(word.lower() if word[1:].islower() else word for word in words)


def readable(name: str) -> str:
    """Return a name as words, such as `Find customer` for `find_customer`. Text that is not a name
    is returned unchanged.
    """
    if _NAME.fullmatch(name) is None:
        return name
    return _capitalized(in_words(name))


def has_words(tool: Tool, words: str) -> bool:
    """Return whether the title, name, server or description of a tool contains `words`."""
    title = tool.annotations.title or ""
    name = f"{tool.name} {readable(tool.name)}"
    described = f"{title} {name} {tool.module or ''} {tool.description}"
    return words.casefold() in described.casefold()


def title_names_tools(title: str) -> bool:
    """Return whether a title consists only of tool names; see `title_of_tools`."""
    return title.isidentifier() or _TOOLS.fullmatch(title) is not None


def run_name(record: RunRecord, words: Callable[[str], str] = in_words) -> str:
    """Return the name of a run for people: its title or, if the title only lists tools, their names
    in words, cut after the first few. A run without a title has a description instead.
    """
    if not record.title:
        return _UNTITLED.get(record.kind, "Untitled run")
    return title_in_words(record.title, words)


def title_in_words(title: str, words: Callable[[str], str] = in_words) -> str:
    """Return the title of a run or an idea; see `run_name`."""
    if not title_names_tools(title):
        return title

    tools = title.removeprefix(_OF_PROGRAM).split(" + ")
    most = len(tools) if len(tools) <= _NAMED_TOOLS + 1 else _NAMED_TOOLS
    text = ", ".join(words(tool) for tool in tools[:most])
    if most < len(tools):
        text += f" and {len(tools) - most} more"
    if title.startswith(_OF_PROGRAM):
        return f"Program: {text}"
    return _capitalized(text)


def is_spelling_of(name: str, title: str) -> bool:
    """Return whether a tool's name, or a run's title that lists tools, has the same words as the
    given title, so that it would add nothing to the title.
    """
    return title.casefold() in (readable(name).casefold(), title_in_words(name).casefold())


def code_name_of(title: str) -> str:
    """Return the title of a run if it only lists tools, or "" if it is already in words."""
    return title if title_names_tools(title) else ""


def _capitalized(text: str) -> str:
    """Capitalize the first letter of a text, unless its first word has capitals of its own, such as
    `iOS`.
    """
    first = text.partition(" ")[0]
    return f"{text[:1].upper()}{text[1:]}" if first.islower() else text
