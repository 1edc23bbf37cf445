"""Apply the configured changes to the tools of a server, and record those that do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.modules.settings import ToolSettings
from ideabridge.tools.changed import ToolChange, fitting_change
from ideabridge.tools.names import did_you_mean, shown_name
from ideabridge.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class ToolChanges:
    """The changes to one server's tools.

    Attributes:
        shown: how tools are shown, keyed by the names that the server gives them. Other tools are
            shown unchanged.
        hidden: the names of the tools that are not shown.
        notes: human-readable notes on the changes that do not fit.
    """

    shown: Mapping[str, ToolChange] = field(default_factory=dict[str, ToolChange])
    hidden: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


NO_CHANGES: Final = ToolChanges()


def tool_changes(
    tools: Iterable[Tool],
    settings: Mapping[str, ToolSettings],
    *,
    is_whole: bool,
    decides_hints: bool,
) -> ToolChanges:
    """Return the changes that fit the tools of a server.

    Args:
        tools: the tools that the server lists.
        settings: the changes in the server's entry.
        is_whole: whether the list is complete. A tool missing from a complete list does not exist.
        decides_hints: whether the entry may declare that a tool is read-only. An entry in a
            project's file may not.
    """
    if not settings:
        return NO_CHANGES

    listed = {tool.name: tool for tool in tools}
    notes: list[str] = []
    hidden: set[str] = set()
    shown: dict[str, ToolChange] = {}
    new_names: dict[str, str] = {}
    for name, wanted in settings.items():
        place = f"tools.{shown_name(name)}"
        tool = listed.get(name)
        if tool is None:
            if is_whole:
                near = did_you_mean(name, listed)
                notes.append(
                    f"{place}: the server does not list this tool, or the tool is not allowed."
                    f"{near}"
                )
            continue

        if wanted.hide:
            hidden.add(name)
            continue

        new_name = wanted.name
        if new_name is not None and new_name != name:
            owner = name if new_name in listed else new_names.setdefault(new_name, name)
            if new_name in listed or owner != name:
                notes.append(
                    f"{place}.name: {shown_name(new_name)} is the name of another tool of this "
                    "server. The tool keeps its own name."
                )
                new_name = None

        change = ToolChange(
            new_name,
            wanted.description,
            wanted.defaults,
            wanted.hide_parameters,
            wanted.read_only if decides_hints else None,
        )
        change, problems = fitting_change(tool, change)
        notes += [f"{place}.{problem}" for problem in problems]
        if change != ToolChange():
            shown[name] = change

    return ToolChanges(shown, frozenset(hidden), tuple(notes))
