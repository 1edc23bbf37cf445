"""The definitions of the server's own tools, as hosts receive them.

A host sends these definitions to its model with every request, so they are few and short. `handling` implements them.

Hosts rewrite schemas on the way to their models. These forms survive in all hosts that were tried (docs/hosts.md):

- Every schema has a `type` or an `anyOf`. Of a schema with neither, Codex and the OpenAI provider of opencode send only
  `{}`: its description is lost.
- A value of any type is an `anyOf` with one entry per type, and its array has `items`. From a list of types Codex makes
  an array of strings, and opencode makes an array without `items`, which the Gemini API refuses with the whole request.
- An `enum` has a `type`, which the Gemini API asks for.
- An object that models fill freely has `additionalProperties`: Codex adds empty `properties`, which alone say `{}`.
- There is no `$ref`, and nothing is combined at the top.
"""

from __future__ import annotations

from typing import Any, Final

from ideabridge.tools.encoding import JSON, JSONObject

_OBJECT: Final[JSONObject] = {"type": "object"}
_TEXT: Final[JSONObject] = {"type": "string"}
_INPUT: Final[JSONObject] = {"type": "object", "description": "What †input reads.", "additionalProperties": True}
_ANY: Final[list[JSON]] = [
    _OBJECT,
    {"type": "array", "items": {}},
    _TEXT,
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
]
"""The `anyOf` of a value that may be any JSON."""


def _wait(default: str = "45") -> JSONObject:
    return {"type": "number", "minimum": 0, "maximum": 600, "description": f"Default {default}."}


def _choice(options: list[JSON], description: str | None = None) -> JSONObject:
    schema: JSONObject = {"type": "string", "enum": options}
    return schema if description is None else {**schema, "description": description}


def _closed(properties: dict[str, JSONObject], required: list[JSON]) -> JSONObject:
    schema: JSONObject = {"type": "object", "properties": dict[str, JSON](properties)}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _hints(*, read_only: bool, destructive: bool = False, idempotent: bool = False, open_world: bool) -> JSONObject:
    hints: JSONObject = {"readOnlyHint": read_only}
    if not read_only:
        hints["destructiveHint"] = destructive
        if idempotent:
            hints["idempotentHint"] = True
    hints["openWorldHint"] = open_world
    return hints


