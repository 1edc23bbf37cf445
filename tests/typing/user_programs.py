"""What users write, one function for each feature. `test_typing` checks the types from
outside, and runs them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ideabridge.bridge import (
    Answer,
    ApprovalAsked,
    ApprovalRequest,
    ApprovalRule,
    ApprovalRules,
    Bridge,
    CallFailedError,
    CallFinished,
    CallStarted,
    Configuration,
    Decision,
    DecisionName,
    Draft,
    Event,
    GroupFailedError,
    Handlers,
    Limits,
    ListedRun,
    Message,
    MindFunction,
    MindName,
    ModelConfiguration,
    ModuleConfiguration,
    Planning,
    QuestionAsked,
    Request,
    Run,
    RunEnded,
    RunFailedError,
    RunStatus,
    SamplingSettings,
    Usage,
    parse_configuration,
    read_plan,
    sync,
)
from ideabridge.tools import (
    JSON,
    Activity,
    ActivityContext,
    Annotations,
    JSONObject,
    Tool,
    Toolbox,
    tool,
)

PLAN = {
    "input": {"names": ["Ada", "Grace"]},
    "calls": [
        {"_tool": "count", "items": "†input.names", "_outputPath": "n"},
        {"_tool": "join", "items": "†input.names", "separator": ", ", "_outputPath": "line"},
    ],
    "output": {"n": "†state.n", "line": "†state.line"},
}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "line": {"type": "string"}}}
SETTINGS = {"temperature": 0, "max_tokens": 200}


class Line(BaseModel):
    """What the plan gives."""

    n: int
    line: str


@tool(read_only=True)
async def price(item: str, context: ActivityContext) -> float:
    """The price of an item."""
    await context.progress(1, 1, item)
    context.add_message({"type": "data", "kind": "price", "data": {"item": item}})
    return 2.5


@tool(destructive=False, output_schema={"type": "string"})
def send(to: str, text: str = "hello") -> str:
    """Send a message."""
    return f"{text}, {to}"


async def echo(arguments: JSONObject, context: ActivityContext) -> JSONObject:
    """An activity without `@tool`."""
    return {"said": arguments["text"], "places": [*context.output_paths]}


ECHO = Tool(
    "echo",
    "Say it again.",
    {"type": "object", "properties": {"text": {"type": "string"}}},
    annotations=Annotations(read_only=True),
)
TOOLBOX = Toolbox(price, send, ECHO, Activity("echo", echo))


async def plans() -> Line:
    """A plan as a constant, as a literal, in parts, and read before it runs."""
    async with Bridge() as bridge:
        line = await (await bridge.run_plan(PLAN)).result(Line)
        literal = await bridge.run_plan(
            {"calls": [{"_tool": "template", "text": "x", "values": {}}], "output": None}
        )
        await literal.wait(10)
        calls = [{"_tool": "count", "items": "†input.names", "_outputPath": "n"}]
        parts = await bridge.run_plan(calls=calls, input={"names": [line.line]}, output="†state.n")
        number: int = await parts.result(int)
        assert number == 1
        plan = read_plan(PLAN)
        told = await bridge.dry_run(plan)
        assert told["calls"]
        assert "count" in await bridge.draw(PLAN, "text")
        lazy: Planning = "lazy"
        waiting = await bridge.run_plan(plan, planning=lazy, input={"names": ["Alan"]})
        assert await waiting.wait() == "needs_approval"
        if waiting.plan is not None:
            assert waiting.plan.draw("mermaid")
        waiting.decide(waiting.pending()[0].approval, "approve", by="me")
        assert await waiting.result(dict[str, str | int]) == {"n": 1, "line": "Alan"}
        latest: list[ListedRun] = bridge.runs(limit=1)
        assert latest[0]["run"] == waiting.id
        return line


def configurations() -> list[Configuration]:
    """Configurations, by their classes and as an object."""
    model = ModelConfiguration(
        name="openai:tiny", base_url="http://127.0.0.1:8080/v1", settings=SETTINGS
    )
    return [
        Configuration(
            model=model,
            limits=Limits(calls=10, tokens=1000),
            sampling=SamplingSettings(max_tokens=300),
            approval=ApprovalRules(rules=(ApprovalRule(tool="send", then="allow"),)),
            mcpServers={
                "time": ModuleConfiguration(command="python", args=("-m", "mcp_server_time"))
            },
        ),
        Configuration(model="openai:gpt-5-mini", approval="allow_all", thought_process=True),
        parse_configuration({"approval": "allow_all", "limits": {"calls": 5}}),
        parse_configuration({"mcpServers": {}}, project=Path.cwd()),
    ]


async def decide(request: ApprovalRequest) -> Decision:
    """An approver."""
    if request.kind == "question" and request.question is not None:
        return Decision("value", value={"name": "Ada"}, reason=str(request.question["message"]))
    decision: DecisionName = "approve" if request.call.get("to") == "Ada" else "deny"
    return Decision(decision, reason=request.why)


async def approvals() -> list[str]:
    """Decisions by an approver, and by hand."""
    calls = [{"_tool": "send", "to": to, "_outputPath": f"sent || {to}"} for to in ("Ada", "Eve")]
    async with Bridge(toolbox=TOOLBOX, approver=decide) as bridge:
        state = await (await bridge.run_plan(calls)).result()

    asks = Configuration(approval=ApprovalRules(default="read_only"))
    async with Bridge(asks, toolbox=TOOLBOX) as bridge:
        run = await bridge.run_plan({"calls": calls[:1]})
        while await run.wait() == "needs_approval":
            for one in run.pending():
                edited = {**one.call, "text": "good day"}
                run.decide(one.approval, "edit", by="me", call=edited)
        return [state["sent"], run.value("†state.sent")]


async def events(run: Run) -> list[str]:
    """The events of a run."""
    seen: list[str] = []
    event: Event
    async for event in run:
        match event:
            case CallStarted() | ApprovalAsked():
                seen.append(f"{event.name} {event.call} {event.tool_name}")
            case CallFinished():
                seen.append(
                    f"{event.tool_name}: "
                    f"{event.value if event.error is None else event.error['message']}"
                )
            case QuestionAsked():
                seen.append(event.message)
            case RunEnded():
                seen.append(event.status)
            case _:
                pass

    return seen


class Own:
    """A mind of one's own."""

    name = "own"

    async def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        """A Solution, in pieces."""
        assert request.texts
        yield '{"calls": [{"_tool": "count", "items": "†input.names"}],'
        yield b' "output": {"n": "\xe2\x80\xa0results.0", "line": "?"}}'


