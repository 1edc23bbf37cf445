"""Own tools: what the server offers besides ideas and modules, told to hosts (DESIGN 6).

Every host sends these definitions to its model with every request: they are few and short, without `$ref`, and
closed. `handling` has what they do.
"""

from __future__ import annotations

from typing import Any, Final

from ideabridge.tools.encoding import JSON, JSONObject

_RUN: Final[JSONObject] = {"type": "string", "description": "The run's id."}
_OBJECT: Final[JSONObject] = {"type": "object"}


def _wait(default: str = "45") -> JSONObject:
    return {"type": "number", "minimum": 0, "maximum": 600, "description": f"Seconds to wait; else {default}."}


def _closed(properties: dict[str, JSONObject], required: list[JSON]) -> JSONObject:
    schema: JSONObject = {"type": "object", "properties": dict[str, JSON](properties)}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _answer(properties: dict[str, JSONObject], required: list[JSON]) -> JSONObject:
    return {"type": "object", "properties": dict[str, JSON](properties), "required": required}


_RUN_ANSWER: Final = _answer({"run": {"type": "string"}, "status": {"type": "string"}}, ["run", "status"])


def _hints(*, read_only: bool, destructive: bool = False, idempotent: bool = False, open_world: bool) -> JSONObject:
    hints: JSONObject = {"readOnlyHint": read_only}
    if not read_only:
        hints["destructiveHint"] = destructive
        hints["idempotentHint"] = idempotent
    hints["openWorldHint"] = open_world
    return hints


def _tool(
    name: str, description: str, parameters: JSONObject, hints: JSONObject, output: JSONObject | None = None
) -> dict[str, Any]:
    told: dict[str, Any] = {"name": name, "description": description, "inputSchema": parameters, "annotations": hints}
    if output is not None:
        told["outputSchema"] = output
    return told


