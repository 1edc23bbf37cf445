"""Show whether and why calls of a tool ask a person first, and let a visitor change this.

With a standing rule, a visitor lets a tool run without asking, as if they had answered *always* to
one of its calls. The form that gives such a rule must contain the seal of exactly what the rule
would cover: the tool as its server defines it, the way the server starts, the workspace and the
caller. Therefore, the form cannot allow a tool that has changed since the page was shown.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import quote

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.errors import DecisionError
from ideabridge.bridge.loop.policy import (
    UNDECLARED,
    Policy,
    PolicyVerdict,
    named_tool,
    policy_named,
)
from ideabridge.bridge.loop.standing import coverable
from ideabridge.bridge.standing_rules import StandingRule
from ideabridge.server.ui.access import Visitor
from ideabridge.server.ui.approvals import DECLARED, ONLY_ADDS, reason_in_words
from ideabridge.server.ui.server_forms import is_read_only_to_server
from ideabridge.server.ui.tool_effects import EFFECTS, declared_effect
from ideabridge.tools.tool import IDEA, Tool

OWN: Final = "tools"
"""The name of the page about in-process tools. No module's page has this name."""

_HINTS: Final = (
    ("readOnlyHint", True, EFFECTS["reads"]),
    ("destructiveHint", True, EFFECTS["deletes"]),
    ("destructiveHint", False, EFFECTS["adds"]),
    ("idempotentHint", True, "can be repeated"),
    ("openWorldHint", True, "reaches other systems"),
)
"""The tool hints that a page names: the annotation, its value, and the words for people. Hints are
the server's own claims, so the words stand under or after "The server says".
"""

_UNDECLARED: Final = "The server does not say whether it changes anything"

_TRUSTED: Final = {
    "server": "The server says that it only reads",
    "settings": "Your settings say that it only reads",
}

_REPEATED: Final = frozenset({*DECLARED.values(), ONLY_ADDS, _TRUSTED["server"], _UNDECLARED})
"""The reasons that only repeat what a server says about its tool."""


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool, with the rule that applies when a plan calls it.

    Attributes:
        tool: the tool.
        page: the path of the tool's page; see `page_of`.
        verdict: `allow`, `ask` or `deny`.
        reason: the reason for the verdict, as a sentence without a full stop, or "" if it need not
            be shown.
        hints: the hints that the server gives about the tool, in words.
        trusts: `server` or `settings` if the tool runs without asking only because its server, or a
            person's settings, say that it is read-only, otherwise "".
        follows_server: whether the tool, which its server calls read-only, would run without asking
            if a person's settings did not say that it changes something.
        allowed_by: the visitor's standing rule that lets the tool run without asking, or None if
            there is none or the tool never asks anyway.
        can_be_allowed: whether the visitor can give a standing rule that lets the tool run without
            asking.
    """

    tool: Tool
    page: str
    verdict: str
    reason: str
    hints: list[str]
    trusts: Literal["server", "settings", ""]
    follows_server: bool
    allowed_by: StandingRule | None
    can_be_allowed: bool

    @property
    def claim(self) -> str:
        """What the server, or a tool without a server, says about the tool's changes, in a few
        words, or "". A person's settings do not affect this.
        """
        effect = declared_effect((self.tool.passes_to or self.tool).annotations)
        return "" if effect is None else EFFECTS[effect]

    @property
    def further_reason(self) -> str:
        """The reason for the verdict, or "" if it merely repeats the server's claim."""
        return "" if self.tool.module and self.reason in _REPEATED else self.reason

    @property
    def further_hints(self) -> list[str]:
        """The hints, except the one that `reason` repeats."""
        return [hint for hint in self.hints if not self.reason.endswith(hint)]


@dataclass(frozen=True, slots=True)
class OfferedRule:
    """A standing rule that a visitor can give on a page.

    Attributes:
        rule: the rule, which is not stored yet.
        seal: proves that the page showed what the rule covers; see `seal_of_rule`.
    """

    rule: StandingRule
    seal: str


def page_of(bridge: Bridge, tool: Tool) -> str:
    """Return the path of the page with the form that calls a tool, relative to the path of all
    pages, or "" if the tool has no page.
    """
    if tool.module is None:
        # If a server has this name, the pages below this path are its own.
        if OWN in bridge.modules:
            return ""
        return f"modules/{OWN}/tools/{quote(tool.name, safe='')}"

    if tool.module.startswith(IDEA):
        name, _, _ = tool.module.removeprefix(IDEA).partition("@")
        return f"ideas/{quote(name, safe='')}"
    return f"modules/{quote(tool.module, safe='')}/tools/{quote(tool.name, safe='')}"