def hint(message: Message, draft: Draft) -> None:
    """A handler."""
    draft.say("system", f"A hint: {message.value}")
    draft.properties["guess"] = {"type": "integer"}
    draft.tools = [one for one in draft.tools if one.annotations.read_only]
    draft.model["temperature"] = 0


async def minds() -> list[Any]:
    """The loop, by turns and by a mind of one's own."""
    handlers = Handlers()
    handlers.register("hint", hint)
    async with Bridge(mind=Own(), handlers=handlers) as bridge:
        context = [{"type": "hint", "hint": "count them"}]
        run = await bridge.solve(
            "Count.", input={"names": ["a"]}, output=Line, context=context, tools=["count"]
        )
        first = await run.result(Line)
        by: MindName = "turns"
        asked = await bridge.solve(
            "Count.", output_schema=SCHEMA, mind=by, limits={"requests": 3}, thought_process=True
        )
        status: RunStatus = await asked.wait()
        request = asked.answer()["requests"][0]
        assert status == "needs_solution"
        assert request["context"]
        solution = {"calls": list[JSONObject](), "output": {"n": 0, "line": ""}}
        asked.submit(asked.turn, solution)
        return [first.n, await asked.result()]


async def sessions() -> list[Any]:
    """Steps that the program itself answers."""
    kinds: list[str] = []
    async with Bridge(toolbox=TOOLBOX) as bridge, bridge.session(state={"item": "tea"}) as session:
        await session.run({"_tool": "price", "item": "†state.item", "_outputPath": "price"})
        calls = [{"_tool": "price", "item": item} for item in ("tea", "cake")]
        both = await session.run_all(calls)
        first = await session.run_any(calls)
        try:
            await session.run({"_tool": "template", "text": "{missing}", "values": {}})
        except (CallFailedError, GroupFailedError) as error:
            kinds.append(error.errors[0]["error"]["kind"])
        return [session.state["price"], sum(both), first, *kinds]


