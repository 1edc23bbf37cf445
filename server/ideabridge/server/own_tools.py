"""Own tools: the definitions of the server's own tools, as hosts receive them, and their
implementations.

A host sends these definitions to its model with every request, so they are few and short.

Hosts rewrite schemas for their models. These forms survive in all hosts that were tested
(docs/hosts.md):

- Every schema has a `type` or an `anyOf`. Codex and opencode's OpenAI provider replace a schema
  that has neither with `{}`, which loses its description.
- A value of any type is an `anyOf` with one entry per type, and its array has `items`. Codex turns
  a list of types into an array of strings. opencode turns it into an array without `items`, and the
  Gemini API refuses a request with such an array.
- An `enum` has a `type`, which the Gemini API requires.
- An object with any properties has `additionalProperties`. Otherwise, Codex shows its model an
  object that has no properties, and pydantic-ai does not let OpenAI's models send any.
- No schema contains `$ref`, or combining keywords at its top level.

Annotations omit `idempotentHint` and `openWorldHint` if these have the values that clients assume
by default.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

import anyio

from ideabridge.bridge.context.preview import shorten_literal
from ideabridge.bridge.context.state import MISSING
from ideabridge.bridge.errors import DecisionError, UnknownPathError
from ideabridge.bridge.minds.choice import AUTO, choose
from ideabridge.bridge.modules.blocks import MOST_BLOCKS, Blocks
from ideabridge.bridge.modules.start_progress import reporting_starts
from ideabridge.bridge.offer.plan_tools import PlanTools
from ideabridge.bridge.offer.program_tools import names_for_program
from ideabridge.bridge.plan import Plan, read_plan
from ideabridge.bridge.publishing.program_answer import short_words
from ideabridge.bridge.publishing.written import plan_document
from ideabridge.bridge.runs.people import Decision
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import StoreError
from ideabridge.server.answers import MAX_DIRECT, MAX_RESULT, ToolAnswer, answer, fitting
from ideabridge.server.asking.elicitation import by_tool
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.brief import NOTHING, Known
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.finding import Finding
from ideabridge.server.publishing import ListedTools, Publishing
from ideabridge.server.running import WAIT_S, Running
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    decode,
    encode,
    encode_text,
    list_or_empty,
    object_or_empty,
    plain_text,
)
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.schema import Validator
from ideabridge.tools.threads import compute_beside
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
"""The tools that are listed by default, each with the parameters that the list leaves out."""

_LISTED: Final = 200
"""Maximum length, in characters, of a title in the list of runs, and of the reason why a call was
refused.
"""

_BOUNDS: Final = ("minimum", "maximum", "minLength", "minItems", "maxItems")


def own_tools(*, programs: bool, every: bool) -> tuple[dict[str, Any], ...]:
    """Return the definitions that are listed.

    Args:
        programs: whether `run_plan` offers programs.
        every: whether to list all tools with all parameters. Otherwise, only the tools and
            parameters that most tasks need are listed.
    """
    tools = OWN_TOOLS if programs else tuple(map(_without_programs, OWN_TOOLS))
    if every:
        return tools
    return tuple(_without(tool, _RARE[tool["name"]]) for tool in tools if tool["name"] in _RARE)


def _without(tool: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return a tool without some of its parameters, and without bounds. The schema must still
    accept the omitted parameters, because some hosts check calls against it. The bounds still
    apply; an error states them.
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
"""Names that no idea and no module's tool is allowed to have. Each of these tools can be called,
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

    Models often write objects and arrays as JSON strings, which are parsed here, and write null
    instead of omitting an argument.

    Raises:
        ValueMismatchError: the arguments do not satisfy the tool's parameters. The error contains
            path, found and expected for every problem.
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


# -- handlers --------------------------------------------------------------------------------------

_WRITTEN_S: Final = 5.0
"""Time, in seconds, for which a request for values waits for the journal to be written."""

_PLAN_KEYS: Final = ("calls", "program", "input", "instances", "output", "output_schema")

Arguments: TypeAlias = dict[str, Any]
"""Arguments that satisfy the parameters of their tool."""


