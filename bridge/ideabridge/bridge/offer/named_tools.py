"""Assign unique names to the tools of this process and of the servers, both as listed by servers
and as changed by the configuration.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.offer.tool_names import offered_tools
from ideabridge.tools.changed import ToolChange, changed_tool
from ideabridge.tools.tool import Tool
from ideabridge.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class NamedTools:
    """Tools under names that do not collide.

    Attributes:
        real: the tools as their servers list them.
        shown: the tools as the configuration changes them, without hidden tools.
        hidden: the hidden tools.
    """

    real: list[Tool]
    shown: list[Tool]
    hidden: list[Tool]


def name_tools(toolbox: Toolbox, modules: Modules) -> NamedTools:
    """Return the tools of a toolbox and of the servers.

    A name that the configuration gives to a tool competes with all other names, as if the server
    also listed a tool with the new name. Therefore, neither the new name nor the server's own name
    can replace another tool.
    """
    listed = modules.known_tools()
    changes = [_change_of(tool, modules) for tool in listed]
    renamed = [
        dataclasses.replace(tool, name=change.name)
        for tool, change in zip(listed, changes, strict=True)
        if change is not None and change.name is not None
    ]
    offered = offered_tools(toolbox, [*listed, *renamed], modules.reserved())
    own = offered[: len(offered) - len(listed) - len(renamed)]
    real = offered[len(own) : len(own) + len(listed)]
    new_names = iter(offered[len(own) + len(listed) :])

    shown: list[Tool] = []
    hidden: list[Tool] = []
    for tool, change in zip(real, changes, strict=True):
        if change is None:
            is_hidden = tool.name_in_module in modules[tool.module or ""].changes.hidden
            if is_hidden:
                hidden.append(tool)
            else:
                shown.append(tool)
            continue

        changed = changed_tool(tool, change)
        if change.name is not None:
            new = next(new_names)
            # The new name might have been given a prefix.
            remote_name = new.remote_name if new.name != change.name else None
            changed = dataclasses.replace(changed, name=new.name, remote_name=remote_name)
        shown.append(changed)

    return NamedTools([*own, *real], [*own, *shown], hidden)


def _change_of(tool: Tool, modules: Modules) -> ToolChange | None:
    return modules[tool.module or ""].changes.shown.get(tool.name)
