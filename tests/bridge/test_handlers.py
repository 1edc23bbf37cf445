"""Handlers of messages: what they change of a Request holds for it, also when the run is taken up
again elsewhere.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest

from ideabridge.bridge import (
    Bridge,
    Configuration,
    Draft,
    Handlers,
    Idea,
    Message,
    RequestMade,
    Run,
    SolutionProposed,
    sync,
)
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import (
    ArgumentError,
    JSONObject,
    Tool,
    Toolbox,
    ToolDefinitionError,
    load_tool_file,
    message_handler,
    tool,
)
from tests.server.serving import call as call_over_mcp
from tests.server.serving import configured, over_stdio

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(read_only=True)
def shout(text: str) -> str:
    """Make text loud."""
    return text.upper()


@tool(read_only=True)
def hidden(text: str) -> str:
    """A tool that only handlers offer."""
    return f"<{text}>"


GUESS = Tool("guess", "Guess.", {"type": "object", "properties": {}}, {"type": "integer"})
NARROW: JSONObject = {
    "type": "object",
    "properties": {"text": {"enum": ["a", "b"]}},
    "required": ["text"],
}
CALM: JSONObject = {
    "type": "object",
    "properties": {"calm": {"type": "string"}},
    "required": ["calm"],
}


def only(message: Message, draft: Draft) -> None:
    """Offer only the tools named, `shout` for two texts alone; `add` them where the run
    has not got them.
    """
    named = message.value if isinstance(message.value, dict) else {}
    wanted = named.get("tools", [])
    listed = wanted if isinstance(wanted, list) else []
    kept = [one for one in draft.tools if one.name in listed]
    kept = [
        dataclasses.replace(one, parameters=NARROW) if one.name == "shout" else one for one in kept
    ]
    here = {one.name: one for one in (*Toolbox(hidden).tools.values(), GUESS)}
    draft.tools = [
        *kept,
        *(here[name] for name in listed if isinstance(name, str) and name in here),
    ]
    if "output" in named:
        draft.output_schema = CALM


def handlers() -> Handlers:
    made = Handlers()
    made.register("only", only)
    return made


def bridge_of(store: Path | None = None, own: Handlers | None = None) -> Bridge:
    return Bridge(
        toolbox=Toolbox(add, shout, hidden),
        store=store,
        handlers=handlers() if own is None else own,
    )


async def begun(bridge: Bridge, *listed: str, **more: bool) -> Run:
    context: list[JSONObject] = [{"type": "only", "only": {"tools": list(listed), **more}}]
    run = await bridge.solve("x", context=context, tools=["add", "shout"])
    assert await run.wait() == "needs_solution"
    return run


def offered(run: Run) -> list[str]:
    calls = run.answer()["requests"][0]["schema"]["properties"]["calls"]
    return [one["properties"]["_tool"]["const"] for one in calls.get("items", {}).get("anyOf", [])]


def call(name: str, **parameters: Any) -> JSONObject:
    return {"_tool": name, **parameters}


async def test_a_handler_leaves_tools_out_narrows_and_adds_them() -> None:
    async with bridge_of() as bridge:
        run = await begun(bridge, "shout", "hidden", "guess")
        assert offered(run) == ["shout", "hidden", "guess"]
        run.submit(0, {"calls": [call("add", a=1, b=2), call("shout", text="c")]})
        assert await run.wait() == "needs_solution"
        unknown, narrowed = (str(one["error"]) for one in run.errors())
        assert "unknown tool 'add'" in unknown
        assert "text" in narrowed
        calls = [
            call("shout", text="a"),
            call("hidden", text="†results.2"),
            call("guess", _output=5),
        ]
        run.submit(1, {"calls": calls})
        assert await run.wait() == "needs_solution"
        assert [run.value(f"†results.{place}") for place in (2, 3, 4)] == ["A", "<A>", 5]


async def test_a_handler_sets_the_schema_of_the_output() -> None:
    async with bridge_of() as bridge:
        run = await begun(bridge, "add", output=True)
        run.submit(0, {"calls": [], "output": "text, as the run was asked for"})
        assert await run.wait() == "needs_solution"
        assert "expected an object" in run.errors()[0]["error"]["message"]
        run.submit(1, {"calls": [], "output": {"calm": "yes"}})
        assert await run.result() == {"calm": "yes"}


async def test_a_run_taken_up_again_takes_what_was_offered_whatever_handlers_say_now(
    tmp_path: Path,
) -> None:
    store = tmp_path / "ideas.sqlite"
    async with bridge_of(store) as bridge:
        run = await begun(bridge, "shout", "hidden", output=True)
        made = await the_request(run)
        # Tools that the run already had are given as numbers, and only the new ones are written
        # out.
        assert made.offered is not None
        assert [type(one) for one in cast("list[Any]", made.offered["tools"])] == [dict, dict]

    async with bridge_of(store, Handlers()) as bridge:
        again = await bridge.run(run.id)
        assert offered(again) == ["shout", "hidden"]
        calls = [call("add", a=1, b=2), call("hidden", text="x")]
        again.submit(0, {"calls": calls, "output": {"calm": "†results.1"}})
        assert await again.result() == {"calm": "<x>"}
        assert "unknown tool 'add'" in str(again.errors())
        ended = again.id

    async with bridge_of(store, Handlers()) as bridge:
        whole = await bridge.run(ended)
        assert await whole.result() == {"calm": "<x>"}


async def the_request(run: Run) -> RequestMade:
    async for event in run:
        if isinstance(event, RequestMade):
            return event
    raise AssertionError("no Request was made")


async def test_what_a_handler_changed_holds_for_one_request() -> None:
    turns = iter([["add"], ["shout"]])

    def changing(message: Message, draft: Draft) -> None:
        named = next(turns, None)
        if named is None:
            draft.tools = draft.tools
        else:
            draft.tools = [one for one in draft.tools if one.name in named]

    own = Handlers()
    own.register("only", changing)
    async with bridge_of(own=own) as bridge:
        run = await begun(bridge)
        seen: list[list[str]] = []
        for turn in range(3):
            seen.append(offered(run))
            run.submit(
                turn,
                {
                    "calls": [
                        call(seen[-1][0], **({"a": 1, "b": 2} if turn != 1 else {"text": "x"}))
                    ]
                },
            )
            await run.wait()

        assert seen == [["add"], ["shout"], ["add", "shout"]]


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (["add"], "tools of a handler: expected a Tool, found 'add'"),
        ([GUESS, GUESS], "'guess' occurs twice"),
    ],
)
async def test_a_handler_that_leaves_nonsense_gives_up_its_run_alone(
    tools: list[Any], message: str
) -> None:
    def wrong(_: Message, draft: Draft) -> None:
        draft.tools = tools

    own = Handlers()
    own.register("only", wrong)
    async with bridge_of(own=own) as bridge:
        run = await bridge.solve("x", context=[{"type": "only", "only": {}}])
        assert await run.wait() == "interrupted"
        assert message in str(run.answer()["reason"])
        assert await (await bridge.solve("y")).wait() == "needs_solution"


# -- handlers that fail, and handlers in files of tools --------------------------------------------

FILE = """
from ideabridge.bridge import Draft, Message
from ideabridge.tools import message_handler, tool


