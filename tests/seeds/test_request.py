"""Agent/Request: what its document says of contexts, schemas and solutions, and no
other test holds.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge, Draft, Handlers, Message
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.cli.conftest import Run
from tests.seeds.minds import Prepared
from tests.server.serving import call, configured, over_stdio

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDS: JSONObject = {
    "calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}],
    "output": None,
}
GIVES: JSONObject = {"calls": [], "output": "†state.sum"}


async def requests_of(task: str, *solutions: JSON, context: list[JSON] | None = None) -> Prepared:
    """The mind of a run that has ended, in a store of its own."""
    mind = Prepared(*solutions)
    async with Bridge(toolbox=Toolbox(add), mind=mind) as bridge:
        run = await bridge.solve(task, context=context, output_schema={"type": "integer"})
        assert await run.result() == 3
    return mind


async def test_equal_contexts_and_schemas_make_equal_requests() -> None:
    first = await requests_of("Add 1 and 2.", ADDS, GIVES)
    second = await requests_of("Add 1 and 2.", ADDS, GIVES)
    other = await requests_of("Add 2 and 1.", ADDS, GIVES)
    ids = [[request.id for request in mind.requests] for mind in (first, second, other)]
    assert ids[0] == ids[1]
    assert not {*ids[0]} & {*ids[2]}


async def test_a_context_is_rebuilt_and_holds_no_answer_and_nothing_of_other_runs() -> None:
    mind = Prepared({"thought_process": "MY THOUGHT", **ADDS}, GIVES, {"output": 3})
    async with Bridge(toolbox=Toolbox(add), mind=mind) as bridge:
        first = await bridge.solve(
            "THE FIRST TASK", output_schema={"type": "integer"}, thought_process=True
        )
        assert await first.result() == 3
        second = await bridge.solve("THE SECOND TASK", output_schema={"type": "integer"})
        assert await second.result() == 3

    later = mind.read(1)
    unrelated = mind.read(2)
    assert "THE FIRST TASK" in later
    assert "MY THOUGHT" not in later
    assert "_outputPath" not in later
    assert [message["role"] for message in mind.requests[1].texts].count("assistant") == 0
    assert unrelated == "THE SECOND TASK"


async def test_a_dialogue_of_several_turns_reaches_the_mind_as_it_was_written() -> None:
    dialogue: list[JSON] = [
        {"role": "system", "content": "You add."},
        {"role": "user", "content": "What is 1 and 1?"},
        {"role": "assistant", "content": "2"},
    ]
    mind = await requests_of("And 1 and 2?", {"output": 3}, context=dialogue)
    assert mind.requests[0].texts == [*dialogue, {"role": "user", "content": "And 1 and 2?"}]


NESTED: JSONObject = {
    "type": "object",
    "properties": {"a": {"type": "object", "properties": {"b": {"const": 1}}}},
}


@pytest.mark.parametrize(
    ("schema", "output"),
    [
        (None, "a text"),
        ({"type": "integer"}, 3),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["b", "a"]),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "object", "properties": {"b": {"const": 1}}}},
            },
            {"a": {"b": 1}},
        ),
    ],
)
async def test_a_schema_describes_any_type_and_holds(
    schema: JSONObject | None, output: JSON
) -> None:
    # `{}` is none of these, so it is rejected, and the mind reads why and answers again.
    wrong: JSON = 5 if schema is None else {"a": 7}
    mind = Prepared({"output": wrong}, {"output": output})
    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve("Answer.", output_schema=schema)
        assert await run.result() == output

    assert "output" in mind.read(1)
    assert len(mind.requests) == 2


async def test_reasoning_and_confidence_come_where_the_schema_puts_them() -> None:
    schema: JSONObject = {
        "type": "object",
        "properties": {
            "reasoning": {"type": "string"},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "answer": {"type": "string"},
        },
        "required": ["reasoning", "confidence", "answer"],
        "additionalProperties": False,
    }
    mind = Prepared({"output": {"reasoning": "It is known.", "confidence": 0.9, "answer": "Paris"}})
    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve("What is the capital of France?", output_schema=schema)
        assert list(await run.result()) == ["reasoning", "confidence", "answer"]

    sent: Any = mind.requests[0].schema
    assert list(sent["properties"])[:2] == ["calls", "output"]
    assert list(sent["properties"]["output"]["anyOf"][0]["properties"]) == [
        "reasoning",
        "confidence",
        "answer",
    ]


async def test_one_answer_takes_one_request_with_the_messages_and_the_schema() -> None:
    mind = await requests_of("Add 1 and 2.", {**ADDS, "output": "†state.sum"})
    [request] = mind.requests
    assert request.texts == [{"role": "user", "content": "Add 1 and 2."}]
    assert request.schema["type"] == "object"


async def test_every_message_passes_its_handler_before_the_request_goes_out() -> None:
    def style(message: Message, draft: Draft) -> None:
        named = str(message.value)
        draft.say("system", f"Write in the style of {named}.")
        draft.model["temperature"] = 0.9
        draft.properties["mood"] = {"type": "string"}

    handlers = Handlers()
    handlers.register("style", style)
    mind = Prepared({"mood": "calm", "calls": [], "output": "a text"})
    async with Bridge(mind=mind, handlers=handlers) as bridge:
        run = await bridge.solve("Write.", context=[{"type": "style", "style": "Homer"}])
        assert await run.result() == "a text"

    [request] = mind.requests
    assert request.texts[0] == {"role": "system", "content": "Write in the style of Homer."}
    assert request.model == {"temperature": 0.9}
    properties: Any = request.schema["properties"]
    assert next(iter(properties)) == "mood"


async def test_over_mcp_the_triple_is_one_whole_that_anybody_can_check(tmp_path: Path) -> None:
    async with over_stdio(configured(tmp_path), "auto") as client:
        told = await call(
            client,
            "solve",
            task="Add.",
            input={"a": 1, "b": 2},
            tools=["add"],
            output_schema={"type": "integer"},
        )
        [request] = (await call(client, "check_run", run=told["run"]))["requests"]
        assert "Add." in str(request["context"])
        assert [*request["schema"]["properties"]][:2] == ["calls", "output"]
        solution: JSONObject = {
            "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.b"}],
            "output": "†results.0",
        }
        done = await call(client, "solve", run=told["run"], turn=0, solution=solution)
        assert (done["status"], done["output"]) == ("done", 3)
        await call(client, "publish_idea", idea=done["run"], name="adding")
        read: Any = await client.read_resource("idea://adding")

    document = json.loads(read.contents[0].text)
    assert document["solution"] == solution
    assert document["context"][0]["content"] == "Add."
    parts = {
        name: document[name]
        for name in ("context", "schema", "shown", "solution")
        if name in document
    }
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == document["id"]


def test_on_the_command_line_a_request_is_shown_and_its_solution_is_read(ideabridge: Run) -> None:
    typed = '{"calls": [], "output": "Paris"}\n'
    done = ideabridge("solve", "What is the capital of France?", typed=typed)
    assert (done.returncode, done.stdout) == (0, "Paris\n"), done.stderr
    assert "What is the capital of France?" in done.stderr
    listed = ideabridge("ideas", "list", "--json")
    assert "What is the capital of France?" in listed.stdout