OWN_TOOLS: Final[tuple[dict[str, Any], ...]] = (
    _tool(
        "search_tools",
        "Start here: find tools by words over all connected servers and published ideas. Gives names, modules and"
        " parameter schemas: what the calls of run_plan need.",
        _closed(
            {
                "words": {"type": "string", "description": "What the tool should do; empty: list all."},
                "module": {"type": "string", "description": "Only this server's tools."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "8 if absent."},
            },
            ["words"],
        ),
        _hints(read_only=True, open_world=False),
        _answer({"tools": {"type": "array", "items": _OBJECT}}, ["tools"]),
    ),
    _tool(
        "run_plan",
        "Run one or many tool calls as a plan. A call starts as soon as what it reads exists, independent ones at once;"
        ' results stay here, not in your context. A call: {"_tool": NAME, parameters..., "_outputPath": "log"}.'
        ' Any parameter may be a reference: "†state.log", "†state.log.0.id", "†results.0" (first call\'s result),'
        ' "†input.x", "†state.a || †state.b" (first that exists). "_each": "†state.items" runs a call per item,'
        ' "†item". "_module": as search_tools gives it, for ideas and names that servers share. Large values come back'
        " as references: check_run gives them. Read-only calls run; others wait for decide_approval.",
        _closed(
            {
                "calls": {"type": "array", "items": _OBJECT},
                "input": {"type": "object", "description": "What †input reads."},
                "instances": {"type": "object", "description": "Initial state by instance; calls run for each."},
                "output": {"description": "The wanted result: any JSON with references. Absent: the state."},
                "output_schema": {"type": "object", "description": "JSON Schema of the output."},
                "dry_run": {"type": "boolean", "description": "Only check it and tell the order."},
                "save_as": {"type": "string", "description": "Publish it as a tool of this name when done."},
                "wait_s": _wait(),
            },
            ["calls"],
        ),
        _hints(read_only=False, destructive=True, open_world=True),
    ),
    _tool(
        "solve",
        "Start a task that needs thinking between calls. You are asked for solutions turn by turn: the answer has"
        ' context, schema and instructions; write {"calls": [...], "output": ... or null} and hand it in with'
        " submit_solution.",
        _closed(
            {
                "task": {"type": "string", "minLength": 1, "description": "What to do."},
                "input": {"type": "object", "description": "What †input reads."},
                "output_schema": {"type": "object", "description": "JSON Schema of the output; absent: text."},
                "tools": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Names or patterns (git_*) of the tools to offer; absent: all.",
                },
                "idea": {"type": "string", "description": "A saved idea to be guided by."},
                "mind": {"enum": ["auto", "turns", "sampling", "model"], "description": "Who answers."},
                "planning": {
                    "enum": ["eager", "lazy"],
                    "description": "lazy: a person accepts each solution as a whole before its calls run.",
                },
                "limits": {"type": "object", "description": "Lower limits: calls, requests, wall_seconds."},
                "wait_s": _wait(),
            },
            ["task"],
        ),
        # By a model, or by sampling, calls run within the call of this tool.
        _hints(read_only=False, destructive=True, open_world=True),
        _RUN_ANSWER,
    ),
    _tool(
        "submit_solution",
        "Hand in the solution of a turn. Its calls run; you get the next turn or the output. A malformed one comes"
        " back with its errors: correct it and send it again.",
        _closed(
            {
                "run": _RUN,
                "turn": {"type": "integer", "minimum": 0, "description": "The turn it answers."},
                "solution": {
                    "type": "object",
                    "description": "{calls, output}, as the turn's schema says.",
                },
                "wait_s": _wait(),
            },
            ["run", "turn", "solution"],
        ),
        _hints(read_only=False, destructive=True, idempotent=True, open_world=True),
        _RUN_ANSWER,
    ),
    _tool(
        "check_run",
        "See how a run stands, get values whole, or cancel it. Without run: your latest runs.",
        _closed(
            {
                "run": _RUN,
                "paths": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": 100,
                    "description": "References to give whole: †state.log, †results.0, †output.",
                },
                "cancel": {"type": "boolean", "description": "End it; what was done stays."},
                "wait_s": _wait("45, or 0 with paths or cancel"),
            },
            [],
        ),
        _hints(read_only=False, idempotent=True, open_world=False),
    ),
    _tool(
        "decide_approval",
        "Settle what waits for approval. Ask the person first: these calls change things. Unknown outcomes"
        " take retry, skip or value; what modules ask value, deny or skip; all others approve, deny or edit.",
        _closed(
            {
                "run": _RUN,
                "decisions": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1000,
                    "items": _closed(
                        {
                            "approval": {"type": "string"},
                            "decision": {"enum": ["approve", "deny", "edit", "retry", "skip", "value"]},
                            "call": {"type": "object", "description": "For edit: the call as it shall run."},
                            "plan": {"type": "object", "description": "For edit of a plan: {calls, output}."},
                            "value": {"description": "For value: the result, or the answer."},
                            "reason": {"type": "string"},
                        },
                        ["approval", "decision"],
                    ),
                },
                "wait_s": _wait(),
            },
            ["run", "decisions"],
        ),
        _hints(read_only=False, destructive=True, open_world=True),
        _RUN_ANSWER,
    ),
    _tool(
        "search_ideas",
        "Find saved ideas (earlier runs and plans) by words and filters. Look here before planning what may have been"
        " done already.",
        _closed(
            {
                "words": {"type": "string", "description": "Absent: the newest."},
                "tool": {"type": "string", "description": "Ideas that call it."},
                "module": {"type": "string", "description": "Ideas that call a tool of this server."},
                "since": {"type": "string", "description": "A date, or how long ago: 3d, 12h."},
                "until": {"type": "string", "description": "Likewise."},
                "outcome": {"enum": ["done", "open", "failed", "stalled", "limit", "cancelled"]},
                "mind": {"type": "string", "description": "Who answered: turns, sampling, model."},
                "tag": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "10 if absent."},
            },
            [],
        ),
        _hints(read_only=True, open_world=False),
        _answer({"ideas": {"type": "array", "items": _OBJECT}}, ["ideas"]),
    ),
    _tool(
        "publish_idea",
        "Publish an idea or a run as a tool here: called later with new input, its plan runs again and no"
        " model is asked. solve: one is asked anew.",
        _closed(
            {
                "idea": {"type": "string", "description": "Id or name of an idea, or a run's id."},
                "name": {"type": "string", "description": "The tool's name: a-z, 0-9, _."},
                "description": {"type": "string", "description": "What it does."},
                "answer": {"enum": ["auto", "recorded", "plan", "solve"], "description": "auto if absent."},
                "choices": {
                    "type": "object",
                    "description": 'What a person decided: {"accept": true or [paths]}: constants that stay;'
                    ' {"take": {"calls.0.repo": "†input.repo"}}: where a value comes from; {"runs": [ids]}: other runs'
                    " of the task. Without them the error tells what is open.",
                },
            },
            ["idea", "name"],
        ),
        _hints(read_only=False, open_world=False),
        _answer({"name": {"type": "string"}, "version": {"type": "integer"}}, ["name", "version"]),
    ),
)
"""The definitions, in their wire form."""

OWN_NAMES: Final = frozenset(str(tool["name"]) for tool in OWN_TOOLS)
"""Names no idea and no module's tool may take."""