def tool_row(bridge: Bridge, tool: Tool, visitor: Visitor) -> ToolRow:
    """Return the row for a tool, with the rule that applies to the visitor's calls of it."""
    decide = policy_named(bridge.configuration.approval_setting)
    verdict = decide(tool, {})
    annotations = tool.annotations.to_json()
    hints = [words for key, value, words in _HINTS if annotations.get(key) is value]
    chosen = _chosen_read_only(bridge, tool)
    trusts = _trusted(tool, verdict, decide, chosen=chosen)
    rules = bridge.standing_rules
    covered = coverable(tool)
    allowed_by: StandingRule | None = None
    can_be_allowed = False
    if verdict.verdict == "ask" and rules is not None and covered is not None:
        allowed_by = rules.covering(visitor.caller, covered)
        can_be_allowed = allowed_by is None and rules.can_bind(covered)

    return ToolRow(
        tool,
        page_of(bridge, tool),
        "allow" if allowed_by is not None else verdict.verdict,
        "" if allowed_by is not None else _reason(tool, verdict, trusts),
        hints,
        trusts,
        chosen is False and verdict.verdict == "ask" and is_read_only_to_server(tool),
        allowed_by,
        can_be_allowed,
    )


def _chosen_read_only(bridge: Bridge, tool: Tool) -> bool | None:
    """Return whether a person's settings say that a tool is read-only, or None if they do not
    say.
    """
    if tool.module is None or tool.module not in bridge.modules:
        return None
    settings = bridge.modules[tool.module].configuration.tools.get(tool.name_in_module)
    return None if settings is None else settings.read_only


def _trusted(
    tool: Tool,
    verdict: PolicyVerdict,
    decide: Policy,
    *,
    chosen: bool | None,
) -> Literal["server", "settings", ""]:
    """Return who is trusted about a tool; see `ToolRow.trusts`."""
    if tool.module is None or tool.annotations.read_only is not True:
        return ""

    changing = replace(tool, annotations=replace(tool.annotations, read_only=False))
    if verdict.verdict != "allow" or decide(changing, {}).verdict != "ask":
        return ""
    return "server" if chosen is None else "settings"


def _reason(tool: Tool, verdict: PolicyVerdict, trusts: Literal["server", "settings", ""]) -> str:
    """Return the reason for a verdict about a tool in plain words; see `ToolRow.reason`."""
    if trusts:
        return _TRUSTED[trusts]
    if verdict.why == f"{named_tool(tool)} {UNDECLARED}":
        if tool.module:
            return _UNDECLARED
        return "The tool does not say whether it changes anything"
    if verdict.why:
        return reason_in_words(verdict.why, tool)
    if tool.module is not None and verdict.verdict == "allow":
        return "Your settings allow it"
    return ""


def offered_rule(bridge: Bridge, tool: Tool, visitor: Visitor) -> OfferedRule | None:
    """Return the standing rule with which a visitor can let a tool run without asking, or None if
    no such rule is possible. This function blocks, because it reads the rules.

    Raises:
        StandingRuleError, StoreError: the visitor's rules cannot be read, or there are too many.
    """
    rules = bridge.standing_rules
    covered = coverable(tool)
    if rules is None or covered is None or not visitor.may_change:
        return None
    if not tool_row(bridge, tool, visitor).can_be_allowed:
        return None

    rule = rules.rule_for(visitor.caller, covered, visitor.decider)
    return OfferedRule(rule, seal_of_rule(rule, visitor))


def seal_of_rule(rule: StandingRule, visitor: Visitor) -> str:
    """Return the string that proves, as part of a form, that the page showed what a rule covers."""
    message = f"always {rule.covered}".encode()
    return hmac.new(visitor.secret.encode(), message, hashlib.sha256).hexdigest()


def give_offered(bridge: Bridge, tool: Tool, visitor: Visitor, seal: str) -> StandingRule:
    """Let a visitor's calls of a tool run without asking. This function blocks.

    Args:
        bridge: the bridge.
        tool: the tool as currently listed by its server.
        visitor: the visitor.
        seal: the seal from the form; see `OfferedRule`.

    Raises:
        DecisionError: the tool cannot be allowed, or is not what the page showed.
        StandingRuleError, StoreError: the rules cannot be changed.
    """
    offered = offered_rule(bridge, tool, visitor)
    rules = bridge.standing_rules
    if offered is None or rules is None:
        raise DecisionError(f"{tool.label} cannot be allowed always here")
    if not hmac.compare_digest(seal.encode(), offered.seal.encode()):
        raise DecisionError(
            f"{tool.label}, or the way its server starts, has changed since this page was shown: "
            "review it again"
        )

    rules.give(offered.rule)
    return offered.rule
