"""The definitions of the server's own tools, as hosts receive them.

A host sends these definitions to its model with every request, so they are few and short. `handling` implements them.

Hosts rewrite schemas for their models. These forms survive in all hosts that were tested (docs/hosts.md):

- Every schema has a `type` or an `anyOf`. Codex and the OpenAI provider of opencode replace a schema with neither by
  `{}` and lose its description.
- A value of any type is an `anyOf` with one entry per type, and its array has `items`. Codex turns a list of types into
  an array of strings. opencode turns it into an array without `items`, for which the Gemini API refuses the request.
- An `enum` has a `type`, which the Gemini API requires.
- An object with any properties has `additionalProperties`. Without it Codex shows its model an object without
  properties, and pydantic-ai forbids OpenAI's models all properties.
- There is no `$ref`, and there are no combining keywords at the top.

Annotations omit `idempotentHint` and `openWorldHint` if they have the value that clients assume.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from ideabridge.tools.encoding import JSON, JSONObject, decode
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator

_TEXT: Final[JSONObject] = {"type": "string"}
_OPEN: Final[JSONObject] = {"type": "object", "additionalProperties": True}
_ANY: Final[list[JSON]] = [
    _OPEN,
    {"type": "array", "items": {}},
    _TEXT,
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
]
"""The `anyOf` of a value that may be any JSON."""

_WAIT: Final[JSONObject] = {"type": "number", "minimum": 0, "maximum": 600}


def _open(description: str) -> JSONObject:
    return {**_OPEN, "description": description}


def _choice(options: list[JSON], description: str | None = None) -> JSONObject:
    schema: JSONObject = {"type": "string", "enum": options}
    return schema if description is None else {**schema, "description": description}


def _closed(properties: dict[str, JSONObject], required: list[JSON]) -> JSONObject:
    schema: JSONObject = {"type": "object", "properties": dict[str, JSON](properties)}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _tool(name: str, description: str, parameters: JSONObject, hints: JSONObject) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": parameters, "annotations": hints}


_READS: Final[JSONObject] = {"readOnlyHint": True, "openWorldHint": False}
_CHANGES: Final[JSONObject] = {"readOnlyHint": False, "destructiveHint": True}
_ADDS: Final[JSONObject] = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


_CALL: Final[JSONObject] = {
    "type": "object",
    "description": "The tool's parameters stand beside these:"
    ' {"_tool": "git_log", "repo_path": ".", "_outputPath": "log"}.',
    "properties": {
        "_tool": {"type": "string", "description": "Its name."},
        "_module": {"type": "string", "description": "From search_tools; for ideas and shared names."},
        "_outputPath": {"type": "string", "description": "Where the result goes: log is read as †state.log."},
        "_outputMethod": _choice(["set", "merge", "push"]),
        "_each": {
            "anyOf": [_TEXT, {"type": "array", "items": {}}],
            "description": "An array, or a reference to one: a call per item, read as †item.",
        },
        "_after": {"type": "array", "items": _TEXT, "description": "The _id of calls to wait for."},
        "_id": _TEXT,
        "_instance": _TEXT,
    },
    "required": ["_tool"],
    "additionalProperties": True,
}

OWN_TOOLS: Final[tuple[dict[str, Any], ...]] = (
    _tool(
        "search_tools",
        "Start here: find tools of all connected servers, and published ideas, by words. Gives names, modules and"
        " parameter schemas for run_plan.",
        _closed(
            {
                "words": {"type": "string", "description": "What the tool should do; empty: all."},
                "module": {"type": "string", "description": "Only this server's tools."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Default 8."},
            },
            ["words"],
        ),
        _READS,
    ),
    _tool(
        "run_plan",
        "Run tool calls as one plan. A call starts once the values it reads exist; independent reads run side by side,"
        " and calls of one module that may change something run in listed order, unless data or _after says otherwise."
        " Results stay on the server, not in your context. A string that is one reference becomes its value:"
        ' "†state.log.0.id", "†results.0" (first call\'s result, if it has no _outputPath), "†input.x",'
        ' "†state.a || †state.b" (first that exists). Always there: pick(data, path), filter(items, where),'
        " join(items, separator?), count(items, by?), template(text, values); path, where, by: JMESPath; text: {name}."
        " Large values come as references: see check_run. Read-only calls run; others wait for"
        " approval.",
        _closed(
            {
                "calls": {"type": "array", "items": _CALL},
                "input": _open("What †input reads."),
                "instances": _open('Run once per initial state: {"a": {"x": 1}, "b": {"x": 2}}.'),
                "output": {
                    "description": "The answer, with references. Default: the state.",
                    "anyOf": _ANY,
                },
                "output_schema": _open("JSON Schema."),
                "dry_run": {"type": "boolean", "description": "Only check it and show the order."},
                "save_as": {"type": "string", "description": "Publish it as a tool of this name when done."},
                "wait_s": {**_WAIT, "description": "Seconds to wait; default 45."},
            },
            ["calls"],
        ),
        _CHANGES,
    ),
    _tool(
        "solve",
        "Start a task that needs thinking between calls. Each turn gives you context, schema and instructions: write"
        ' {"calls": [...], "output": ... or null} and hand it in with submit_solution.',
        _closed(
            {
                "task": {"type": "string", "minLength": 1},
                "input": _open("What †input reads."),
                "output_schema": _open("JSON Schema; default: text."),
                "tools": {
                    "type": "array",
                    "items": _TEXT,
                    "description": "Names or patterns (git_*); default: all.",
                },
                "idea": {"type": "string", "description": "A saved idea as an example."},
                "mind": _choice(["auto", "turns", "sampling", "model"], "Who writes the solutions; turns: you."),
                "planning": _choice(["eager", "lazy"], "lazy: a person accepts each solution before its calls run."),
                "limits": _open("Lower limits: calls, requests, wall_seconds."),
                "wait_s": _WAIT,
            },
            ["task"],
        ),
        # By a model, or by sampling, calls run within the call of this tool.
        _CHANGES,
    ),
    _tool(
        "submit_solution",
        "Hand in the solution of a turn. Its calls run, and you get the next turn, the output, or errors to correct.",
        _closed(
            {
                "run": _TEXT,
                "turn": {"type": "integer", "minimum": 0},
                "solution": _open("{calls, output}, as the turn's schema says."),
                "wait_s": _WAIT,
            },
            ["run", "turn", "solution"],
        ),
        {**_CHANGES, "idempotentHint": True},
    ),
    _tool(
        "check_run",
        "Show a run's status, give values whole, or cancel it. Without run: your latest runs.",
        _closed(
            {
                "run": _TEXT,
                "paths": {
                    "type": "array",
                    "items": _TEXT,
                    "maxItems": 100,
                    "description": "References: †state.log, †results.0, †output.",
                },
                "cancel": {"type": "boolean", "description": "End it."},
                "wait_s": {**_WAIT, "description": "Default 45, or 0 with paths or cancel."},
            },
            [],
        ),
        {**_ADDS, "idempotentHint": True},
    ),
    _tool(
        "decide_approval",
        "Decide what a run waits for, after asking the person: the calls change things, and the journal names the"
        " assistant as the one who decided.",
        _closed(
            {
                "run": _TEXT,
                "decisions": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1000,
                    "items": _closed(
                        {
                            "approval": {"type": "string", "description": "Its id."},
                            "decision": _choice(
                                ["approve", "deny", "edit", "retry", "skip", "value"],
                                "One of the entry's choices; without choices: approve, deny or edit.",
                            ),
                            "call": _open("For edit: the call to run instead."),
                            "plan": _open("For edit of a plan: {calls, output}."),
                            "value": {"description": "For value: the result, or the answer.", "anyOf": _ANY},
                            "reason": _TEXT,
                        },
                        ["approval", "decision"],
                    ),
                },
                "wait_s": _WAIT,
            },
            ["run", "decisions"],
        ),
        _CHANGES,
    ),
    _tool(
        "search_ideas",
        "Find saved ideas: earlier runs and plans that may do your task already, by words and by what they call.",
        _closed(
            {
                "words": {"type": "string", "description": "Default: the newest."},
                "tool": _TEXT,
                "module": _TEXT,
                "since": {"type": "string", "description": "A date, or an age: 3d, 12h."},
                "until": _TEXT,
                "outcome": _choice(["done", "open", "failed", "stalled", "limit", "cancelled"]),
                "mind": {"type": "string", "description": "turns, sampling or model."},
                "tag": _TEXT,
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Default 10."},
            },
            [],
        ),
        _READS,
    ),
    _tool(
        "publish_idea",
        "Make a tool of a run or saved idea: each call of it runs the same plan with other input.",
        _closed(
            {
                "idea": {"type": "string", "description": "Id or name of an idea, or a run's id."},
                "name": {"type": "string", "description": "The new tool's name: a-z, 0-9, _."},
                "description": _TEXT,
                "answer": _choice(
                    ["auto", "recorded", "plan", "solve"],
                    "recorded: the stored output; plan: run it; solve: ask a model; auto (default): choose.",
                ),
                "to": {"type": "string", "description": "me, all or ann,bob"},
                "choices": _open(
                    "What an error of this tool asks for:"
                    ' {"accept": true or [paths], "take": {"calls.0.repo": "†input.repo"}, "runs": [ids]}.'
                ),
            },
            ["idea", "name"],
        ),
        _ADDS,
    ),
)
"""The definitions, in their wire form."""

OWN_NAMES: Final = frozenset(str(tool["name"]) for tool in OWN_TOOLS)
"""Names that no idea and no module's tool may have."""

