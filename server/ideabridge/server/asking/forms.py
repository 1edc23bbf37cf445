"""Forms: what a person at the client is shown and fills in, for what waits for a decision or an answer.

What a person approves they have been shown whole: a call or a plan that does not fit into a form cannot be approved in
it. Texts from outside stand behind a mark on each line, so that none can pass for a word of ours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types

from ideabridge.bridge.loop.question import REFUSALS
from ideabridge.bridge.runs.people import ApprovalRequest
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import visible, wrap_visible

_CHARACTERS: Final = 6000
"""Of a call or a plan, as it is shown whole."""

_LINES: Final = 120
_WIDTH: Final = 80
"""Columns of a line."""

_NAME_BESIDE: Final = 40
"""Characters of a name that its value begins beside."""

_NAME_SHOWN: Final = 100
_PART: Final = 200
"""Characters of the beginning, and of the end, of a value that is not shown whole."""

_DRAWING: Final = 3000
"""Characters of the drawing of a plan, which helps to read it and is not what is approved."""

_NAMED: Final = 12
"""Values that are named where not all are shown whole."""

_FAULT: Final = 500
_WHY: Final = 1000
_TITLE: Final = 100
_DESCRIPTION: Final = 500

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_LINE_END: Final = re.compile(r"(?<!\\)(?:\\\\)*\\n")
"""An escaped line end within a JSON text."""

_MARK: Final = "  | "


@dataclass(frozen=True, slots=True)
class Commands:
    """What a person writes at a terminal, with the options under which it finds the runs of this server."""

    show: str = "ideabridge approvals list"
    decide: str = "ideabridge approvals decide"
    publish: str = "ideabridge ideas publish"


COMMANDS: Final = Commands()


# -- what is filled in -------------------------------------------------------------------------------------------

_TITLES: Final = {"call": "Run this call?", "plan": "Run this plan?", "outcome": "What came of this call?"}

_MEANINGS: Final[dict[str, dict[str, str]]] = {
    "call": {"approve": "it runs", "deny": "it does not"},
    "plan": {"approve": "it runs", "deny": "nothing of it does"},
    "outcome": {
        "retry": "run it again",
        "skip": "it fails as unknown",
        "value": "it worked, and this is its result",
    },
}


def form_of(request: ApprovalRequest) -> types.ElicitRequestedSchema:
    """What a person fills in: a module's own form where it asks, with its words marked as such; else a decision, which
    is a refusal where the call could not be shown whole.
    """
    if request.question is not None:
        return _of_module(request.question)
    meanings = _MEANINGS[request.kind]
    if not _shown(request)[1]:
        meanings = {REFUSALS[request.kind]: meanings[REFUSALS[request.kind]]}
    told = " ".join(f"{choice}: {meaning}." for choice, meaning in meanings.items())
    decision = {"type": "string", "title": _TITLES[request.kind], "description": told, "enum": [*meanings]}
    properties: dict[str, Any] = {"decision": decision}
    if "value" in meanings:
        properties["value"] = {
            "type": "string",
            "title": "Result",
            "description": "For value: JSON, or else taken as text.",
        }
    properties["reason"] = {
        "type": "string",
        "title": "Reason",
        "description": "Told to the assistant. May be left out.",
    }
    return {"type": "object", "properties": properties, "required": ["decision"]}


def choices_of(request: ApprovalRequest) -> list[str]:
    """What may be chosen in its form; empty for a module's own."""
    if request.question is not None:
        return []
    form: Any = form_of(request)
    return list(form["properties"]["decision"]["enum"])


def _of_module(question: JSONObject) -> types.ElicitRequestedSchema:
    schema, module = question["schema"], str(question["module"])
    form = dict[str, Any](schema) if isinstance(schema, dict) else {}
    fields: Any = form.get("properties", {})
    told = {key: value for key, value in form.items() if key not in ("title", "description", "properties")}
    return {**told, "properties": {name: _field(name, field, module) for name, field in fields.items()}}


