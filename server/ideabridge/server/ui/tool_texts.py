"""Say in one sentence what a tool does, for lists. The tool's page has its full description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from ideabridge.bridge.programs.stubs import first_line_of
from ideabridge.server.ui.showing import in_one_line
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.tool import Tool

_MOST: Final = 200
"""Maximum length, in characters, of a sentence. A longer one ends with a whole word."""

_IN_PLAIN_WORDS: Final = {
    "compute": "Calculate a value, such as a sum, with a short formula.",
    "count": "Count the items of a list, or the characters of a text.",
    "filter": "Keep the items of a list that meet a condition.",
    "join": "Put the items of a list together into one text.",
    "pick": "Take a part out of some data, or reshape it.",
    "sleep": "Wait for some time.",
    "template": "Fill in a text with values.",
}
"""A sentence for each built-in tool, for people. Its description is for assistants."""

_END_OF_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def is_built_in(tool: Tool) -> bool:
    """Return whether a tool is one of ideabridge's own rather than from a person's tool files."""
    return tool.module is None and _descriptions().get(tool.name) == tool.description


def has_built_in_name(name: str) -> bool:
    """Return whether one of ideabridge's own tools has the given name."""
    return name in _descriptions()


@cache
def _descriptions() -> dict[str, str]:
    return {tool.name: tool.description for tool in builtin_toolbox()}


def about_tool(tool: Tool) -> str:
    """Return a sentence about a tool: the first sentence of its description or, if the tool is
    built in, one in plain words.
    """
    if is_built_in(tool) and tool.name in _IN_PLAIN_WORDS:
        return _IN_PLAIN_WORDS[tool.name]

    line = in_one_line(opening_sentence(tool.description), _MOST)
    if not line.endswith("…"):
        return line

    words, space, _ = line.rpartition(" ")
    return f"{words} …" if space else line


def opening_sentence(text: str) -> str:
    """Return the first sentence of a description."""
    return _END_OF_SENTENCE.split(first_line_of(text), maxsplit=1)[0]


def request_with(sentence: str, values: Mapping[str, str]) -> str:
    """Return a sentence with values inserted. If the sentence contains a value's name, the value
    follows the name: `Find the orders of a customer` becomes `Find the orders of customer c1`.
    Otherwise, the name and the value follow the sentence.
    """
    named: list[str] = []
    for name, value in values.items():
        words = name.replace("_", " ")
        noun = re.compile(rf"\b(?:(?:an?|one|the) )?{re.escape(words)}(?![\w'’-])")
        with_value = f"{words} {value}"
        # The value is text, in which nothing is a group of the pattern.
        sentence, count = noun.subn(lambda _, new=with_value: new, sentence, count=1)
        if not count:
            named.append(f"{name} {value}")

    return f"{sentence}: {', '.join(named)}" if named else sentence
