"""Policy: whether a resolved call runs, asks a person, or is refused (DESIGN 4.6).

A policy is made from the settings of a run, which its journal holds: folding the journal gives the same verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, cast

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations, Tool

Then: TypeAlias = Literal["allow", "ask", "deny"]

ApprovalSetting: TypeAlias = "str | JSONObject"
"""`default`, `allow_all`, an object of rules as the configuration's key `approval` takes it, or `{"all": [...]}` of
these: the strictest decides on each call.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of one call, and why."""

    verdict: Then
    why: str = ""


Policy: TypeAlias = Callable[[Tool, JSONObject], Verdict]
"""A pure function of the tool and the call with its references resolved: the same call, the same verdict."""

ALLOW = Verdict("allow")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: holds for a call where everything it names fits.

    Attributes:
        then: what happens to such a call.
        module: pattern of module names (`*`, `?`, `[abc]`); "" stands for tools that are in no module.
        tool: pattern of tool names, as calls have them or as their module has them.
        read_only, destructive, idempotent, open_world: what the tool's annotations come to; see `standing`.
        why: what the person, or the mind of a denied call, is told.
    """

    then: Then
    module: str | None = None
    tool: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    why: str | None = None

    def holds(self, tool: Tool) -> bool:
        """Whether the rule is about this tool."""
        if self.module is not None and not _module_fits(tool, self.module):
            return False
        if self.tool is not None and not any(
            fnmatchcase(name, self.tool) for name in (tool.name, tool.remote_name or tool.name)
        ):
            return False
        told = standing(tool.annotations)
        return all(
            wanted is None or wanted == found
            for wanted, found in zip(
                (self.read_only, self.destructive, self.idempotent, self.open_world), told, strict=True
            )
        )

    @classmethod
    def from_json(cls, value: JSONObject) -> Rule:
        """The rule the configuration, or a run's settings, hold."""
        members: dict[str, Any] = {one.name: value[one.name] for one in fields(cls) if one.name in value}
        return cls(**members)


def _module_fits(tool: Tool, pattern: str) -> bool:
    # "*" is any module; tools of our own are in none, and only "" speaks of them.
    return pattern == "" if tool.module is None else fnmatchcase(tool.module, pattern)


def standing(annotations: Annotations) -> tuple[bool, bool, bool, bool]:
    """(read-only, destructive, idempotent, open world), with what is not said taken as MCP says: not read-only,
    destructive, not idempotent, open world. A read-only tool destroys nothing and may be called again.
    """
    read_only = annotations.read_only is True
    return (
        read_only,
        not read_only and annotations.destructive is not False,
        read_only or annotations.idempotent is True,
        annotations.open_world is not False,
    )


def allow_all(tool: Tool, call: JSONObject) -> Verdict:
    """Every call runs."""
    return ALLOW


def default_policy(tool: Tool, call: JSONObject) -> Verdict:
    """Calls of tools that say they are read-only run, all others ask; a room opens, and its calls ask by themselves."""
    if tool.annotations.read_only is True or tool.in_room:
        return ALLOW
    if tool.annotations.destructive is True:
        return Verdict("ask", f"{_named(tool)} says it is destructive")
    if tool.annotations.read_only is False:
        return Verdict("ask", f"{_named(tool)} says it changes things")
    return Verdict("ask", f"{_named(tool)} does not say that it is read-only")


def ruled(rules: Sequence[Rule], otherwise: str) -> Policy:
    """The policy of rules in their order: the first that holds decides.

    Args:
        rules: the rules.
        otherwise: `allow`, `ask`, `deny`, or `read_only` (the default policy), where none holds.
    """

    def policy(tool: Tool, call: JSONObject) -> Verdict:
        for number, rule in enumerate(rules):
            if rule.holds(tool):
                why = rule.why or f"approval.rules[{number}] says {rule.then} for {_named(tool)}"
                return ALLOW if rule.then == "allow" else Verdict(rule.then, why)
        if otherwise == "read_only":
            return default_policy(tool, call)
        if otherwise == "allow":
            return ALLOW
        how: Then = "deny" if otherwise == "deny" else "ask"
        return Verdict(how, f"no rule speaks of {_named(tool)}, and approval.default says {how}")

    return policy


def policy_named(setting: ApprovalSetting) -> Policy:
    """The policy of an approval setting."""
    if isinstance(setting, dict) and "all" in setting:
        return strictest([policy_named(part) for part in approval_parts(setting)])
    if isinstance(setting, dict):
        rules = cast("list[JSONObject]", setting.get("rules") or [])
        return ruled([Rule.from_json(rule) for rule in rules], str(setting.get("default") or "read_only"))
    return allow_all if setting == "allow_all" else default_policy


def approval_parts(setting: ApprovalSetting) -> list[ApprovalSetting]:
    """The settings that an approval setting is made of: those under `all`, else itself."""
    if isinstance(setting, dict) and "all" in setting:
        return cast("list[ApprovalSetting]", setting["all"])
    return [setting]


def strictest(policies: Sequence[Policy]) -> Policy:
    """The policy that says what the strictest of several says; of equally strict ones, the first."""

    def policy(tool: Tool, call: JSONObject) -> Verdict:
        return max((one(tool, call) for one in policies), key=lambda verdict: _STRICTNESS[verdict.verdict])

    return policy


_STRICTNESS: Final[dict[Then, int]] = {"allow": 0, "ask": 1, "deny": 2}


def approval_timeout(setting: ApprovalSetting) -> float | None:
    """Seconds after which a call nobody decided on is denied; None: never."""
    found: list[float] = []
    for part in approval_parts(setting):
        seconds: JSON = part.get("timeout_seconds") if isinstance(part, dict) else None
        if isinstance(seconds, int | float) and not isinstance(seconds, bool):
            found.append(float(seconds))
    return min(found, default=None)


def only_persons(setting: ApprovalSetting) -> bool:
    """Whether the assistant may decide nothing, in no session."""
    return isinstance(setting, dict) and setting.get("by") == "person"


def _named(tool: Tool) -> str:
    return f"tool {tool.name!r}{f' of module {tool.module!r}' if tool.module else ''}"
