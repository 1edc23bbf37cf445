"""Offer: every tool there is, under names that do not collide (DESIGN 4.10)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from fnmatch import fnmatchcase

from ideabridge.tools.names import safe_name
from ideabridge.tools.tool import Tool, ToolKey
from ideabridge.tools.toolbox import Toolbox


def offered_tools(toolbox: Toolbox, remote: Iterable[Tool]) -> list[Tool]:
    """The tools of the toolbox and of the modules. A module's tool whose name is taken gets the server as prefix;
    nothing is silently shadowed.
    """
    offered: list[Tool] = list(toolbox.tools.values())
    remote = list(remote)
    count: dict[str, int] = {}
    for tool in (*offered, *remote):
        count[tool.name] = count.get(tool.name, 0) + 1
    taken = set(count)
    for tool in remote:
        if count[tool.name] == 1:
            offered.append(tool)
            continue
        name = safe_name(f"{tool.module}_{tool.name}", taken)
        taken.add(name)
        offered.append(dataclasses.replace(tool, name=name, remote_name=tool.remote_name or tool.name))
    return offered


def latent_keys(toolbox: Toolbox, tools: Iterable[Tool]) -> list[ToolKey]:
    """The inline tools without an activity: the mind writes their result."""
    return [tool.key for tool in tools if tool.module is None and toolbox.activity_for(tool) is None]


def chosen_tools(tools: Iterable[Tool], patterns: Iterable[str] | None) -> list[Tool]:
    """The tools whose name, or `module.name`, is named or matches a pattern such as `git_*`; None: all."""
    tools = list(tools)
    if patterns is None:
        return tools
    wanted = list(patterns)
    return [
        tool
        for tool in tools
        if any(fnmatchcase(tool.name, one) or fnmatchcase(f"{tool.module}.{tool.name}", one) for one in wanted)
    ]