STARTING_RUNS: Final = frozenset({"run_plan", "solve"})
"""The tools that start a run."""


# -- arguments -------------------------------------------------------------------------------------------------------

_READ_ELSEWHERE: Final = ("solution", "calls")
"""Parameters with their own checks, which accept more than one form and have better messages."""

_TYPES: Final[dict[str, type[Any]]] = {"object": dict, "array": list}
_PROPERTIES: Final[dict[str, dict[str, Any]]] = {
    str(tool["name"]): {
        name: {} if name in _READ_ELSEWHERE else schema for name, schema in tool["inputSchema"]["properties"].items()
    }
    for tool in OWN_TOOLS
}
_VALIDATORS: Final = {
    str(tool["name"]): Validator(
        {**tool["inputSchema"], "properties": _PROPERTIES[tool["name"]]}, what=f"arguments of {tool['name']}"
    )
    for tool in OWN_TOOLS
}


def read_arguments(name: str, arguments: JSONObject) -> dict[str, Any]:
    """The checked arguments of a call of an own tool.

    Models often write objects and arrays as JSON text, which is parsed, and null for an absent argument.

    Raises:
        ValueMismatchError: they do not satisfy the tool's parameters; path, found and expected of every problem.
    """
    result: dict[str, Any] = {}
    for key, value in arguments.items():
        if value is None:
            continue
        result[key] = value
        expected = _TYPES.get(_PROPERTIES[name].get(key, {}).get("type", ""))
        if expected is not None and isinstance(value, str):
            # If it is not JSON, the check reports what was expected.
            with suppress(IdeabridgeError):
                parsed = decode(value, what=key)
                result[key] = parsed if isinstance(parsed, expected) else value
    _VALIDATORS[name].check(result)
    return result
