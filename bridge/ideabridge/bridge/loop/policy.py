"""Policy: whether a resolved call runs, asks a person, or is refused (DESIGN 4.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of one call, and why."""

    verdict: Literal["allow", "ask", "deny"]
    why: str = ""


Policy: TypeAlias = Callable[[Tool, JSONObject], Verdict]
"""A pure function of the tool and the call with its references resolved: the same call, the same verdict."""

ALLOW = Verdict("allow")


def allow_all(tool: Tool, call: JSONObject) -> Verdict:
    """Every call runs."""
    return ALLOW


def default_policy(tool: Tool, call: JSONObject) -> Verdict:
    """Calls of tools that say they are read-only run, all others ask."""
    if tool.annotations.read_only is True:
        return ALLOW
    where = f" of module {tool.module!r}" if tool.module else ""
    if tool.annotations.destructive is True:
        return Verdict("ask", f"tool {tool.name!r}{where} says it is destructive")
    if tool.annotations.read_only is False:
        return Verdict("ask", f"tool {tool.name!r}{where} says it changes things")
    return Verdict("ask", f"tool {tool.name!r}{where} does not say that it is read-only")


def policy_named(name: str) -> Policy:
    """The policy of a configuration's `approval` key: `default` or `allow_all`."""
    return allow_all if name == "allow_all" else default_policy
