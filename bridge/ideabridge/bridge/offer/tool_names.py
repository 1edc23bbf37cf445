"""Assign the tools of servers unique names in plans."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ideabridge.tools.names import is_disguised, is_safe_name, safe_name, shown_name, skeleton
from ideabridge.tools.tool import Tool, ToolKey
from ideabridge.tools.toolbox import Toolbox


def offered_tools(
    toolbox: Toolbox, remote: Iterable[Tool], away: Mapping[str, Iterable[str]] | None = None
) -> list[Tool]:
    """Return the tools in the toolbox and those of the servers.

    No tool shadows another: a server's tool is prefixed with the name of the server if another tool
    has the same or a similar-looking name, or if the tool's name could be read as the name of
    another server's tool.

    Args:
        toolbox: the tools of this process, which keep their names.
        remote: the tools of the servers.
        away: the names of the tools of each server that is not up, whose tools are therefore not in
            `remote`. The names can be empty.
    """
    own = list(toolbox.tools.values())
    listed = list(remote)
    owners = _Owners()
    for tool in own:
        owners.add(None, tool.name)
    for tool in listed:
        owners.add(tool.module, tool.name)
    for module, names in (away or {}).items():
        owners.add_module(module)
        for name in names:
            owners.add(module, name)

    names_in_use = {tool.name for tool in own}
    doubtful: list[int] = []
    for place, tool in enumerate(listed):
        if owners.is_doubtful(tool):
            doubtful.append(place)
        else:
            names_in_use.add(tool.name)

    # Sort the names, because two prefixed names can differ only in a number, which must not depend
    # on which server came up first.
    doubtful.sort(key=lambda place: (listed[place].module or "", listed[place].name))
    for place in doubtful:
        tool = listed[place]
        name = safe_name(f"{tool.module}_{tool.name}", names_in_use)
        names_in_use.add(name)
        listed[place] = dataclasses.replace(tool, name=name, remote_name=tool.name_in_module)

    return [*own, *listed]


class _Owners:
    """The servers that own each name. None stands for this process. Names that look alike count as
    one.

    In addition to the names of its tools, a server owns each of these names prefixed with the name
    of the server: `module_tool`, `module.tool` and `module/tool`.
    """

    def __init__(self) -> None:
        # The owners of each name. Names that look alike share a key.
        self._of_names = defaultdict[str, set[str | None]](set)
        self._of_prefixed_names = defaultdict[str, set[str]](set)
        # The server that owns all names with a prefix, keyed by prefix.
        self._of_beginnings: dict[str, str] = {}

    def add(self, module: str | None, name: str) -> None:
        self._of_names[skeleton(name)].add(module)
        if module is not None:
            self._of_prefixed_names[skeleton(f"{module}_{name}")].add(module)
            self.add_module(module)

    def add_module(self, module: str) -> None:
        shape = skeleton(module)
        self._of_beginnings[f"{shape}."] = module
        self._of_beginnings[f"{shape}/"] = module

    def is_doubtful(self, tool: Tool) -> bool:
        """Return whether the name of a tool could be mistaken for the name of another tool."""
        shape = skeleton(tool.name)
        if is_disguised(tool.name) or len(self._of_names[shape]) > 1:
            return True

        prefixed = self._of_prefixed_names.get(shape, set())
        if prefixed - {tool.module}:
            return True

        return any(
            shape.startswith(beginning) and module != tool.module
            for beginning, module in self._of_beginnings.items()
        )


def look_alikes(tools: Iterable[Tool]) -> dict[ToolKey, str]:
    """Return warnings about tools whose names could be mistaken for those of other tools, keyed by
    `Tool.origin`.
    """
    # The tools with their own names, grouped so that the names in a group look alike.
    groups = defaultdict[str, list[tuple[str, Tool]]](list)
    for tool in tools:
        _, name = tool.origin
        groups[skeleton(name)].append((name, tool))

    warnings: dict[ToolKey, str] = {}
    for group in groups.values():
        safe_names = {name for name, _ in group if is_safe_name(name)}
        for name, tool in group:
            if safe_names == {name}:
                # All the others look like this name, so it needs no warning.
                continue

            rivals = _rivals_of(name, group, safe_names)
            if rivals:
                labels = ", ".join(rival.label for rival in rivals[:3])
                warnings[tool.origin] = f"{shown_name(name)} looks like {labels}"
            elif is_disguised(name):
                warnings[tool.origin] = (
                    f"{shown_name(name)} looks like ASCII, but contains other characters"
                )

    return warnings


def _rivals_of(name: str, group: Iterable[tuple[str, Tool]], safe_names: set[str]) -> list[Tool]:
    """Return the tools in a group of similar-looking names that a name could be mistaken for.

    If exactly one of the names is safe, return only the tool with that name.
    """
    rivals: list[Tool] = []
    for other_name, tool in group:
        if other_name == name or is_disguised(other_name):
            continue
        if len(safe_names) != 1 or other_name in safe_names:
            rivals.append(tool)

    return rivals


def naming_notes(toolbox: Toolbox, remote: Iterable[Tool]) -> list[str]:
    """Return notes for people about servers' tools whose names look like those of other tools, or
    that have a different name in plans.
    """
    offered = offered_tools(toolbox, remote)
    warnings = look_alikes(offered)
    notes: list[str] = []
    for tool in offered:
        module, name = tool.origin
        warning = warnings.get(tool.origin)
        is_renamed = tool.name != name
        if module is None or (warning is None and not is_renamed):
            continue

        if warning is None:
            note = f"another server has a tool named {shown_name(name)}, or a similar name"
        else:
            note = warning
        if is_renamed:
            note += f"; plans call it {tool.name}"
        notes.append(f"{module}: {note}")

    return notes
