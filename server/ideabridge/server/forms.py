"""Forms: what a person at the client is shown and fills in, for what waits for a decision or an answer (DESIGN 4.6)."""

from __future__ import annotations

import json
from typing import Any, Final

import mcp_types as types

from ideabridge.bridge.approver import ApprovalRequest
from ideabridge.bridge.loop.question import Kind
from ideabridge.tools.encoding import JSON

_VALUE: Final = 500
_MESSAGE: Final = 6000


def _form(title: str, meaning: str, choices: list[Any], more: dict[str, Any]) -> types.ElicitRequestedSchema:
    decision = {"type": "string", "title": title, "description": meaning, "enum": choices}
    reason = {"type": "string", "title": "Reason", "description": "Told to the assistant. May be left out."}
    return {"type": "object", "properties": {"decision": decision, **more, "reason": reason}, "required": ["decision"]}


_RESULT: Final = {"type": "string", "title": "Result", "description": "For value: JSON, or else taken as text."}

_FORMS: Final[dict[Kind, types.ElicitRequestedSchema]] = {
    "call": _form("Run this call?", "approve: it runs. deny: it does not.", ["approve", "deny"], {}),
    "plan": _form("Run this plan?", "approve: it runs. deny: nothing of it does.", ["approve", "deny"], {}),
    "outcome": _form(
        "What came of this call?",
        "retry: run it again. skip: it fails as unknown. value: it worked, and this is its result.",
        ["retry", "skip", "value"],
        {"value": _RESULT},
    ),
}
"""What a person fills in, by what is asked."""


def form_of(request: ApprovalRequest) -> types.ElicitRequestedSchema:
    """What a person fills in: a module's own form where it asks."""
    schema = request.question["schema"] if request.question is not None else None
    return dict[str, Any](schema) if isinstance(schema, dict) else _FORMS[request.kind]


def message(request: ApprovalRequest, fault: str | None = None) -> str:
    """What a form says: the tool, its module, the resolved parameters, and why it asks. Values are shown as JSON, one
    to a line and shortened, so that none can pass for a part of the form.

    Args:
        request: what it asks about.
        fault: why the last answer was not taken, where there was one.
    """
    lines = [_headline(request), *([f"The last answer was not taken: {clipped(fault)}"] if fault else []), ""]
    left = _MESSAGE
    shown = {key: value for key, value in request.call.items() if key not in ("_tool", "_module")}
    if request.question is not None:
        # Each line is marked, so that none can pass for a word of ours.
        lines += [f"  | {_plain(line)}" for line in str(request.question["message"]).split("\n")]
        lines += ["", "It is asked by the call:"]
    if request.plan is not None:
        # A drawing has each name and value shortened, and nothing a terminal would obey.
        drawing = str(request.plan["drawing"])
        lines.append(drawing if len(drawing) <= left else f"{drawing[:left]}... (shortened)")
    for number, (key, value) in enumerate(shown.items()):
        line = f"  {_plain(key)}: {_value(value)}"
        left -= len(line)
        if left < 0:
            lines.append(f"  ... and {len(shown) - number} more, not shown here")
            break
        lines.append(line)
    why = [] if request.question is not None else [f"Why it asks: {_plain(request.why)}"]
    lines += ["", *why, f"Run {request.run}, approval {request.approval}."]
    return "\n".join(lines)


def _headline(request: ApprovalRequest) -> str:
    if request.kind == "plan":
        return "Run this plan?"
    tool = request.tool
    named = _plain(tool.name) if tool is not None else "it"
    if tool is not None and tool.module:
        named += f" of module {_plain(tool.module)}"
    if request.question is not None:
        return f"Module {_plain(str(request.question['module']))} asks, while it runs {named} (these are its words):"
    return f"What came of {named}?" if request.kind == "outcome" else f"Run {named}?"


def _value(value: JSON) -> str:
    return clipped(json.dumps(value, ensure_ascii=False))


def clipped(text: str) -> str:
    """A text in one line, shortened where it is long."""
    text = _plain(text)
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}... (shortened; {len(text):,} characters)"


def _plain(text: str) -> str:
    """`text` without what a terminal or a form could take for more than letters: control and direction marks."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)