def _field(name: str, field: Mapping[str, Any], module: str) -> dict[str, Any]:
    told = _cleaned(field)
    told["title"] = f"[{visible(module)}] {_clipped(str(field.get('title') or name), _TITLE)}"
    if "description" in field:
        told["description"] = f"Module {visible(module)} says: {_clipped(str(field['description']), _DESCRIPTION)}"
    return told


def _cleaned(field: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with its words made visible. Names of fields, and values to choose from, were checked when the module
    asked: they go back as they are.
    """
    told = dict[str, Any]()
    for key, value in field.items():
        if key in ("title", "description"):
            told[key] = _clipped(str(value), _TITLE if key == "title" else _DESCRIPTION)
        elif key == "enumNames":
            told[key] = [_clipped(str(one), _TITLE) for one in value]
        elif key in ("oneOf", "anyOf"):
            told[key] = [_cleaned(one) for one in value]
        elif key == "items":
            told[key] = _cleaned(value)
        else:
            told[key] = value
    return told


def publication_form(
    ref: str, name: str, choices: JSONObject, accepted: list[str], commands: Commands
) -> tuple[str, types.ElicitRequestedSchema]:
    """What a person is asked before an idea is published with choices that an assistant hands in: the message, and the
    form.

    Args:
        ref: the run or idea.
        name: of the tool it becomes.
        choices: as `publish_idea` takes them.
        accepted: what stays as it was in the run, in words.
        commands: what decides at a terminal.
    """
    stays: list[tuple[str, JSON]] = [("stays", one) for one in accepted]
    lines, whole = _lines([*choices.items(), *stays])
    text = [f"Publish {_clipped(ref, _TITLE)} as the tool {name}, with these choices?", "", *lines, ""]
    text.append("The assistant made the choices. Each call of the tool repeats what stays.")
    meanings = {"approve": "it is published so", "deny": "it is not"}
    if not whole:
        del meanings["approve"]
        text += [
            "This is not all of them, so only a refusal is taken here. A terminal shows all of them and decides:",
            f"  {commands.publish} {_clipped(ref, _TITLE)} {name}",
        ]
    told = " ".join(f"{choice}: {meaning}." for choice, meaning in meanings.items())
    decision = {"type": "string", "title": "Publish it so?", "description": told, "enum": [*meanings]}
    return "\n".join(text), {"type": "object", "properties": {"decision": decision}, "required": ["decision"]}


# -- what is shown -----------------------------------------------------------------------------------------------


def message(request: ApprovalRequest, fault: str | None = None, commands: Commands = COMMANDS) -> str:
    """What a form says: the tool, its module, the resolved parameters as JSON, and why it asks. Where they do not fit
    it shows of each long value the beginning, the end, the length and the SHA-256 of its JSON, and names the command
    that shows all of it and decides.

    Args:
        request: what it asks about.
        fault: why the last answer was not taken, where there was one.
        commands: what shows all of it and decides at a terminal.
    """
    lines = [_headline(request), *([f"The last answer was not taken: {clipped(fault)}"] if fault else []), ""]
    if request.question is not None:
        for line in str(request.question["message"]).split("\n"):
            lines += _marked(visible(line))
        lines += [
            "",
            f"What you fill in goes to module {visible(str(request.question['module']))}, and approves nothing here.",
            "Do not write a password or a token into it. It is asked by the call:",
        ]
    shown, whole = _shown(request)
    lines += shown
    if request.plan is not None and whole:
        drawing = str(request.plan["drawing"])
        lines += ["", "In this order (names and values shortened):"]
        for line in drawing[:_DRAWING].rstrip("\n").split("\n"):
            lines += _marked(visible(line))
        lines += [f"{_MARK}... (shortened)"] if len(drawing) > _DRAWING else []
    if not whole and request.question is None:
        word = "retry" if request.kind == "outcome" else "approve"
        lines += [
            "",
            "This is not all of it, so only a refusal is taken here. A terminal shows all of it:",
            f"  {commands.show} {request.run}",
            "and decides:",
            f"  {commands.decide} {word} {request.run}:{request.approval}",
        ]
    why = [] if request.question is not None else [f"Why it asks: {_clipped(request.why, _WHY)}"]
    lines += ["", *why, f"Run {request.run}, approval {request.approval}."]
    return "\n".join(lines)


def _headline(request: ApprovalRequest) -> str:
    if request.kind == "plan":
        return "Run this plan?"
    tool = request.tool
    named = visible(tool.name) if tool is not None else "it"
    if tool is not None and tool.module:
        named += f" of module {visible(tool.module)}"
    if request.question is not None:
        return f"Module {visible(str(request.question['module']))} asks, while it runs {named} (these are its words):"
    return f"What came of {named}?" if request.kind == "outcome" else f"Run {named}?"


def _shown(request: ApprovalRequest) -> tuple[list[str], bool]:
    """The call or plan in lines, and whether that is all of it."""
    return _lines(_values(request))


def _lines(values: Iterable[tuple[str, JSON]]) -> tuple[list[str], bool]:
    texts = [(name, json.dumps(value, ensure_ascii=False)) for name, value in values]
    if sum(len(name) + len(text) for name, text in texts) <= _CHARACTERS:
        lines = [line for name, text in texts for line in _wrapped(name, text)]
        if len(lines) <= _LINES and sum(map(len, lines)) <= 2 * _CHARACTERS:
            return lines, True
    lines = list[str]()
    for name, text in texts[:_NAMED]:
        if len(text) <= 2 * _PART:
            lines += _wrapped(name[:_NAME_SHOWN], text, breaks=False)
            continue
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        lines += _marked(f"{_name(name[:_NAME_SHOWN])}:")
        lines.append(f"{_MARK}  {len(text):,} characters, SHA-256")
        lines.append(f"{_MARK}  {digest}; it begins")
        lines += _wrapped(None, text[:_PART], breaks=False)
        lines.append(f"{_MARK}  and ends")
        lines += _wrapped(None, text[-_PART:], breaks=False)
    if len(texts) > _NAMED:
        lines.append(f"{_MARK}... and {len(texts) - _NAMED:,} more, not shown here")
    return lines, False


def _values(request: ApprovalRequest) -> Iterator[tuple[str, JSON]]:
    """What runs, by name: the parameters of a call; the calls of a plan, and its output."""
    if request.plan is None:
        yield from ((key, value) for key, value in request.call.items() if key not in ("_tool", "_module"))
        return
    calls = request.plan.get("calls")
    for number, call in enumerate(calls if isinstance(calls, list) else []):
        yield f"calls.{number}", call
    yield "output", request.plan.get("output")
    if "instances" in request.plan:
        yield "instances", request.plan["instances"]


def _wrapped(name: str | None, text: str, *, breaks: bool = True) -> Iterator[str]:
    """A value's JSON in lines, each of them marked: broken where it is long, and (`breaks`) where the value breaks."""
    first = f"{_MARK}  "
    if name is not None:
        shown = f"{_name(name)}: "
        if len(shown) <= _NAME_BESIDE and shown.isascii():
            first = f"{_MARK}{shown}"
        else:
            yield from _marked(shown.rstrip())
    begin = 0
    ends = [one.end() for one in _LINE_END.finditer(text)] if breaks else []
    for end in [*(one for one in ends if one < len(text) - 1), len(text)]:
        yield from _marked(visible(text[begin:end]), first)
        first = f"{_MARK}  "
        begin = end


def _marked(text: str, first: str = _MARK) -> Iterator[str]:
    """A visible text in lines of at most `_WIDTH` columns, each with a mark.

    Args:
        text: in one line.
        first: what the first line begins with: the mark, and a short name.
    """
    return wrap_visible(text, _WIDTH, first=first, further=f"{_MARK}  ")


def _name(name: str) -> str:
    return name if _NAME.fullmatch(name) else visible(json.dumps(name, ensure_ascii=False))


def clipped(text: str) -> str:
    """A text in one line, shortened where it is long."""
    return _clipped(text, _FAULT)


def _clipped(text: str, most: int) -> str:
    shown = visible(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[:most]}... (shortened; {len(text):,} characters)"