class OwnHandlers:
    """Answers calls to own tools. `listed` is the list of tools that hosts see.

    Every failure of a handler is an `IdeabridgeError`, whose message becomes a tool error.
    """

    def __init__(self, running: Running, listed: ListedTools, record: DirectCalls) -> None:
        self._record = record
        self._bridge = running.bridge
        self._running = running
        self._publishing = Publishing(running, listed, record)
        self._finding = Finding(self._bridge, record, running.search)
        self._handlers: dict[str, Callable[[Arguments, ToolRequest], Awaitable[ToolAnswer]]] = {
            "search_tools": self._finding.search_tools,
            "run_plan": self._run_plan,
            "solve": self._solve,
            "submit_solution": self._submit_solution,
            "check_run": self._check_run,
            "decide_approval": self._decide_approval,
            "search_ideas": self._finding.search_ideas,
            "publish_idea": self._publishing.publish_idea,
        }

    @staticmethod
    def starts_run(name: str, arguments: JSONObject) -> bool:
        """Return whether a call to an own tool starts a run."""
        return name == "run_plan" or (name == "solve" and "run" not in arguments)

    async def call(self, name: str, arguments: JSONObject, request: ToolRequest) -> ToolAnswer:
        """Answer a call to an own tool.

        Raises:
            IdeabridgeError: the call fails; the message states the reason.
        """
        return await self._handlers[name](await read_tool_arguments(name, arguments), request)

    # -- plans -------------------------------------------------------------------------------------

    async def _run_plan(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        if request.resumed is not None:
            return await self._answered(request.resumed, arguments, request)

        parts = {key: arguments[key] for key in _PLAN_KEYS if key in arguments}
        plan = await compute_beside(parts, read_plan, parts)
        save_as = arguments.get("save_as")
        if save_as is not None:
            self._publishing.check_free(save_as, request.caller)

        await self._start_servers(plan, request)
        if arguments.get("dry_run"):
            preview = await self._bridge.dry_run(plan, caller=request.caller)
            if plan.program is None:
                preview["drawing"] = await self._bridge.draw(plan, "text", caller=request.caller)

            text = f"dry run, nothing was called: {encode_text(preview)}"
            if save_as is not None:
                document = plan_document(plan, save_as, preview.get("missing_inputs", ()))
                preview["published"], saved = await self._publishing.save(
                    document, None, request.caller
                )
                text = f"{saved}\n{text}"

            return answer(preview, text)

        run = await self._bridge.run_plan(plan, caller=request.caller, samples=request.samples)
        if save_as is not None:
            await self._bridge.patiently(lambda: self._running.save_when_done(run, save_as))

        return await self._answered(run, arguments, request)

    async def _start_servers(self, plan: Plan, request: ToolRequest) -> None:
        """If the client wants progress, start the servers of a plan and report their progress. The
        servers start before the run begins. If this function waited for servers after that, it
        would miss the progress that the run itself reports.
        """
        statuses = self._bridge.modules.statuses()
        if request.progress is None or all(status.state == "up" for status in statuses):
            return

        wait: Callable[[], Awaitable[object]]
        if plan.program is None:
            wait = PlanTools(self._bridge.offer, plan, request.caller).catalogue
        else:
            wait = partial(names_for_program, self._bridge.offer, plan.program, request.caller)

        await reporting_starts(wait, request.progress, self._bridge.modules.connecting)

    async def _answered(
        self, run: Run, arguments: Arguments, request: ToolRequest, reader: Known = NOTHING
    ) -> ToolAnswer:
        await self._running.wait_started(run, request, arguments.get("wait_s", WAIT_S))
        return self._running.answer_of(run, request, reader=reader)

    # -- turns -------------------------------------------------------------------------------------

    async def _solve(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        begins = next((key for key in ("task", "context") if key in arguments), None)
        turn = next((key for key in ("run", "turn", "solution") if key in arguments), None)
        if begins is None and turn is None:
            raise ArgumentError("solve: expected a task or a context; or run, turn and solution")
        if begins is None:
            return await self._submit_solution(
                await read_tool_arguments("submit_solution", arguments), request
            )

        if turn is not None:
            raise ArgumentError(
                f"solve: {begins} starts a run, and {turn} continues one; pass only one of them"
            )

        if request.resumed is not None:
            return await self._answered(request.resumed, arguments, request)

        mind = choose(arguments.get("mind", AUTO), self._bridge.mind, samples=request.samples)
        guide = arguments.get("idea")
        messages: list[JSON] = arguments.get("context", [])
        guidance = [] if guide is None else self._finding.guidance(guide, request.caller)
        if "task" not in arguments and not messages:
            raise ArgumentError(
                "solve: the context is empty; expected messages that say what to do, or a task"
            )

        solve = partial(
            self._bridge.solve,
            arguments.get("task"),
            input=arguments.get("input"),
            output_schema=arguments.get("output_schema"),
            tools=arguments.get("tools"),
            context=[*guidance, *messages],
            limits=arguments.get("limits"),
            mind=mind,
            planning=arguments.get("planning", "eager"),
            shown=arguments.get("shown"),
            thought_process=arguments.get("thought_process"),
            caller=request.caller,
        )
        # Wait for servers whose tools are not known yet, so that these tools can be offered.
        connecting = self._bridge.modules.connecting
        run = await reporting_starts(solve, request.progress, connecting)
        sent: list[JSON] = [*messages]
        if "task" in arguments:
            sent.append(arguments["task"])

        if "input" in arguments:
            sent.append({"type": "input", "input": arguments["input"]})

        result = await self._answered(run, arguments, request, Known(sent=tuple(sent)))
        if result.get("isError"):
            await run.patiently(lambda: run.cancel("its first Request was too large to show"))

        return result

    async def _submit_solution(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        room = await self._run(arguments, request)
        before = room.runner.request
        notes = await room.patiently(
            lambda: room.submit(int(arguments["turn"]), arguments["solution"])
        )
        # Answer about the root run, because that is the run that the host started, even if the turn
        # belongs to a room.
        run = room.root
        await self._running.wait(run, arguments.get("wait_s", WAIT_S), request)
        is_next = before is not None and room.runner.request is not before
        reader = Known(room.id, before) if is_next else NOTHING
        return self._running.answer_of(run, request, reader=reader, notes=notes)

    # -- runs --------------------------------------------------------------------------------------

    async def _check_run(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        if "run" not in arguments:
            for key in ("paths", "cancel"):
                if key in arguments:
                    raise UnknownPathError(
                        f"{key}: needs `run`; without `run`, check_run lists your latest runs"
                    )

            return await self._latest(request.caller)

        if (session := await self._session_shown(arguments, request)) is not None:
            return session

        cancel = arguments.get("cancel")
        paths = arguments.get("paths")
        if cancel:
            run = await self._bridge.cancel(
                arguments["run"], "the caller cancelled it", caller=request.caller
            )
        else:
            run = await self._run(arguments, request)

        await self._running.wait(
            run, arguments.get("wait_s", 0.0 if cancel or paths else WAIT_S), request
        )
        if paths:
            # Wait until the latest events are in the journal.
            with anyio.move_on_after(_WRITTEN_S):
                await run.runner.wait_written()

        if not paths or run.unwritten is not None:
            return self._running.answer_of(run, request)
        return self._values(run, paths)

    async def _session_shown(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer | None:
        """Return the calls of an active direct-call session, or None if the run is not such a
        session.
        """
        with suppress(StoreError):
            await self._record.written()

        session = self._bridge.direct_sessions.shown(arguments["run"], request.caller)
        if session is None:
            return None

        info, calls = session
        for key in ("paths", "cancel"):
            if key in arguments:
                raise UnknownPathError(
                    f"{key}: {info.run} is a session of direct calls, not yet a run"
                )

        entries: list[JSON] = []
        left = MAX_RESULT // 3
        for call in reversed(calls):
            entry = {**call, "parameters": shorten_literal(call["parameters"])}
            left -= len(encode(entry))
            if left < 0:
                break
            entries.append(entry)

        entries.reverse()
        result: JSONObject = {**info.to_json(), "shown": entries}
        return answer(result, "\n".join([info.line, *map(encode_text, entries)]))

    async def _latest(self, caller: str) -> ToolAnswer:
        lines: list[str] = []
        listed: list[JSONObject] = []
        for run in self._bridge.runs(caller=caller):
            entry = cast("JSONObject", {**run})
            entry["title"] = short_words(run["title"], _LISTED)
            if "refused" in run:
                entry["refused"] = short_words(run["refused"], _LISTED)

            listed.append(entry)
            # The program was refused, although the run in which it was written succeeded.
            status = "refused" if "refused" in run else run["status"]
            lines.append(f"{run['run']}: {status} {run['kind']} {entry['title']}")
            if "reason" in run:
                lines.append(
                    f"  {run['reason']}; check_run with this run continues it, or says why it "
                    "cannot"
                )

            if run["status"] == "needs_solution":
                note = self._running.sampler.unanswered_note(
                    await self._bridge.run(str(run["run"]), caller=caller)
                )
                if note is not None:
                    entry["note"] = note
                    lines.append(f"  {note}")

        sessions = await self._record.shown(caller)
        if sessions:
            lines += [
                "your latest sessions of direct calls, which publish_idea accepts:",
                *(session.line for session in sessions),
            ]

        result: JSONObject = {"runs": list[JSON](listed)}
        if sessions:
            result["sessions"] = [session.to_json() for session in sessions]

        return answer(result, "\n".join(["your latest runs, newest first:", *lines]))

    def _values(self, run: Run, paths: list[str]) -> ToolAnswer:
        values: JSONObject = {}
        missing: dict[str, str] = {}
        blocks = Blocks()
        # Each of the two gets half of the space, because the text repeats the structured content.
        left = MAX_RESULT // 2
        for path in paths:
            try:
                value = fitting(blocks.take(run.value(path)), path, left)
            except IdeabridgeError as error:
                missing[path] = self._bridge.secrets.mask(str(error))
                continue

            left = max(2000, left - len(encode(value)))
            values[path] = value

        if not values:
            raise UnknownPathError("\n".join(missing.values()))

        result: JSONObject = {"run": run.id, "status": run.status, "values": values}
        if missing:
            result["missing"] = dict[str, JSON](missing)

        content = blocks.place(
            values,
            first=1,
            room=MAX_DIRECT - 2 * len(encode(values)),
            otherwise=(
                f"the limit is {MAX_DIRECT:,} bytes and {MOST_BLOCKS} blocks; ask only for this, "
                "or see the page"
            ),
        )
        lines = [f"run {run.id}: {run.status}"]
        lines += [f"{path} = {plain_text(value)}" for path, value in values.items()]
        lines += [f"nothing at {path}: {reason}" for path, reason in missing.items()]
        return answer(result, "\n".join(lines), content)

    async def _run(self, arguments: Arguments, request: ToolRequest) -> Run:
        return await self._bridge.run(arguments["run"], caller=request.caller)

    async def _decide_approval(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        """Decide approvals in order. If one decision is refused, the earlier ones still apply."""
        run = await self._run(arguments, request)
        person = self._running.deciding.by_person(run, request)
        if person is not None:
            raise DecisionError(f"decide_approval: nothing was decided: {person}")

        # In a request that is repeated with the person's answers, its own decisions have already
        # been applied.
        if request.resumed is None:
            decisions: list[dict[str, Any]] = arguments["decisions"]
        else:
            decisions = []

        for number, decision_given in enumerate(decisions):
            reason = decision_given.get("reason")
            try:
                decision = Decision(
                    decision_given["decision"],
                    call=decision_given.get("call"),
                    reason=reason if isinstance(reason, str) else None,
                    by=by_tool(request),
                    value=decision_given.get("value", MISSING),
                    plan=decision_given.get("plan"),
                    grant=decision_given.get("grant"),
                )
                await self._bridge.decide(run, decision_given["approval"], decision)
            except DecisionError as error:
                done = f"; the {number} before it are valid" if number else ""
                raise DecisionError(f"decisions[{number}]: {error}{done}") from None

        if decisions:
            request.notes.append(
                f"the journal names the assistant as the one who decided on {len(decisions)} of these"
            )

        await self._running.wait(run, arguments.get("wait_s", WAIT_S), request)
        return self._running.answer_of(run, request)
