"""Needs: the tools a plan calls, and where they are."""

from __future__ import annotations

from dataclasses import dataclass

from ideabridge.tools.encoding import JSON, JSONObject


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A tool that an idea calls. `module`: the server it belongs to, as its author configured it; "": no server's."""

    tool: str
    module: str = ""

    def to_json(self) -> JSONObject:
        """`{"tool", "module"?}`."""
        return {"tool": self.tool, "module": self.module} if self.module else {"tool": self.tool}

    @property
    def text(self) -> str:
        """`module/tool`."""
        return f"{self.module}/{self.tool}" if self.module else self.tool


def needs_of(schema: JSON, solution: JSON, plan: JSONObject | None = None) -> list[Need]:
    """What an idea's calls name, and those of the plan it is published with.

    The schema a Solution was written for tells the module of a tool where the call itself does not.
    """
    modules = modules_of(schema)
    found: dict[Need, None] = {}
    for part in (solution, plan):
        calls = part.get("calls") if isinstance(part, dict) else None
        for call in calls if isinstance(calls, list) else []:
            need = need_of(call, modules)
            if need is not None:
                found[need] = None
    return sorted(found)


def need_of(call: JSON, modules: dict[str, str]) -> Need | None:
    """The tool a call names; None where it names none."""
    tool = call.get("_tool") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(tool, str):
        return None
    module = call.get("_module")
    if module is None and tool not in modules:
        # A plan may say `module.tool`.
        meant = next((own for own, of in modules.items() if tool in (f"{of}.{own}", f"{of}/{own}")), None)
        if meant is not None:
            return Need(meant, modules[meant])
    return Need(tool, module if isinstance(module, str) else modules.get(tool, ""))


def modules_of(schema: JSON) -> dict[str, str]:
    """Tool -> module, as the call schemas of a composed schema say it, for those that have one."""
    return {tool: module for tool, module in tools_in(schema).items() if module}


def tools_in(schema: JSON) -> dict[str, str]:
    """Tool -> module, as the call schemas of a composed schema say it; "": it belongs to no module."""
    definitions = schema.get("$defs") if isinstance(schema, dict) else None
    found: dict[str, str] = {}
    for branch in _branches(schema):
        target = branch.get("$ref")
        if isinstance(target, str) and isinstance(definitions, dict):
            referred = definitions.get(target.removeprefix("#/$defs/"))
            branch = referred if isinstance(referred, dict) else branch
        properties = branch.get("properties")
        if isinstance(properties, dict):
            tool, module = _const(properties.get("_tool")), _const(properties.get("_module"))
            if tool:
                found[tool] = module
    return found


def _branches(schema: JSON) -> list[JSONObject]:
    """The schemas of the calls of a Solution."""
    here: JSON = schema
    for key in ("properties", "calls", "items"):
        here = here.get(key) if isinstance(here, dict) else None
    if not isinstance(here, dict):
        return []
    listed = here.get("anyOf")
    return [one for one in (listed if isinstance(listed, list) else [here]) if isinstance(one, dict)]


def _const(schema: JSON) -> str:
    value = schema.get("const") if isinstance(schema, dict) else None
    return value if isinstance(value, str) else ""
