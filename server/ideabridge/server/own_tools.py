"""Define the server's own tools, as hosts receive them, and check their arguments. `own_handlers`
answers calls to them.

A host sends these definitions to its model with every request, so they are few and short.

Hosts rewrite schemas for their models. The following forms survive in all hosts that were tested
(docs/hosts.md):

- Every schema has a `type` or an `anyOf`. Codex and opencode's OpenAI provider replace a schema
  that has neither with `{}`, which loses its description.
- A value of any type is an `anyOf` with one entry per type, and its array has `items`. Codex turns
  a list of types into an array of strings. opencode turns it into an array without `items`, and the
  Gemini API rejects a request with such an array.
- An `enum` has a `type`, which the Gemini API requires.
- An object with any properties has `additionalProperties`. Otherwise, Codex shows its model an
  object that has no properties, and pydantic-ai does not let OpenAI's models send any.
- No schema contains `$ref`, or combining keywords at its top level.

Annotations omit `idempotentHint` and `openWorldHint` if they have the values that clients assume by
default.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    decode,
    list_or_empty,
    object_or_empty,
)
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Tool

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
"""The `anyOf` for a value that can be any JSON value."""

_WITH_REFERENCES: Final[list[JSON]] = [_OPEN, {"type": "array", "items": {}}, _TEXT]
"""The `anyOf` for a value that can contain references to other values."""

_WAIT: Final[JSONObject] = {"type": "number", "minimum": 0, "maximum": 600}
_OBJECTS: Final[JSONObject] = {"type": "array", "items": _OPEN}
_TEXTS: Final[JSONObject] = {"type": "array", "items": _TEXT}


def _open(description: str) -> JSONObject:
    return {**_OPEN, "description": description}


def _text(description: str) -> JSONObject:
    return {"type": "string", "description": description}


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
    return {
        "name": name,
        "description": description,
        "inputSchema": parameters,
        "annotations": hints,
    }


def tool_signature(tool: Tool) -> str:
    """Return a tool's name and parameters: `join(items, separator?)`, where `?` marks an optional
    parameter.
    """
    required = list_or_empty(tool.parameters.get("required"))
    properties = object_or_empty(tool.parameters.get("properties"))
    parameters = [name if name in required else f"{name}?" for name in properties]
    return f"{tool.name}({', '.join(parameters)})"


_READS: Final[JSONObject] = {"readOnlyHint": True, "openWorldHint": False}
_CHANGES: Final[JSONObject] = {"readOnlyHint": False, "destructiveHint": True}
_ADDS: Final[JSONObject] = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


_CALLS: Final[JSONObject] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"_tool": _TEXT},
        "required": ["_tool"],
        "additionalProperties": True,
    },
    "description": '{"_tool": "git_log", "repo_path": ".", '
    '"_outputPath": "log"}. Optional: _module (for ideas and'
    " shared names), _outputMethod (set, merge, push), "
    '_each (array or reference: one call per "†item"), _id, _after'
    " ([_ids]), _instance.",
}

_PROGRAM_STEP: Final = ", run_program(program, input)"

OWN_TOOLS: Final[tuple[dict[str, Any], ...]] = (
    _tool(
        "search_tools",
        "Find tools of all servers, and ideas. Returns signatures; for an exact name, schemas.",
        _closed(
            {
                "words": {"anyOf": [_TEXT, _TEXTS], "description": "The task, or its steps."},
                "module": _text("Only this server's."),
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            },
            ["words"],
        ),
        _READS,
    ),
    _tool(
        "run_plan",
        "Run calls of any tools as one plan. A call starts once the values it reads exist; "
        "changes on one server keep"
        ' their order. A reference becomes its value: "†state.log.0.id", "†results.0",'
        ' "†input.x", "†state.a || †state.b".'
        f" Built in: {', '.join(map(tool_signature, builtin_toolbox()))}{_PROGRAM_STEP}; "
        "path, where, by: JMESPath;"
        " text: {name}; code: Python.",
        _closed(
            {
                "calls": _CALLS,
                "program": _text(
                    "Or Python: import git; await git.git_log(repo_path=input['repo']). "
                    "Last expression: the output."
                ),
                "input": _open("Read by †input."),
                "instances": _open(
                    'Once per state: {"a": {"x": 1}, "b": {"x": 2}}; or messages, with schema.'
                ),
                "output": {
                    "description": "With references; default: the state.",
                    "anyOf": _WITH_REFERENCES,
                },
                "output_schema": _OPEN,
                "dry_run": {"type": "boolean"},
                "save_as": _text("Publish it as this tool."),
                "wait_s": _WAIT,
            },
            [],
        ),
        _CHANGES,
    ),
    _tool(
        "solve",
        "Start a task that needs thinking between calls. Answer each turn with run, turn"
        ' and solution: {"calls", "output"}.',
        _closed(
            {
                "task": {"type": "string", "minLength": 1},
                "input": _OPEN,
                "output_schema": _OPEN,
                "tools": {**_TEXTS, "description": "Names, git_*, idea:*."},
                "run": _TEXT,
                "turn": {"type": "integer", "minimum": 0},
                "solution": _OPEN,
                "idea": _text("An idea as an example."),
                "context": {
                    "type": "array",
                    "items": {"anyOf": [_OPEN, _TEXT]},
                    "description": 'Messages, also without a task: {"role", "content"}; {"type": "state", '
                    '"state": {}, "_instance"?, "schema"?}; data, input, plan, tool, error.',
                },
                "thought_process": {
                    "type": "boolean",
                    "description": "You write your reasoning first.",
                },
                "mind": _choice(
                    ["auto", "turns", "sampling", "model"], "turns: you write the solutions."
                ),
                "planning": _choice(
                    ["eager", "lazy"], "lazy: a person accepts each solution first."
                ),
                "limits": _open("calls, requests, wall_seconds"),
                "shown": _open("{value, request}: bytes of results you see whole."),
                "wait_s": _WAIT,
            },
            [],
        ),
        # If a configured model or the client's model (sampling) answers, the calls of the task run
        # during the call to this tool, which therefore has their effects.
        _CHANGES,
    ),
    _tool(
        "submit_solution",
        "The same as solve with run, turn and solution.",
        _closed(
            {
                "run": _TEXT,
                "turn": {"type": "integer", "minimum": 0},
                "solution": _OPEN,
                "wait_s": _WAIT,
            },
            ["run", "turn", "solution"],
        ),
        {**_CHANGES, "idempotentHint": True},
    ),
    _tool(
        "check_run",
        "A run's status, values whole, or cancel. Without run: your latest.",
        _closed(
            {
                "run": _TEXT,
                "paths": {
                    **_TEXTS,
                    "maxItems": 100,
                    "description": "†state.log, †results.0, †output",
                },
                "cancel": {"type": "boolean"},
                "wait_s": _WAIT,
            },
            [],
        ),
        {**_ADDS, "idempotentHint": True},
    ),
    _tool(
        "decide_approval",
        "Decide what a run waits for, after asking the person; the journal names the "
        "assistant as the one who decided.",
        _closed(
            {
                "run": _TEXT,
                "decisions": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1000,
                    "items": _closed(
                        {
                            "approval": _TEXT,
                            "decision": _choice(
                                ["approve", "deny", "edit", "retry", "skip", "value"],
                                "One of the entry's choices, or approve, deny, edit.",
                            ),
                            "call": _open("The call to run instead."),
                            "plan": _open("For a plan: {calls, output}."),
                            "value": {"description": "The result, or the answer.", "anyOf": _ANY},
                            "reason": _TEXT,
                            # Only a person can make a grant. An assistant that tries gets a refusal
                            # that says how a person does it.
                            "grant": {"type": "object", "additionalProperties": True},
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
        "Find saved ideas, which may do your task.",
        _closed(
            {
                "words": _text("Default: newest."),
                "tool": _TEXT,
                "module": _TEXT,
                "since": _text("A date or age: 3d, 12h."),
                "until": _TEXT,
                "outcome": _choice(["done", "open", "failed", "stalled", "limit", "cancelled"]),
                "mind": _TEXT,
                "tag": _TEXT,
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 100,
                    "description": "Default 10.",
                },
            },
            [],
        ),
        _READS,
    ),
    _tool(
        "publish_idea",
        "Make a tool of a run or an idea.",
        _closed(
            {
                "idea": _text(
                    "Run, idea, session (your direct calls), or {context, schema?, solution?}."
                ),
                "name": _text("a-z, 0-9, _"),
                "description": _TEXT,
                "answer": _choice(["auto", "recorded", "plan", "program", "solve"]),
                "program": _text("Python that does it; false: none."),
                "parameters": _open("{limit: {rename: n}}"),
                "choices": _open("{take: {calls.0.repo: †input.repo}, runs: [more runs]}"),
                "calls": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 2,
                    "maxItems": 2,
                    "description": "[first, last]",
                },
                "inputs": _OBJECTS,
                "constants": {"type": "array", "items": {"anyOf": [_TEXT, {"type": "number"}]}},
                "to": _text("me, all or ann,bob"),
                "strict": {"type": "boolean", "description": "Ask before assumed values."},
                "wait_s": _WAIT,
            },
            ["idea", "name"],
        ),
        _ADDS,
    ),
)
"""The definitions of the own tools, in wire form."""

_RARE: Final[dict[str, frozenset[str]]] = {
    "search_tools": frozenset({"module", "limit"}),
    "run_plan": frozenset({"instances", "output_schema", "dry_run", "wait_s"}),
    "solve": frozenset(
        {"idea", "context", "thought_process", "mind", "planning", "limits", "shown", "wait_s"}
    ),
    "check_run": frozenset({"wait_s"}),
    "decide_approval": frozenset({"wait_s"}),
    "publish_idea": frozenset(
        {"answer", "choices", "inputs", "constants", "to", "strict", "wait_s"}
    ),
}
"""The tools that are listed by default, each with the parameters that the list omits."""

_BOUNDS: Final = ("minimum", "maximum", "minLength", "minItems", "maxItems")


def own_tools(*, programs: bool, every: bool) -> tuple[dict[str, Any], ...]:
    """Return the definitions to list.

    Args:
        programs: whether `run_plan` offers programs.
        every: whether to list all tools with all parameters. If not, only the tools and parameters
            that most tasks need are listed.
    """
    tools = OWN_TOOLS if programs else tuple(map(_without_programs, OWN_TOOLS))
    if every:
        return tools
    return tuple(_without(tool, _RARE[tool["name"]]) for tool in tools if tool["name"] in _RARE)


def _without(tool: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return a tool without the given parameters, and without bounds.

    The schema must still accept the omitted parameters, because some hosts check calls against it.
    The bounds still apply; an error states them.
    """
    schema = tool["inputSchema"]
    properties: dict[str, Any] = {}
    for name, member in schema["properties"].items():
        if name not in names:
            properties[name] = {key: value for key, value in member.items() if key not in _BOUNDS}

    shorter = {**schema, "properties": properties, "additionalProperties": bool(names)}
    return {**tool, "inputSchema": shorter}


