"""Hints: what can honestly be said of a published idea, by the names of MCP (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Iterable

from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.tool import Tool


def hints_of(tools: Iterable[Tool]) -> JSONObject:
    """What an idea is that may call these tools: read-only only if all of them are; none: it only gives what it holds,
    or what a mind writes.
    """
    read_only = idempotent = True
    destructive = open_world = False
    for tool in tools:
        said = tool.annotations
        read_only = read_only and said.read_only is True
        idempotent = idempotent and said.repeatable
        destructive = destructive or (said.read_only is not True and said.destructive is not False)
        # A tool here that says nothing is taken to stay here; a module that says nothing may reach anywhere.
        open_world = open_world or (
            said.open_world is not False if tool.module is not None else said.open_world is True
        )
    return {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
