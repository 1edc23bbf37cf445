"""Propose a name and a description for the tool made from a run.

A run's title may contain a name or a number that only applies to this run. The proposals contain
only words that suit every call of the tool.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from ideabridge.bridge.lifting.naming import tool_name, words_of
from ideabridge.server.ui.plan_form import FormStep
from ideabridge.server.ui.tool_texts import has_built_in_name
from ideabridge.server.views.value_table import tool_of
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty, objects_in

_BEFORE_VALUES: Final = frozenset({"at", "by", "for", "from", "in", "of", "on", "to", "with"})
"""Words that mean nothing at the end of a title whose last value has been removed."""

_SIGNS: Final = ".,:;()'\""
_LEAST_WORDS: Final = 2
_SHORTEST_PARAMETER: Final = 3


def general_title(title: str, values: Collection[str]) -> str:
    """Return the words of a run's title that suit every call of its tool, or "" if too few are left
    or if they may still be specific to this run.

    Args:
        title: the title.
        values: the values of the parameters in this run.
    """
    if "'s " in title or "’s " in title:
        return ""

    for value in values:
        if value:
            title = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", " ", title, flags=re.IGNORECASE)

    words = [word for word in title.split() if word.strip(_SIGNS)]
    while words and (words[-1].lower() in _BEFORE_VALUES or _is_value(words[-1])):
        words.pop()

    if len(words) < _LEAST_WORDS or any(map(_is_value, words[1:])):
        return ""
    return " ".join(words)


def _is_value(word: str) -> bool:
    """Return whether a word in a title looks like a name or a number."""
    has_digit = any(map(str.isdigit, word))
    letters = word.strip(_SIGNS)
    return has_digit or (letters[:1].isupper() and not letters.isupper())


def name_of_calls(plan: JSONObject, parameters: Sequence[str]) -> str:
    """Return a name for a plan, such as `list_orders_by_customer`. The name comes from the tool
    whose result the plan returns unchanged or, if there is none, from the tools that the plan
    calls. Return "" if the plan has no calls.
    """
    calls = objects_in(list_or_empty(plan.get("calls")))
    tools = [tool_of(call) for call in calls]
    if not tools:
        return ""

    called = [tool for tool in tools if not has_built_in_name(tool)] or tools
    returned = _returned_tool(calls, plan.get("output"))
    if returned in called:
        called = [returned]

    name = tool_name(called, [])
    if len(set(called)) > 1 or not parameters or not _says_more(parameters[0], name):
        return name
    # Pass the name as taken, so that the parameter is added to it.
    return tool_name(called, parameters, [name])


def _returned_tool(calls: Sequence[JSONObject], output: JSON) -> str:
    """Return the tool whose result, or part of it, is the output, or "" if there is none."""
    if not isinstance(output, str):
        return ""

    for place, call in enumerate(calls):
        target = call.get("_outputPath")
        step = FormStep((None, tool_of(call)), target=target if isinstance(target, str) else "")
        if step.part_in(output, place) is not None:
            return step.tool[1]
    return ""


def _says_more(parameter: str, name: str) -> bool:
    """Return whether the name of a parameter adds something to the name of a tool."""
    is_in_name = set(words_of(parameter)) <= set(words_of(name))
    return len(parameter) >= _SHORTEST_PARAMETER and not is_in_name