def _without_programs(tool: dict[str, Any]) -> dict[str, Any]:
    if tool["name"] != "run_plan":
        return tool
    schema = tool["inputSchema"]
    properties = {
        name: member for name, member in schema["properties"].items() if name != "program"
    }
    description = tool["description"].replace(_PROGRAM_STEP, "")
    return {**tool, "description": description, "inputSchema": {**schema, "properties": properties}}


VIEW_RUN: Final = "view_run"
"""The tool that views of runs call; see `extensions/apps.py`. It is listed only for clients that
show views."""

OWN_NAMES: Final = frozenset([VIEW_RUN, *(str(tool["name"]) for tool in OWN_TOOLS)])
"""Names that ideas and servers' tools are not allowed to have. Each of these tools can be called,
whether or not it is listed.
"""

LISTED: Final = frozenset(_RARE)
"""The names that are listed by default."""

# -- arguments -------------------------------------------------------------------------------------

_READ_ELSEWHERE: Final = {
    # `idea` can also be a document, and `program` can be false. Hosts pass on both forms of a
    # parameter if the list declares one type for it.
    "publish_idea": ("idea", "program"),
    "run_plan": ("calls", "output"),
    "solve": ("solution",),
    "submit_solution": ("solution",),
}
"""Parameters that are checked elsewhere, because they accept more than one form, or any JSON
value."""

