"""Policy: whether a resolved call runs, asks a person, or is refused.

A policy is made from the settings of a run, which are in its journal, so folding the journal repeats the verdicts.

A rule that restricts (`ask`, `deny`) matches every name of its tool, whatever the case and width of its letters; see
`ideabridge.tools.names.known_as`. A rule that allows matches a name only as written. A rule that restricts and does not
match as written can make the verdict stricter, never milder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, cast

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import folded, known_as
from ideabridge.tools.tool import Annotations, Tool

Then: TypeAlias = Literal["allow", "ask", "deny"]

ApprovalSetting: TypeAlias = "str | JSONObject"
"""`default`, `allow_all`, an object of rules as the configuration's key `approval` takes it, or `{"all": [...]}` of
these: the strictest decides on each call.
"""


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """The verdict of a policy on one call, and the reason."""

    verdict: Then
    why: str = ""


Policy: TypeAlias = Callable[[Tool, JSONObject], PolicyVerdict]
"""A pure function of the tool and the call with its references resolved: the same call, the same verdict."""

ALLOW = PolicyVerdict("allow")
_STRICTNESS: Final[dict[Then, int]] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. It matches a call if every member that is set matches.

    Attributes:
        then: what happens to such a call.
        module: pattern of module names (`*`, `?`, `[abc]`); "" matches tools without a module.
        tool: pattern of tool names, as calls or as the module name them.
        read_only, destructive, idempotent, open_world: the effective annotations; see `effective_hints`.
        why: the reason that the person, or the mind of a denied call, sees.
    """

    then: Then
    module: str | None = None
    tool: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    why: str | None = None

    def holds(self, tool: Tool, *, as_offered: bool = False) -> bool:
        """Whether the rule, as written, is about this tool.

        Args:
            tool: the tool.
            as_offered: where the rule names no module, a name that several modules have is none's: it is about what
                the tool is offered as.
        """
        if self.module is not None and not _module_fits(tool, self.module):
            return False
        names = [tool.name]
        if tool.remote_name is not None and not (as_offered and self.module is None):
            names.append(tool.remote_name)
        if self.tool is not None and not any(fnmatchcase(name, self.tool) for name in names):
            return False
        return self._fits(tool)

    def holds_folded(self, tool: Tool, also: str = "") -> bool:
        """Whether the rule is about this tool by any of its names.

        Args:
            tool: the tool.
            also: one more name it is reached by, such as the one it is exposed under.
        """
        if self.module is not None and not (
            self.module == "" if tool.module is None else fnmatchcase(folded(tool.module), folded(self.module))
        ):
            return False
        if self.tool is not None:
            pattern, names = folded(self.tool), known_as(tool.name, tool.remote_name, tool.module)
            if not any(fnmatchcase(name, pattern) for name in names) and not (
                also and fnmatchcase(folded(also), pattern)
            ):
                return False
        return self._fits(tool)

    def _fits(self, tool: Tool) -> bool:
        """Whether the tool's annotations are those the rule names."""
        hints = effective_hints(tool.annotations)
        return all(
            wanted is None or wanted == found
            for wanted, found in zip(
                (self.read_only, self.destructive, self.idempotent, self.open_world), hints, strict=True
            )
        )

    @classmethod
    def from_json(cls, value: JSONObject) -> Rule:
        """The rule the configuration, or a run's settings, hold."""
        members: dict[str, Any] = {one.name: value[one.name] for one in fields(cls) if one.name in value}
        return cls(**members)


def _module_fits(tool: Tool, pattern: str) -> bool:
    # "*" matches any module; a tool without a module is matched only by "".
    return pattern == "" if tool.module is None else fnmatchcase(tool.module, pattern)


def effective_hints(annotations: Annotations) -> tuple[bool, bool, bool, bool]:
    """(read-only, destructive, idempotent, open world), with the defaults of MCP: not read-only, destructive, not
    idempotent, open world. A read-only tool is not destructive, and is idempotent.
    """
    read_only = annotations.read_only is True
    return (
        read_only,
        not read_only and annotations.destructive is not False,
        read_only or annotations.idempotent is True,
        annotations.open_world is not False,
    )


def allow_all(tool: Tool, call: JSONObject) -> PolicyVerdict:
    """Every call runs."""
    return ALLOW