@message_handler("weather")
def say_weather(message: Message, draft: Draft) -> None:
    draft.say("user", f"The sky is {message.value['sky']}.")


@tool(read_only=True)
def look(place: str) -> str:
    '''Look there.'''
    return place
"""
WEATHER: list[JSONObject] = [{"type": "weather", "weather": {"sky": "blue"}}]


def failing(message: Message, draft: Draft) -> None:
    """Read what is not there."""
    draft.say("user", cast("Any", message.value)["no"])


async def test_a_handler_that_raises_interrupts_its_run_which_is_kept_until_it_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "ideas.sqlite"
    own = Handlers()
    own.register("weather", failing)
    async with bridge_of(store, own) as bridge:
        run = await bridge.solve("x", context=WEATHER)
        assert await run.wait() == "interrupted"
        told = "the handler of messages of type 'weather' failed: KeyError: 'no'"
        assert run.answer()["reason"] == told
        assert [(one["run"], one["status"]) for one in bridge.runs()] == [(run.id, "interrupted")]
        other = await bridge.solve("y")
        assert await other.wait() == "needs_solution"

    assert told in caplog.text
    async with bridge_of(store, own) as bridge:
        # A process that reads the run here gets the same reason, and nothing fails.
        again = await bridge.run(run.id)
        assert (again.status, again.answer()["reason"]) == ("interrupted", told)

    async with bridge_of(store, Handlers()) as bridge:
        mended = await bridge.resume(run.id)
        assert await mended.wait() == "needs_solution"
        mended.submit(0, {"calls": [], "output": "blue"})
        assert await mended.result() == "blue"


async def test_a_handler_that_raises_later_keeps_what_was_done(tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    own = Handlers()

    def failing_later(message: Message, draft: Draft) -> None:
        if any(one.type == "call" for one in draft.messages):
            raise RuntimeError("not twice")

    own.register("weather", failing_later)
    async with bridge_of(store, own) as bridge:
        run = await bridge.solve("x", context=WEATHER)
        run.submit(0, {"calls": [call("add", a=1, b=2)], "output": None})
        assert await run.wait() == "interrupted"
        assert "RuntimeError: not twice" in str(run.answer()["reason"])
        assert run.value("†results.0") == 3

    async with bridge_of(store, Handlers()) as bridge:
        mended = await bridge.resume(run.id)
        assert await mended.wait() == "needs_solution"
        mended.submit(1, {"calls": [], "output": "†results.0"})
        assert await mended.wait() == "needs_solution"
        mended.submit(2, {"calls": [], "output": "three"})
        assert await mended.result() == "three"
        assert len(bridge.store.ideas.of_run(run.id)) == 3


async def test_files_of_tools_bring_handlers_and_those_of_the_program_take_precedence(
    tmp_path: Path,
) -> None:
    file = tmp_path / "own.py"
    file.write_text(FILE)
    toolbox = load_tool_file(file)
    assert ([*toolbox.tools], [*toolbox.handlers]) == (["look"], ["weather"])
    async with Bridge(Configuration(tools=(str(file),))) as bridge:
        run = await bridge.solve("x", context=WEATHER)
        assert "The sky is blue." in str(run.answer()["requests"])

    own = Handlers()
    own.register("weather", lambda message, draft: draft.say("user", "It is as it is."))
    async with Bridge(toolbox=toolbox, handlers=own) as bridge:
        run = await bridge.solve("x", context=WEATHER)
        assert "It is as it is." in str(run.answer()["requests"])


async def test_over_mcp_a_host_sends_messages_that_a_file_of_tools_handles(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(FILE)
    async with over_stdio(configured(tmp_path, tools=[str(file)]), "auto") as client:
        told = await call_over_mcp(client, "solve", context=WEATHER)
        assert "The sky is blue." in str(told["requests"])


def test_what_cannot_be_a_handler_is_told() -> None:
    async def later(message: Message, draft: Draft) -> None:
        """Handle it later."""

    with pytest.raises(ArgumentError, match="expected a plain function"):
        Handlers().register("weather", cast("Any", later))

    for decorate in (
        lambda: message_handler("weather")(cast("Any", later)),
        lambda: message_handler(cast("Any", only)),
    ):
        with pytest.raises(ToolDefinitionError, match="message_handler"):
            decorate()


# -- reasoning before the calls --------------------------------------------------------------------


def thoughts_in(idea: Idea) -> Any:
    assert isinstance(idea.solution, dict)
    return idea.solution["thought_process"]


async def test_reasoning_comes_before_the_calls_is_kept_and_changes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    async with Bridge(Configuration(thought_process=True), store=store) as bridge:
        run = await bridge.solve("x", input={"names": ["a"]})
        await run.wait()
        schema = run.answer()["requests"][0]["schema"]
        assert list(schema["properties"]) == ["thought_process", "calls", "output", "program"]
        assert schema["required"] == ["thought_process"]
        assert schema["oneOf"] == [{"required": ["calls", "output"]}, {"required": ["program"]}]
        thought = "†input.names are to be counted; {not} read as anything"
        run.submit(0, {"thought_process": thought, "calls": [call("count", items="†input.names")]})
        await run.wait()
        # Leaving it out is a fault, but after the last Solution, there is no mind to tell.
        run.submit(1, {"calls": [], "output": "one"})
        assert await run.result() == "one"
        proposed = [event async for event in run if isinstance(event, SolutionProposed)]
        assert [event.extra for event in proposed] == [{"thought_process": thought}, None]
        first = bridge.store.ideas.of_run(run.id)[0]
        assert thoughts_in(bridge.store.ideas.get(first.id, caller=SEES_ALL).idea) == thought
        run_id = run.id

    # The setting belongs to the run, not to the process.
    async with Bridge(store=store) as bridge:
        assert (await bridge.run(run_id)).machine.settings.thought_process
        plain = await bridge.solve("x")
        await plain.wait()
        assert "thought_process" not in plain.answer()["requests"][0]["schema"]["properties"]
        asked = await bridge.solve("x", thought_process=True)
        await asked.wait()
        assert "thought_process" in asked.answer()["requests"][0]["schema"]["properties"]


def test_a_plan_asks_for_no_reasoning() -> None:
    with sync.Bridge(Configuration(thought_process=True)) as bridge:
        assert bridge.run_plan(calls=[call("count", items=[1])], output="†results.0") == 1
