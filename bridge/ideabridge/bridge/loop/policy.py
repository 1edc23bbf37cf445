"""Decide whether a resolved call runs, asks a person, or is refused.

A policy is built from the settings of a run. The journal contains the settings, so folding the
journal repeats the verdicts.

A restricting rule (`ask`, `deny`) matches every name of its tool, regardless of the case and width
of the letters; see `ideabridge.tools.names.known_as`. An allowing rule matches only the exact name.
A restricting rule that matches only another form of the name can make the verdict stricter, but
never more lenient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, cast

from ideabridge.bridge.context.reader import is_reader
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import folded, known_as
from ideabridge.tools.tool import Annotations, Tool
from ideabridge.tools.toolbox import Toolbox
from ideabridge.tools.typed import read_as

Then: TypeAlias = Literal["allow", "ask", "deny"]

ApprovalSetting: TypeAlias = "str | JSONObject"
"""`default`, `allow_all`, an object of rules as in the configuration's `approval`, or `{"all":
[...]}` with several of these settings. For each call, the strictest of these settings decides. An
object of rules can contain `embedded`; see `embedded_tools`.
"""


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """A policy's verdict on a call, and the reason for it."""

    verdict: Then
    why: str = ""


Policy: TypeAlias = Callable[[Tool, JSONObject], PolicyVerdict]
"""A pure function of the tool and the resolved call, so equal calls get equal verdicts."""

ALLOW = PolicyVerdict("allow")
_STRICTNESS: Final[dict[Then, int]] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. It matches a call if all members that are set match.

    Attributes:
        then: the verdict on a call that matches.
        module: pattern of server names (`*`, `?`, `[abc]`); "" matches tools without a server.
        tool: pattern of tool names, either as calls write them or as the server does.
        read_only, destructive, idempotent, open_world: the effective annotations; see
            `effective_hints`.
        why: the reason shown to the person who is asked, or to the mind whose call is denied.
    """

    then: Then
    module: str | None = None
    tool: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    why: str | None = None

    def matches(self, tool: Tool) -> bool:
        """Return whether the rule, as written, matches the tool.

        An allowing rule without a server matches only the name that calls use, because other
        servers might have a tool with the same name.
        """
        names = [tool.name]
        allows_in_any_module = self.then == "allow" and self.module is None
        if tool.remote_name is not None and not allows_in_any_module:
            names.append(tool.remote_name)
        return self._fits(tool, tool.module, names, self.module, self.tool)

    def matches_folded(self, tool: Tool, also: str = "") -> bool:
        """Return whether the rule matches one of the tool's names, ignoring case and width.

        Args:
            tool: the tool.
            also: another name for the tool, such as its exposed name.
        """
        names = list(known_as(tool.name, tool.remote_name, tool.module))
        if also:
            names.append(folded(also))

        module = _folded(tool.module)
        return self._fits(tool, module, names, _folded(self.module), _folded(self.tool))

    def _fits(
        self,
        tool: Tool,
        module: str | None,
        names: list[str],
        module_pattern: str | None,
        pattern: str | None,
    ) -> bool:
        if module_pattern is not None and not _is_module(module, module_pattern):
            return False
        if pattern is not None and not any(fnmatchcase(name, pattern) for name in names):
            return False

        hints = effective_hints(tool.annotations)
        expected_hints = (self.read_only, self.destructive, self.idempotent, self.open_world)
        for expected, hint in zip(expected_hints, hints, strict=True):
            if expected is not None and expected != hint:
                return False

        return True

    @classmethod
    def from_json(cls, value: JSONObject) -> Rule:
        """Read a rule from the configuration or from the settings of a run."""
        names = [member.name for member in fields(cls)]
        members: dict[str, Any] = {name: value[name] for name in names if name in value}
        return cls(**members)


def _folded(text: str | None) -> str | None:
    if text is None:
        return None
    return folded(text)


def _is_module(module: str | None, pattern: str) -> bool:
    # "*" matches every server, but only "" matches a tool that has no server.
    if module is None:
        return pattern == ""
    return fnmatchcase(module, pattern)


def effective_hints(annotations: Annotations) -> tuple[bool, bool, bool, bool]:
    """Return the read-only, destructive, idempotent and open-world hints, with MCP's defaults: not
    read-only, destructive, not idempotent, open world. A read-only tool counts as idempotent and
    not destructive.
    """
    open_world = annotations.open_world is not False
    if annotations.read_only is True:
        return True, False, True, open_world

    destructive = annotations.destructive is not False
    idempotent = annotations.idempotent is True
    return False, destructive, idempotent, open_world


DESTRUCTIVE: Final = "declares that it is destructive"
CHANGING: Final = "declares that it changes things"
UNDECLARED: Final = "does not declare that it is read-only"
"""Why the default policy asks about a tool, to be appended to its name: the tool declares that it
overwrites or deletes, that it changes something, or neither.
"""


def allow_all(tool: Tool, call: JSONObject) -> PolicyVerdict:
    """Allow every call."""
    return ALLOW


def default_policy(tool: Tool, call: JSONObject) -> PolicyVerdict:
    """Allow calls to read-only tools, and calls that open a room, because the room's own calls are
    checked separately. Ask about every other call.
    """
    if tool.annotations.read_only is True or tool.in_room:
        return ALLOW
    if tool.annotations.destructive is True:
        return PolicyVerdict("ask", f"{named_tool(tool)} {DESTRUCTIVE}")
    if tool.annotations.read_only is False:
        return PolicyVerdict("ask", f"{named_tool(tool)} {CHANGING}")
    return PolicyVerdict("ask", f"{named_tool(tool)} {UNDECLARED}")


def embedded_tools(toolbox: Toolbox) -> dict[str, tuple[str, str]]:
    """Return the tools whose code is in the same toolbox and whose calls would ask a person.

    The result maps the name of each tool to the digest of its definition and the name of its
    activity.
    """
    embedded: dict[str, tuple[str, str]] = {}
    for tool in toolbox:
        activity = activity_of(tool)
        if activity in toolbox.activities and tool.annotations.read_only is not True:
            embedded[tool.name] = (tool.digest, activity)

    return embedded


def activity_of(tool: Tool, call: JSONObject | None = None) -> str:
    """Return the name of the activity that runs calls to a Python tool."""
    if call is not None:
        named = call.get("_activity")
        if isinstance(named, str):
            return named

    return tool.activity or tool.name


def ruled(
    rules: Sequence[Rule],
    otherwise: str,
    *,
    also: str = "",
    embedded: Mapping[str, JSON] | None = None,
) -> Policy:
    """Return a policy in which the first matching rule decides.

    Args:
        rules: the rules.
        otherwise: the verdict if no rule matches: `allow`, `ask`, `deny`, or `read_only` (the
            default policy).
        also: see `Rule.matches_folded`.
        embedded: further tools that run without a question if `otherwise` is `read_only`; see
            `embedded_tools`.
    """
    handed_over = embedded or {}

    def policy(tool: Tool, call: JSONObject) -> PolicyVerdict:
        least = ALLOW
        for number, rule in enumerate(rules):
            is_exact = rule.matches(tool)
            if rule.then == "allow":
                if is_exact:
                    return least
                # A rule that allows matches only the exact name.
                continue

            if not is_exact and not rule.matches_folded(tool, also):
                continue

            reason = rule.why or f"approval.rules[{number}] says {rule.then} for {named_tool(tool)}"
            least = _stricter(least, PolicyVerdict(rule.then, reason))
            if is_exact:
                return least
            # The rule matches only an alternative name of the tool, so keep looking: a later rule
            # might be stricter.

        if otherwise == "read_only":
            # The same name is not enough, because a tool from a file or a context can have it, too.
            # The definition and the code must also be the same.
            is_embedded = handed_over.get(tool.name) == [tool.digest, activity_of(tool, call)]
            if tool.module is None and is_embedded:
                return least
            return _stricter(least, default_policy(tool, call))

        if otherwise == "allow":
            return least

        how: Then = "deny" if otherwise == "deny" else "ask"
        reason = f"no rule matches {named_tool(tool)}, and approval.default says {how}"
        return _stricter(least, PolicyVerdict(how, reason))

    return policy


def judge(policy: Policy, tools: Iterable[Tool], call: JSONObject) -> PolicyVerdict:
    """Return the strictest verdict on a call. If its tool runs another tool's code, the rules for
    both apply.

    Args:
        policy: the policy.
        tools: the tool that the call names, and the tools whose code runs.
        call: the call with its references resolved.
    """
    verdicts = [policy(tool, call) for tool in tools]
    if len(verdicts) == 1:
        # Return early, because almost every call has a single verdict.
        return verdicts[0]
    return _strictest(verdicts)


def _strictest(verdicts: Iterable[PolicyVerdict]) -> PolicyVerdict:
    return max(verdicts, key=lambda verdict: _STRICTNESS[verdict.verdict])


def _stricter(first: PolicyVerdict, second: PolicyVerdict) -> PolicyVerdict:
    if _STRICTNESS[first.verdict] >= _STRICTNESS[second.verdict] and first is not ALLOW:
        return first
    return second


def policy_named(setting: ApprovalSetting) -> Policy:
    """Return the policy of an approval setting for calls in runs.

    Calls to the tool that reads shortened values never ask, because a Request could have shown the
    same values in full.
    """
    policy = _policy_of(setting, default_policy, "read_only")

    def except_reader(tool: Tool, call: JSONObject) -> PolicyVerdict:
        if is_reader(tool):
            return ALLOW
        return policy(tool, call)

    return except_reader


def direct_policy(setting: ApprovalSetting, name: str) -> Policy:
    """Return the policy of an approval setting for direct calls to an exposed tool.

    The setting's rules apply. Its `default` also applies if it is `ask` or `deny`. All other calls
    run, because the host decides whether to ask its user. However, if only persons are allowed to
    decide, a question from the host does not count, and calls ask as they would in a run.

    Args:
        setting: the configuration's `approval`.
        name: the exposed name of the tool.
    """
    otherwise = "read_only" if only_persons(setting) else "allow"
    return _policy_of(setting, allow_all, otherwise, also=name)


def _policy_of(setting: ApprovalSetting, default: Policy, otherwise: str, also: str = "") -> Policy:
    if setting == "allow_all":
        return allow_all
    if not isinstance(setting, dict):
        return default

    if "all" not in setting:
        part = read_as(_Approval, setting)
        if part.default != "read_only":
            otherwise = part.default
        rules = [Rule.from_json(rule) for rule in part.rules]
        return ruled(rules, otherwise, also=also, embedded=part.embedded)

    policies = [_policy_of(part, default, otherwise, also) for part in approval_parts(setting)]

    def strictest(tool: Tool, call: JSONObject) -> PolicyVerdict:
        return _strictest(policy(tool, call) for policy in policies)

    return strictest


@dataclass(frozen=True, slots=True)
class _Approval:
    """A part of an approval setting that is an object, already checked with the configuration.

    Attributes:
        rules: see `Rule.from_json`.
        default: the verdict if no rule matches.
        embedded: see `embedded_tools`.
        timeout_seconds: see `approval_timeout`.
        by: "person" if only persons are allowed to decide.
    """

    rules: tuple[JSONObject, ...] = ()
    default: str = "read_only"
    embedded: JSONObject | None = None
    timeout_seconds: float | None = None
    by: str | None = None


def approval_parts(setting: ApprovalSetting) -> list[ApprovalSetting]:
    """Return the parts of an approval setting: the items of `all` or, if there is none, the setting
    itself.
    """
    if isinstance(setting, dict) and "all" in setting:
        return list(cast("list[ApprovalSetting]", setting["all"]))
    return [setting]


def strictest_of(setting: ApprovalSetting, other: ApprovalSetting) -> ApprovalSetting:
    """Return an approval setting that gives each call the stricter verdict of the two settings."""
    parts = approval_parts(setting)
    parts += [part for part in approval_parts(other) if part not in parts]
    if len(parts) == 1:
        return parts[0]
    return {"all": cast("list[JSON]", parts)}


def allows_by_name(setting: ApprovalSetting) -> bool:
    """Return whether a rule allows tools by name, regardless of their server."""
    for part in approval_parts(setting):
        for rule in read_as(_Approval, part).rules:
            if rule.get("then") == "allow" and rule.get("module") is None and "tool" in rule:
                return True

    return False


def approval_timeout(setting: ApprovalSetting) -> float | None:
    """Return the number of seconds after which an undecided call is denied, or None for no
    limit.
    """
    parts = [read_as(_Approval, part) for part in approval_parts(setting)]
    timeouts = [part.timeout_seconds for part in parts if part.timeout_seconds is not None]
    return min(map(float, timeouts), default=None)


def only_persons(setting: ApprovalSetting) -> bool:
    """Return whether only persons, and never a session's assistant, are allowed to decide."""
    return any(read_as(_Approval, part).by == "person" for part in approval_parts(setting))


def named_tool(tool: Tool) -> str:
    """Return the name of a tool as used in the reasons for verdicts."""
    if tool.module:
        return f"tool {tool.name!r} of server {tool.module!r}"
    return f"tool {tool.name!r}"
