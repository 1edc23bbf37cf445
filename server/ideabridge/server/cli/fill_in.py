"""Fill in: a person at the terminal answers what a module asks, or gives the input of a tool, field by field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ideabridge.server.cli.console import say
from ideabridge.server.cli.inputs import value_of
from ideabridge.server.cli.typed import line
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.visible import visible

if TYPE_CHECKING:
    from ideabridge.bridge.people import Decision

_YES: Final = ("y", "yes", "true")
_NO: Final = ("n", "no", "false")

_NESTED: Final = ("array", "object")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


async def ask_form(question: JSONObject, call: JSON) -> Decision:
    """What the person says to a module's question.

    Args:
        question: `{"module", "message", "schema"}`.
        call: the call that asks.
    """
    from ideabridge.bridge.people import Decision

    say(f"? module {question.get('module')} asks, in its own words:", "bold yellow")
    for text in str(question.get("message")).split("\n"):
        say(f"  | {visible(text)}")
    say("  what you fill in goes to the module; do not write a password or a token into it")
    say(f"  while it runs {visible(json.dumps(call, ensure_ascii=False))}")
    while True:
        answer = await line("  answer it? y(es), n(o) [reason], s(kip): ")
        if answer is None:
            return Decision("skip", reason="nobody answered at the terminal")
        word, _, reason = answer.strip().partition(" ")
        if word.lower() in ("n", "no"):
            return Decision("deny", reason=reason.strip() or None)
        if word.lower() in ("s", "skip"):
            return Decision("skip")
        if word.lower() in ("y", "yes"):
            content = await _fields(question.get("schema"))
            if content is not None:
                return Decision("value", value=content)
        say("  y fills in its form, n (and a reason) tells it no, s tells it nothing")


async def ask_input(schema: JSONObject, given: JSONObject) -> JSONObject | None:
    """Ask the person for the input of a tool: what it requires, and then what may be left out.

    Args:
        schema: JSON Schema of the input.
        given: what is there already.

    Returns:
        The input with what was given, or None where the person stopped.
    """
    fields = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    asked = {name: field for name, field in (fields if isinstance(fields, dict) else {}).items() if name not in given}
    found = dict(given)
    for name, field in sorted(asked.items(), key=lambda one: one[0] not in needed):
        told = field if isinstance(field, dict) else {}
        while True:
            typed = await line(f"  {_named(name, told)}{'' if name in needed else ' (may be left out)'}: ")
            if typed is None:
                return None
            text = typed.strip()
            if not text and name not in needed:
                break
            value = text if told.get("type") == "string" else value_of(text)
            if text and _is(value, told.get("type")):
                found[name] = value
                break
            say(
                f"  expected {told.get('type', 'a value')}{', as JSON' if told.get('type') in _NESTED else ''}",
                "yellow",
            )
    return found


def _is(value: JSON, kind: JSON) -> bool:
    """Whether a value is of a JSON type; of a kind that is not one, nothing is said."""
    expected = _TYPES.get(kind) if isinstance(kind, str) else None
    return expected is None or (isinstance(value, expected) and (kind == "boolean" or not isinstance(value, bool)))


async def _fields(schema: JSON) -> JSONObject | None:
    """What the person fills in; None where they stopped."""
    fields = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    content: JSONObject = {}
    for name, field in (fields if isinstance(fields, dict) else {}).items():
        told = field if isinstance(field, dict) else {}
        needed = isinstance(required, list) and name in required
        typed = await line(f"  | {_named(name, told)}{'' if needed else ' (may be left out)'}: ")
        if typed is None:
            return None
        text = typed.strip()
        if text:
            content[name] = _value(text, told)
        elif "default" in told:
            content[name] = told["default"]
    return content


def _named(name: str, field: JSONObject) -> str:
    told = [str(field.get("title") or name)]
    if isinstance(field.get("description"), str):
        told.append(f"- {field['description']}")
    items = field.get("items")
    choices = _choices(items if isinstance(items, dict) else field)
    if choices:
        told.append(f"[{' | '.join(choices)}]" + (", several with commas" if isinstance(items, dict) else ""))
    elif field.get("type") not in (None, "string"):
        told.append(f"({field['type']})")
    if "default" in field:
        told.append(f"(default {json.dumps(field['default'], ensure_ascii=False)})")
    # One line, whatever the module wrote: none of it can pass for a line of ours.
    return visible(" ".join(" ".join(told).split()))


def _choices(field: JSONObject) -> list[str]:
    values = field.get("enum")
    found: list[JSON] = list(values) if isinstance(values, list) else []
    for key in ("oneOf", "anyOf"):
        alternatives = field.get(key)
        for one in alternatives if isinstance(alternatives, list) else []:
            if isinstance(one, dict) and "const" in one:
                found.append(one["const"])
    return [str(one) for one in found]


def _value(text: str, field: JSONObject) -> JSON:
    kind = field.get("type")
    if kind == "array":
        return [one.strip() for one in text.split(",") if one.strip()]
    if kind == "boolean":
        return text.lower() in _YES if text.lower() in (*_YES, *_NO) else text
    if kind in ("number", "integer"):
        return value_of(text)
    return text
