"""Sharing: what an idea from elsewhere needs that is not here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ideabridge.bridge.store.errors import UnknownPublicationError
from ideabridge.bridge.store.shapes import Need
from ideabridge.tools.names import did_you_mean

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge

IDEA = "idea:"


def missing(bridge: Bridge, needs: Iterable[Need]) -> list[str]:
    """What the calls of an idea name and this bridge does not have, a line for each; []: it can run here.

    Modules that are still connecting have not told their tools: wait for them (`modules.settled`) first.
    """
    wanted = sorted(set(needs))
    lines: list[str] = []
    absent = {need.module for need in wanted if need.module and not _is_place(bridge, need.module)}
    tools = bridge.tools()
    for module in sorted(absent):
        names = sorted({need.tool for need in wanted if need.module == module})
        elsewhere = sorted({one.module for one in tools if one.module and one.name in names})
        hint = f" {', '.join(elsewhere)} here has tools of these names." if elsewhere else ""
        if module.startswith(IDEA):
            lines.append(f"nothing is published here as {module.removeprefix(IDEA)!r}, which it calls")
        else:
            lines.append(f"the server {module!r} is not configured here (mcpServers); it calls {_some(names)}.{hint}")
    away = {one.name: one for one in bridge.modules.statuses() if one.state != "up"}
    for need in wanted:
        if need.module in absent or need.module.startswith(IDEA) or need.module == "anonymous":
            continue
        if any(need.tool in (one.name, one.remote_name) and need.module in ("", one.module or "") for one in tools):
            continue
        status = away.get(need.module)
        if status is not None:
            lines.append(f"the server {need.module!r} is {status.state}, so that {need.tool!r} cannot be looked for")
            continue
        known = [one.name for one in tools if not need.module or one.module == need.module]
        where = f"at the server {need.module!r}" if need.module else "here (a file of tools, perhaps: --tools)"
        lines.append(f"there is no tool {need.tool!r} {where}.{did_you_mean(need.tool, known)}")
    return lines


def _is_place(bridge: Bridge, module: str) -> bool:
    if not module.startswith(IDEA):
        return module == "anonymous" or module in bridge.modules.names
    try:
        bridge.store.publications.named(module.removeprefix(IDEA))
    except UnknownPublicationError:
        return False
    return True


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"