def default_policy(tool: Tool, call: JSONObject) -> PolicyVerdict:
    """Calls of tools that say they are read-only run, all others ask; a room opens, and its calls ask by themselves."""
    if tool.annotations.read_only is True or tool.in_room:
        return ALLOW
    if tool.annotations.destructive is True:
        return PolicyVerdict("ask", f"{_named(tool)} says it is destructive")
    if tool.annotations.read_only is False:
        return PolicyVerdict("ask", f"{_named(tool)} says it changes things")
    return PolicyVerdict("ask", f"{_named(tool)} does not say that it is read-only")


def ruled(rules: Sequence[Rule], otherwise: str, *, also: str = "") -> Policy:
    """The policy of rules in their order: the first that holds decides.

    Args:
        rules: the rules.
        otherwise: `allow`, `ask`, `deny`, or `read_only` (the default policy), where none holds.
        also: one more name that the tool is reached by.
    """

    def policy(tool: Tool, call: JSONObject) -> PolicyVerdict:
        least = ALLOW
        for number, rule in enumerate(rules):
            exact = rule.holds(tool, as_offered=rule.then == "allow")
            if not exact and (rule.then == "allow" or not rule.holds_folded(tool, also)):
                continue
            why = rule.why or f"approval.rules[{number}] says {rule.then} for {_named(tool)}"
            found = ALLOW if rule.then == "allow" else PolicyVerdict(rule.then, why)
            if exact:
                return _stricter(least, found)
            # It matches only another name of the tool: a later rule may be stricter.
            least = _stricter(least, found)
        if otherwise == "read_only":
            return _stricter(least, default_policy(tool, call))
        if otherwise == "allow":
            return least
        how: Then = "deny" if otherwise == "deny" else "ask"
        why = f"no rule speaks of {_named(tool)}, and approval.default says {how}"
        return _stricter(least, PolicyVerdict(how, why))

    return policy


def _stricter(one: PolicyVerdict, other: PolicyVerdict) -> PolicyVerdict:
    return one if _STRICTNESS[one.verdict] >= _STRICTNESS[other.verdict] and one is not ALLOW else other


def policy_named(setting: ApprovalSetting) -> Policy:
    """The policy of an approval setting."""
    if isinstance(setting, dict) and "all" in setting:
        return strictest([policy_named(part) for part in approval_parts(setting)])
    if isinstance(setting, dict):
        otherwise = str(setting.get("default") or "read_only")
        return ruled(_rules(setting), otherwise)
    return allow_all if setting == "allow_all" else default_policy


def approval_parts(setting: ApprovalSetting) -> list[ApprovalSetting]:
    """The settings that an approval setting is made of: those under `all`, else itself."""
    if isinstance(setting, dict) and "all" in setting:
        return cast("list[ApprovalSetting]", setting["all"])
    return [setting]


def strictest(policies: Sequence[Policy]) -> Policy:
    """The policy with the strictest verdict of several; of equally strict ones, the first."""

    def policy(tool: Tool, call: JSONObject) -> PolicyVerdict:
        return max((one(tool, call) for one in policies), key=lambda verdict: _STRICTNESS[verdict.verdict])

    return policy


def direct_policy(setting: ApprovalSetting, name: str) -> Policy:
    """The policy of direct calls of an exposed tool: what the configuration's rules say of it, and `default` where that
    is `ask` or `deny`. For all other calls the host asks its user, or not.

    Args:
        setting: the configuration's `approval`.
        name: what the tool is exposed as.
    """
    if not isinstance(setting, dict):
        return allow_all
    if "all" in setting:
        return strictest([direct_policy(part, name) for part in approval_parts(setting)])
    otherwise = str(setting.get("default") or "read_only")
    return ruled(_rules(setting), "allow" if otherwise == "read_only" else otherwise, also=name)


def _rules(setting: JSONObject) -> list[Rule]:
    return [Rule.from_json(rule) for rule in cast("list[JSONObject]", setting.get("rules") or [])]


def approval_timeout(setting: ApprovalSetting) -> float | None:
    """Seconds after which an undecided call is denied; None: never."""
    found: list[float] = []
    for part in approval_parts(setting):
        seconds: JSON = part.get("timeout_seconds") if isinstance(part, dict) else None
        if isinstance(seconds, int | float) and not isinstance(seconds, bool):
            found.append(float(seconds))
    return min(found, default=None)


def only_persons(setting: ApprovalSetting) -> bool:
    """Whether the assistant may decide nothing, in no session."""
    return any(isinstance(part, dict) and part.get("by") == "person" for part in approval_parts(setting))


def _named(tool: Tool) -> str:
    return f"tool {tool.name!r}{f' of module {tool.module!r}' if tool.module else ''}"
