"""Compose the results of tool calls (structured content and text), and the schemas that describe
them to hosts.

Some hosts show only the text of a result, so the text contains everything that a reader needs. A
result is built in its wire form, a plain object, which the SDK validates against the protocol
version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

from ideabridge.bridge.context.assumption import assumption_lines
from ideabridge.bridge.context.failure import ErrorEntry, read_failure
from ideabridge.bridge.context.preview import reference_to
from ideabridge.bridge.modules.blocks import Blocks
from ideabridge.server.views.text import shortened_json, skipped_line
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    encode,
    encode_text,
    list_or_empty,
    object_or_empty,
    plain_text,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import SchemaKeywords, map_children
from ideabridge.tools.names import readable_json
from ideabridge.tools.schema import Validator, inline_refs
from ideabridge.tools.typed import read_as

ToolAnswer: TypeAlias = "dict[str, Any]"
"""A `CallToolResult` in its wire form."""

MAX_RESULT: Final = 700_000
"""Limit, in bytes of JSON, on the values in one answer about a run. SDK clients reject events
larger than 1 MiB.
"""

MAX_DIRECT: Final = 900_000
"""Limit, in bytes of JSON, on the content of a direct call's result. The same limit applies
separately to the structured content.
"""

STRUCTURED_META: Final = "ideabridge/structured"
"""The key in `_meta` for an error's structured content that does not satisfy the tool's output
schema."""

_IN_A_RUN: Final = (
    "Call the tool within run_plan with an _outputPath: the result is stored there, and check_run "
    "returns the parts that you need by path."
)
_ENVELOPE: Final = 1000
"""Bytes reserved in a result for everything except its values and blocks."""

_TEXT_VALUE: Final = 16_000
_TEXT_ERRORS: Final = 16_000
"""Limit, in characters, on the errors in the text of an answer. The text says how many errors it
omits; the structured content lists them all."""


def answer(structured: JSONObject, text: str, blocks: Sequence[JSONObject] = ()) -> ToolAnswer:
    """Return a result with structured content, text, and the content blocks in its values (see
    `Blocks.place`).
    """
    content = [{"type": "text", "text": text}, *blocks]
    return {"content": content, "structuredContent": structured, "resultType": "complete"}


def refusal(text: str, structured: JSONObject | None = None) -> ToolAnswer:
    """Return a tool error with this text and optional structured content."""
    result: ToolAnswer = {
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "resultType": "complete",
    }
    if structured is None:
        return result
    return {**result, "structuredContent": structured}


async def without_misfit(result: ToolAnswer, definition: JSONObject) -> ToolAnswer:
    """Move an error's structured content to `_meta` if it does not satisfy the tool's output
    schema.

    The protocol does not apply the output schema to errors, but clients built on the TypeScript SDK
    check errors too. They would discard the whole answer, so nobody would see its text.

    Args:
        result: a tool's answer. It is returned unchanged unless it is an error.
        definition: the tool as the client knows it.
    """
    schema = definition.get("outputSchema")
    if (
        not result.get("isError")
        or "structuredContent" not in result
        or not isinstance(schema, dict)
    ):
        return result

    structured = cast("JSON", result["structuredContent"])
    try:
        await Validator(schema, what="the error").check_apart(structured)
    except IdeabridgeError:
        rest_of_result = {
            key: member for key, member in result.items() if key != "structuredContent"
        }
        meta: dict[str, Any] = rest_of_result.get("_meta") or {}
        return {**rest_of_result, "_meta": {**meta, STRUCTURED_META: structured}}

    return result


async def value_answer(
    value: JSON, *, wrapped: bool, schema: JSONObject | None = None
) -> ToolAnswer:
    """Return the result of a tool that returned `value`, or an error if the value is too large.

    Args:
        value: the value that the tool returned.
        wrapped: whether the output schema describes `{"result": value}` instead of the value
            itself, because the protocol requires an object.
        schema: the schema that clients check the value against. If the value with placeholders does
            not satisfy it, the structured content contains the blocks themselves.
    """
    plain, blocks = _without_blocks(value)
    checked = plain
    if schema is not None and blocks and not await _satisfies(plain, schema):
        checked = value

    if not wrapped and isinstance(checked, dict):
        structured: JSONObject = checked
    else:
        structured = {"result": checked}

    return bounded_answer(answer(structured, plain_text(plain), blocks))


def text_answer(value: JSON) -> ToolAnswer:
    """Return the result of a tool without an output schema: text and content blocks, or an error if
    the value is too large.
    """
    plain, blocks = _without_blocks(value)
    return bounded_answer(
        {
            "content": [{"type": "text", "text": plain_text(plain)}, *blocks],
            "resultType": "complete",
        }
    )


def _without_blocks(value: JSON) -> tuple[JSON, list[JSONObject]]:
    """Return the value with its content blocks replaced by placeholders, and the blocks."""
    blocks = Blocks()
    plain = blocks.take(value)
    if plain is value:
        return value, []
    # The text takes up more bytes than its length, because it is encoded a second time inside JSON.
    room = MAX_DIRECT - 2 * len(encode(plain)) - _ENVELOPE
    return plain, blocks.place(plain, first=1, room=room, otherwise=_IN_A_RUN)


async def _satisfies(value: JSON, schema: JSONObject) -> bool:
    try:
        await Validator(schema, what="the value").check_apart(value)
    except IdeabridgeError:
        return False
    return True


def bounded_answer(result: ToolAnswer) -> ToolAnswer:
    """Return `result` unchanged, or an error if its content or structured content is larger than
    `MAX_DIRECT` bytes.
    """
    content = dict(result)
    parts = {"structured content": content.pop("structuredContent", None), "content": content}
    for part_name, part in parts.items():
        size = size_of(part)
        if size > MAX_DIRECT:
            return refusal(
                f"the {part_name} of the result has {size:,} bytes; the limit of one answer is "
                f"{MAX_DIRECT:,}. {_IN_A_RUN}"
            )

    return result


def size_of(part: JSON | ToolAnswer) -> int:
    """Return the size of a result, or of part of one, in bytes of JSON."""
    return len(encode(cast("JSON", part)))


def fitting(value: JSON, reference: str, left: int) -> JSON:
    """Return `value` if its JSON fits in `left` bytes, and an object with its reference, type, size
    and a preview otherwise.
    """
    size = len(encode(value))
    if size <= left:
        return value

    preview = reference_to(value, ("state",))
    preview["reference"] = reference
    if isinstance(value, dict):
        narrower = f'{reference}["KEY"], keys: {", ".join(list(value)[:20])[:400]}'
    elif isinstance(value, list):
        narrower = f"{reference}.0 to {reference}.{len(value) - 1}"
    else:
        narrower = "a smaller part, which a call of a plan can extract"

    preview["note"] = (
        f"too large for one answer ({size:,} bytes; the limit is {MAX_RESULT:,}); ask for "
        f"{narrower}"
    )
    return preview


def fitting_list(values: list[JSON], most: int) -> list[JSON]:
    """Return the longest prefix of `values` whose JSON fits in `most` bytes. It has at least one
    value.
    """
    size = 0
    for number, value in enumerate(values):
        size += len(encode(value)) + 1
        if size > most and number:
            return values[:number]
    return values


# -- runs ------------------------------------------------------------------------------------------


VALUES: Final = ("output", "state", "results", "read")
"""The members of an answer about a run that contain values. Its errors can also contain values sent
by tools.
"""

_HINTS: Final = {
    "running": 'It continues; check_run {{"run": "{}"}} returns the rest.',
    # The server continues the run once the problem is gone, for example when the store works again.
    "interrupted": (
        "This server does not continue it as long as that reason holds. Afterwards, check_run "
        '{{"run": "{}"}} continues it, or says why it cannot.'
    ),
}


def run_text(result: dict[str, Any]) -> str:
    """Return the answer about a run as text that is complete even without the structured
    content.
    """
    lines = [_with_reason(f"run {result['run']}: {result['status']}", result.get("reason"))]
    mind = result.get("mind")
    if mind is not None:
        lines.append(_with_reason(f"mind: {mind['name']}", mind.get("why")))

    if result["status"] in _HINTS:
        lines.append(_HINTS[result["status"]].format(result["run"]))

    for key in VALUES:
        if key in result and (result[key] or key == "output"):
            lines.append(f"{key}: {_short(result[key])}")

    if "printed" in result:
        lines += ["printed:", *(f"  {line}" for line in result["printed"].splitlines())]

    lines += _call_lines(result)
    for key in ("missing", "saved", "decided", "grants", "notes", "progress"):
        if result.get(key):
            lines.append(f"{key}: {_short(result[key])}")

    lines += _waiting_lines(result)
    for request in result.get("requests", []):
        lines += _request_lines(request, result.get("turn"))

    return "\n".join(lines)


def _with_reason(text: str, reason: str | None) -> str:
    return text if reason is None else f"{text} ({reason})"


def _call_lines(result: dict[str, Any]) -> list[str]:
    """Return lines about failed calls, skipped calls, and the assumptions of calls."""
    lines: list[str] = []
    errors = result["errors"]
    if errors:
        texts = _bounded_lines(
            [f"- {solution_error_line(error)}" for error in errors], _TEXT_ERRORS
        )
        lines += ["errors:", *texts]
        if len(errors) > len(texts):
            lines.append(f"- ... and {len(errors) - len(texts):,} more")

    skipped = result.get("skipped")
    if skipped:
        lines += ["skipped:", *(f"- {skipped_line(call)}" for call in skipped)]
        if "more_skipped" in result:
            lines.append(f"- ... and {result['more_skipped']:,} more")

    for key, title in (("assumed", "assumed:"), ("approved", "assumed, and approved:")):
        if result.get(key):
            lines += [title, *(f"- {line}" for line in assumption_lines(result[key]))]
            if f"more_{key}" in result:
                lines.append(f"- and {result[f'more_{key}']} more")

    return lines


def _waiting_lines(result: dict[str, Any]) -> list[str]:
    """Return lines about the decisions and answers that a run is waiting for."""
    approvals = result.get("approvals")
    if not approvals:
        return []

    lines = [f"waiting for a decision or an answer; {result.get('decides')}:"]
    lines += [f"- {_approval_line(approval)}" for approval in approvals]
    if result.get("more_approvals"):
        lines.append(
            f"- ... and {result['more_approvals']} more, which are shown once these are decided"
        )

    return lines


def _bounded_lines(lines: list[str], most: int) -> list[str]:
    """Return as many of the first lines as fit in `most` characters, but at least one."""
    size = 0
    for number, line in enumerate(lines):
        size += len(line)
        if size > most and number:
            return lines[:number]
    return lines


def solution_error_line(error: JSON) -> str:
    """Return a line about an error of a run: the message, and the place and tool of the call."""
    if not isinstance(error, dict):
        return _short(error)

    entry = read_as(ErrorEntry, error)
    failure = read_failure(entry.error)
    if entry.call is None:
        return failure.message

    where = "" if entry.place is None else f"calls[{entry.place}] "
    if entry.in_solution is not None:
        where = f"calls[{entry.in_solution}], {entry.place} of the run, "

    more = ""
    if failure.sent is not None:
        more = f"\n  The server sent the following, which nobody checked: {_short(failure.sent)}"
    return f"{where}{entry.call.get('_tool')}: {failure.message}{more}"


def _approval_line(approval: dict[str, Any]) -> str:
    choices = approval.get("choices")
    question = approval.get("question")
    plan = approval.get("plan")
    takes = f" ({', '.join(choices)})" if choices is not None else ""
    head = f"{approval['approval']}{takes}"
    if question is not None:
        # Encode the question as JSON, so that no line of its text can pass for a line that
        # ideabridge wrote.
        text = readable_json(question.get("message"), compact=True)
        return (
            f"{head}: server {question.get('module')} asks: {text} (value fits "
            f"{_short(question.get('schema'))})"
        )

    if plan is not None:
        return (
            f"{approval['approval']}: a plan, "
            f"because {approval.get('why')}\n{_short(plan.get('drawing'))}"
        )

    return f"{head}: {_short(approval.get('call'))} because {approval.get('why')}"


def _request_lines(request: dict[str, Any], turn: int | None) -> list[str]:
    lines = [f"turn: {turn}"]
    if "run" in request:
        # The Request is that of a room, which has its own run id and turn.
        lines = [f"request of run: {request['run']}", f"turn: {request['turn']}"]

    lines.append(request["instructions"])
    lines += [f"[{message['role']}] {message['content']}" for message in request["context"]]
    if "schema" in request:
        lines.append(f"schema: {encode_text(request['schema'])}")

    return lines


def _short(value: JSON) -> str:
    if not isinstance(value, str):
        return shortened_json(value, _TEXT_VALUE)
    if len(value) <= _TEXT_VALUE:
        return value
    return f"{value[:_TEXT_VALUE]}... ({len(value):,} characters)"


# -- schemas for hosts -----------------------------------------------------------------------------
#
# Hosts and model APIs reject some forms of JSON Schema, so hosts get schemas in a form that all of
# them accept. Calls are still checked against the exact schema.

PLAIN_HOSTS: Final = (
    "claude",
    "codex",
    "copilot",
    "cursor",
    "gemini",
    "opencode",
    "visual studio",
    "windsurf",
    "zed",
)
"""Hosts whose model APIs reject some schemas. A host is recognised if the name that it sends
contains one of these words.
"""

STRUCTURED_HOSTS: Final = ("codex",)
"""Hosts whose models see only the structured content of a result that has any. A host is recognised
if the name that it sends contains one of these words.
"""

_COMBINING: Final = (
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "enum",
    "const",
    "dependentSchemas",
)
"""Keywords that make model APIs reject the host's whole request if they appear at the top level of
a tool's parameters.
"""

_WAYS: Final = 6

_SHOWN_BYTES: Final = 128 * 1024
_LEFT_OUT: Final = (
    f"its schema has more than {_SHOWN_BYTES:,} bytes and is not shown; an error message "
    "states what was expected"
)

_FLAGS: Final = (
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
)
"""Keywords whose value can be true or false instead of a schema."""

_OF_ARRAYS: Final = (
    *(
        "items",
        "prefixItems",
        "additionalItems",
        "unevaluatedItems",
        "minItems",
        "maxItems",
        "uniqueItems",
    ),
    *("contains", "minContains", "maxContains"),
)
_NAMES: Final = frozenset({"$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})
_ESCAPE: Final = (
    r"\\(?:[dDwWsSbBtnrfv0^$\\.*+?()\[\]{}|/]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[pP]\{[\w=]+\})"
)
_CLASS: Final = rf"\[\^?(?:[^\\\]]|{_ESCAPE}|\\-)*+\]"
_TIMES: Final = r"(?:[*+?]|\{\d+(?:,\d*)?\})?+\??+"
_GROUP: Final = r"\((?:\?(?::|=|!|<=|<!|<[A-Za-z_]\w*>)|(?!\?))"
_ECMA: Final = re.compile(
    rf"(?:(?:{_CLASS}|{_ESCAPE}|[^\\()\[\]{{}}*+?|]|\)){_TIMES}|\||{_GROUP})*+"
)
"""Matches patterns that JavaScript accepts with its `u` flag, provided that they are valid patterns
at all."""

_OF_OBJECTS: Final = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
)
_NOTES: Final = (
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
)


def showable(schema: JSONObject) -> JSONObject:
    """Return an object schema for a list of tools or, if it is too large, a schema that allows any
    object.
    """
    if len(encode(schema)) <= _SHOWN_BYTES:
        return schema
    return {"type": "object", "description": _LEFT_OUT}


def object_output(schema: JSONObject | None) -> tuple[JSONObject | None, bool]:
    """Return the output schema in the form that the protocol requires, and whether values are
    wrapped as `{"result": value}`.
    """
    if schema is None:
        return None, False

    plain = _plain(schema)
    if plain.get("type") == "object":
        return plain, False

    wrapped: JSONObject = {
        "type": "object",
        "properties": {"result": plain},
        "required": ["result"],
        "additionalProperties": False,
    }
    return wrapped, True


def object_input(schema: JSONObject | None) -> JSONObject:
    """Return an input schema for hosts: an object without `$ref`, and without combining keywords at
    the top level.

    Properties of alternatives are merged; the description says which properties belong together.
    """
    plain = _plain(schema or {})
    if not any(keyword in plain for keyword in _COMBINING):
        return {**plain, "type": "object"}

    properties, required, ways = _parts(plain)
    left_out = {*_COMBINING, "unevaluatedProperties"}
    merged: JSONObject = {key: value for key, value in plain.items() if key not in left_out}
    merged["type"] = "object"
    merged["properties"] = {
        name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        for name, schemas in properties.items()
    }
    merged["required"] = list[JSON](required)
    if not required:
        del merged["required"]

    own = read_as(SchemaKeywords, plain)
    if properties.keys() - own.properties.keys():
        merged.pop("additionalProperties", None)

    if ways:
        words = f"Give {' or '.join(ways)}."
        description = (own.description or "").rstrip()
        merged["description"] = f"{description} {words}" if description else words

    return merged


def _plain(schema: JSONObject) -> JSONObject:
    """Return an equivalent schema without `$ref` and without anything that hosts reject.

    - `true` or `false` as the schema of a property or item: a single one makes hosts built on the
      TypeScript SDK reject the whole list of tools.
    - An array without `items`: OpenAI, Gemini and VS Code reject it.
    - A list of types that contains `array`: hosts split the list, and lose or misplace `items`.
    - Names of schemas, and `$schema`: a host's validator rejects the whole list if it already knows
      an `$id` or does not know the draft. The names are not needed, because no reference remains.
    - Patterns that JavaScript does not accept, and duplicate values in `enum`: these also make
      validators reject the whole list.
    - An object without properties: pydantic-ai describes it to OpenAI's models as always empty. The
      top-level schema of a tool's parameters is not changed, because a tool without parameters
      looks like that.
    """
    written = inline_refs(schema)
    plain = _part(written)
    assert isinstance(plain, dict)
    if "additionalProperties" not in written:
        plain.pop("additionalProperties", None)
    return plain


def _part(schema: JSON) -> JSON:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        return schema

    changed = map_children(schema, _part)
    changed |= {
        keyword: schema[keyword] for keyword in _FLAGS if isinstance(schema.get(keyword), bool)
    }
    for keyword in _NAMES.intersection(changed):
        del changed[keyword]

    _without_odd_patterns(changed)
    values = changed.get("enum")
    if isinstance(values, list):
        changed["enum"] = list({encode(value): value for value in values}.values())

    types = changed.get("type")
    if types in ("array", ["array"]):
        changed |= {"type": "array", "items": changed.get("items", {})}
    elif types == "object" and not any(
        keyword in changed for keyword in (*_OF_OBJECTS, *_COMBINING)
    ):
        changed["additionalProperties"] = True
    elif (
        isinstance(types, list)
        and "array" in types
        and not any(keyword in changed for keyword in _COMBINING)
    ):
        return _split(changed, types)

    return changed


def _without_odd_patterns(schema: JSONObject) -> None:
    """Remove patterns that JavaScript might not accept. Calls are still checked against them."""
    pattern = schema.get("pattern")
    named = schema.get("patternProperties")
    if isinstance(pattern, str) and not _ECMA.fullmatch(pattern):
        del schema["pattern"]

    if isinstance(named, dict) and not all(map(_ECMA.fullmatch, named)):
        schema["patternProperties"] = {
            name: part for name, part in named.items() if _ECMA.fullmatch(name)
        }
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            schema.pop(keyword, None)


def _split(schema: JSONObject, types: list[JSON]) -> JSONObject:
    """Return an `anyOf` of the array type and the other types."""
    other_types = [kind for kind in types if kind != "array"]
    array: JSONObject = {"type": "array", "items": {}}
    other_branch: JSONObject = {"type": other_types[0] if len(other_types) == 1 else other_types}
    changed: JSONObject = {}
    for keyword, value in schema.items():
        if keyword == "type":
            continue
        if keyword in _OF_ARRAYS:
            array[keyword] = value
        elif keyword in _NOTES:
            changed[keyword] = value
        else:
            other_branch[keyword] = value

    return {**changed, "anyOf": [array, other_branch]}


def _parts(schema: JSON) -> tuple[dict[str, list[JSON]], list[str], list[str]]:
    """Return the properties of a schema and its branches, the names of the required properties, and
    a description of the alternatives.
    """
    own = read_as(SchemaKeywords, schema)
    properties = {name: [part] for name, part in own.properties.items() if part is not False}
    required = [*own.required]
    alternatives: list[str] = []
    for keyword in ("allOf", "anyOf", "oneOf", "then", "else"):
        value = object_or_empty(schema).get(keyword)
        if not value:
            continue

        branches = [_parts(branch) for branch in list_or_empty(value) or [value]]
        for branch_properties, _, _ in branches:
            _add_properties(properties, branch_properties)

        required_lists = [names for _, names, _ in branches]
        if keyword == "allOf":
            required += [name for names in required_lists for name in names if name not in required]
            alternatives += [text for _, _, texts in branches for text in texts]
        elif keyword in ("anyOf", "oneOf"):
            alternatives += _alternatives(required, required_lists)

    return properties, required, alternatives


def _add_properties(properties: dict[str, list[JSON]], more: dict[str, list[JSON]]) -> None:
    """Add to each property those schemas that it does not have yet."""
    for name, parts in more.items():
        present = properties.setdefault(name, [])
        present += [part for part in parts if part not in present]


def _alternatives(required: list[str], required_lists: list[list[str]]) -> list[str]:
    """Describe which names only some branches require. Names required by all branches are added to
    `required`.
    """
    always = [name for name in required_lists[0] if all(name in names for names in required_lists)]
    choices = [
        [name for name in names if name not in (*always, *required)] for names in required_lists
    ]
    required += [name for name in always if name not in required]
    if not all(choices):
        return []
    return list(dict.fromkeys(" with ".join(names) for names in choices))[:_WAYS]