async def single_calls() -> list[float]:
    """Calls without a session."""
    calls = [{"_tool": "price", "item": item} for item in ("tea", "cake")]
    async with Bridge(toolbox=TOOLBOX) as bridge:
        one: float = await bridge.call(
            {"_tool": "price", "item": "†input.item"}, output=float, input={"item": "tea"}
        )
        first: float = await bridge.any(calls, output=float)
        ended: float = await bridge.race(calls, output=float, state={"items": []})
        every: list[float] = await bridge.all(calls, output=float)
        untyped: list[Any] = await bridge.all(calls)
        return [one, first, ended, *every, *untyped]


async def count_them(request: Request) -> JSONObject:
    """A mind that is a function."""
    kinds: list[str] = [message.kind for message in request.context]
    stored: list[JSON] = request.context_json
    assert len(kinds) == len(stored)
    return {"calls": [], "output": len(request.texts)}


def in_words(request: Request) -> str:
    """A mind that is a plain function."""
    return '{"calls": [], "output": 7}'


MINDS: list[MindFunction] = [count_them, in_words]


async def function_minds() -> list[int]:
    """Functions that answer Requests."""
    answers: list[int] = []
    for mind in MINDS:
        async with Bridge(mind=mind) as bridge:
            run = await bridge.solve("Count.", output=int)
            answers.append(await run.result(int))

    async with Bridge(mind=count_them) as bridge:
        answers.append(await (await bridge.solve("Count.", output=int)).result(int))
    return answers


async def publishing() -> Any:
    """A run becomes a tool."""
    how: Answer = "plan"
    parameters = {"between": {"at": ["calls.1.separator"]}}
    async with Bridge() as bridge:
        run = await bridge.run_plan(PLAN)
        await run.wait()
        await bridge.publish(run.id, "line_of", answer=how, parameters=parameters)
        arguments = {"names": ["Alan"]}
        line: Line = await bridge.call_idea("line_of", arguments, output=Line)
        assert line.n == 1
        replay = await bridge.start_idea("line_of", arguments)
        assert replay.run is not None
        assert await replay.run.result() == await bridge.call_idea("line_of", arguments)
        return line.line


def scripts() -> list[Any]:
    """The bridge without `async`."""

    def approve(request: ApprovalRequest) -> Decision:
        return Decision("approve", reason=request.why)

    ended: list[str] = []
    with sync.Bridge(toolbox=TOOLBOX, approver=approve) as bridge, bridge.session() as session:
        line = bridge.run_plan(PLAN, output=Line)
        number = bridge.run_plan(calls=[{"_tool": "count", "items": [1, 2]}], output="†results.0")
        try:
            bridge.run_plan({"calls": [{"_tool": "template", "text": "{x}", "values": {}}]})
        except RunFailedError as error:
            ended.append(error.errors[0]["call"]["_tool"])

        prices = session.run_all(
            [{"_tool": "price", "item": "tea"}, {"_tool": "send", "to": "Ada"}]
        )
        calls = [{"_tool": "price", "item": "tea"}]
        first: float = bridge.any(calls, output=float)
        both: list[float] = bridge.all(calls, output=float)
        length: int = bridge.call(
            {"_tool": "count", "items": "†input.text"}, output=int, input={"text": "x"}
        )
        kind = bridge.run_plan(PLAN) and bridge.runs(limit=1)[0]["kind"]
        return [line.line, number, prices[0] * 2, *ended, first, *both, length, kind]