def _tool(name: str, description: str, parameters: JSONObject, hints: JSONObject) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": parameters, "annotations": hints}


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
        _hints(read_only=True, open_world=False),
    ),
    _tool(
        "run_plan",
        "Run tool calls as one plan. A call starts once the values it reads exist; independent calls run side by side."
        " Results stay on the server, not in your context. A string that is one reference becomes its value:"
        ' "†state.log.0.id", "†results.0" (first call\'s result, if it has no _outputPath), "†input.x",'
        ' "†state.a || †state.b" (first that exists). Always there: pick(data, path), filter(items, where),'
        " join(items, separator?), count(items, by?), template(text, values); path, where, by: JMESPath; text: {name}."
        " Large values come back as references: read them with check_run. Read-only calls run; others wait for"
        " decide_approval.",
        _closed(
            {
                "calls": {"type": "array", "items": _CALL},
                "input": _INPUT,
                "instances": {
                    "type": "object",
                    "description": 'Run once per initial state: {"a": {"x": 1}, "b": {"x": 2}}.',
                },
                "output": {
                    "description": "The answer, with references: any JSON. Default: the whole state.",
                    "anyOf": _ANY,
                },
                "output_schema": {"type": "object", "description": "JSON Schema."},
                "dry_run": {"type": "boolean", "description": "Only check it and show the order."},
                "save_as": {"type": "string", "description": "Publish it as a tool of this name when done."},
                "wait_s": _wait(),
            },
            ["calls"],
        ),
        _hints(read_only=False, destructive=True, open_world=True),
    ),
    _tool(
        "solve",
        "Start a task that needs thinking between calls. Each turn gives you context, schema and instructions: write"
        ' {"calls": [...], "output": ... or null} and hand it in with submit_solution.',
        _closed(
            {
                "task": {"type": "string", "minLength": 1},
                "input": _INPUT,
                "output_schema": {"type": "object", "description": "JSON Schema; default: text."},
                "tools": {
                    "type": "array",
                    "items": _TEXT,
                    "description": "Names or patterns (git_*); default: all.",
                },
                "idea": {"type": "string", "description": "A saved idea as an example."},
                "mind": _choice(["auto", "turns", "sampling", "model"], "Who writes the solutions; turns: you."),
                "planning": _choice(["eager", "lazy"], "lazy: a person accepts each solution before its calls run."),
                "limits": {"type": "object", "description": "Lower limits: calls, requests, wall_seconds."},
                "wait_s": _wait(),
            },
            ["task"],
        ),
        # By a model, or by sampling, calls run within the call of this tool.
        _hints(read_only=False, destructive=True, open_world=True),
    ),
    _tool(
        "submit_solution",
        "Hand in the solution of a turn. Its calls run, and you get the next turn, the output, or errors to correct.",
        _closed(
            {
                "run": _TEXT,
                "turn": {"type": "integer", "minimum": 0},
                "solution": {
                    "type": "object",
                    "description": "{calls, output}, as the turn's schema says.",
                    "additionalProperties": True,
                },
                "wait_s": _wait(),
            },
            ["run", "turn", "solution"],
        ),
        _hints(read_only=False, destructive=True, idempotent=True, open_world=True),
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
                "wait_s": _wait("45, or 0 with paths or cancel"),
            },
            [],
        ),
        _hints(read_only=False, idempotent=True, open_world=False),
    ),
    _tool(
        "decide_approval",
        "Answer the approvals a run waits for; ask the person first, because the calls approved change things.",
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
                            "call": {
                                "type": "object",
                                "description": "For edit: the call to run instead.",
                                "additionalProperties": True,
                            },
                            "plan": {"type": "object", "description": "For edit of a plan: {calls, output}."},
                            "value": {"description": "For value: the result, or the answer.", "anyOf": _ANY},
                            "reason": _TEXT,
                        },
                        ["approval", "decision"],
                    ),
                },
                "wait_s": _wait(),
            },
            ["run", "decisions"],
        ),
        _hints(read_only=False, destructive=True, open_world=True),
    ),
    _tool(
        "search_ideas",
        "Find saved ideas: earlier runs and plans that may do your task already.",
        _closed(
            {
                "words": {"type": "string", "description": "Default: the newest."},
                "tool": {"type": "string", "description": "Ideas that call it."},
                "module": {"type": "string", "description": "Ideas that call this server."},
                "since": {"type": "string", "description": "A date, or an age: 3d, 12h."},
                "until": _TEXT,
                "outcome": _choice(["done", "open", "failed", "stalled", "limit", "cancelled"]),
                "mind": {"type": "string", "description": "turns, sampling or model."},
                "tag": _TEXT,
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Default 10."},
            },
            [],
        ),
        _hints(read_only=True, open_world=False),
    ),
    _tool(
        "publish_idea",
        "Make a tool of a run or saved idea: each call of the new tool runs the same plan with other input.",
        _closed(
            {
                "idea": {"type": "string", "description": "Id or name of an idea, or a run's id."},
                "name": {"type": "string", "description": "The new tool's name: a-z, 0-9, _."},
                "description": _TEXT,
                "answer": _choice(
                    ["auto", "recorded", "plan", "solve"],
                    "recorded: the stored output; plan: run the plan; solve: ask a model; auto (default): choose.",
                ),
                "choices": {
                    "type": "object",
                    "description": "What an error of this tool asks for:"
                    ' {"accept": true or [paths], "take": {"calls.0.repo": "†input.repo"}, "runs": [ids]}.',
                },
            },
            ["idea", "name"],
        ),
        _hints(read_only=False, open_world=False),
    ),
)
"""The definitions, in their wire form."""

OWN_NAMES: Final = frozenset(str(tool["name"]) for tool in OWN_TOOLS)
"""Names no idea and no module's tool may take."""