_TYPES: Final[dict[str, type[Any]]] = {"object": dict, "array": list}
_PROPERTIES: Final[dict[str, dict[str, Any]]] = {
    str(tool["name"]): {
        name: {} if name in _READ_ELSEWHERE.get(tool["name"], ()) else schema
        for name, schema in tool["inputSchema"]["properties"].items()
    }
    for tool in OWN_TOOLS
}
_VALIDATORS: Final = {
    str(tool["name"]): Validator(
        {**tool["inputSchema"], "properties": _PROPERTIES[tool["name"]]},
        what=f"arguments of {tool['name']}",
    )
    for tool in OWN_TOOLS
}


async def read_tool_arguments(name: str, arguments: JSONObject) -> dict[str, Any]:
    """Return the checked arguments of a call to an own tool.

    Models often write objects and arrays as JSON strings, which are parsed here, and null instead
    of omitting an argument.

    Raises:
        ValueMismatchError: the arguments do not satisfy the tool's parameters. For each problem,
            the error gives the path, what was found and what was expected.
    """
    result: dict[str, Any] = {}
    for key, value in arguments.items():
        if value is None:
            continue
        result[key] = value
        expected = _TYPES.get(_PROPERTIES[name].get(key, {}).get("type", ""))
        if expected is not None and isinstance(value, str):
            # Leave a string that is not JSON unchanged, because the check below reports what was
            # expected.
            with suppress(IdeabridgeError):
                parsed = decode(value, what=key)
                result[key] = parsed if isinstance(parsed, expected) else value

    await _VALIDATORS[name].check_apart(result)
    return result
