"""The catalogue: pages, names that collide, and tools too many for one answer."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.server.own_tools import LISTED
from ideabridge.server.server import Front
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.tool import Annotations, Tool
from ideabridge.tools.toolbox import Toolbox

from .serving import ERAS, all_tools, call, refused, structured, text

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def fronted(toolbox: Toolbox | None = None, **keys: Any) -> AsyncGenerator[Front]:
    async with (
        Bridge(Configuration(**keys), toolbox=toolbox, store=":memory:") as bridge,
        anyio.create_task_group() as group,
    ):
        yield Front(bridge, group, "0")
        group.cancel_scope.cancel()


X: JSONObject = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/x"}},
    "$defs": {"x": {"type": "integer"}},
}


def publish(
    front: Front,
    name: str,
    owner: str | None = None,
    output: JSONObject | None = None,
    parameters: JSONObject = X,
    given: JSONObject | None = None,
) -> None:
    store = front.catalogue.bridge.store
    idea = store.ideas.save(Idea(["x"], {}, {"calls": [], "output": 1}), IdeaMeta())
    store.publications.publish(
        NewPublication(
            name=name,
            idea_id=idea,
            description="Gives one.",
            answer="recorded",
            input_schema=parameters,
            output_schema=output,
            annotations={"readOnlyHint": True},
            recorded={"input": given or {}, "output": 1},
            owner=owner,
        )
    )


@pytest.mark.parametrize("mode", ERAS)
async def test_long_lists_come_in_pages(mode: str) -> None:
    async with fronted(listed_ideas=300) as front:
        described: JSONObject = {"type": "integer", "description": "x" * 3000}
        for number in range(250):
            publish(front, f"idea_{number:03}", output=described)
        publish(front, "solve")
        publish(front, "of_another", owner="somebody")
        async with Client(front.server, mode=mode) as client:
            first = await client.list_tools()
            # Only the number of bytes limits a page.
            assert first.next_cursor is not None
            assert 100 < len(first.tools) < 250
            tools = await all_tools(client)
            assert tools.keys() == {*LISTED, *(f"idea_{number:03}" for number in range(250))}
            assert "$ref" not in tools["idea_007"].model_dump_json()
            assert "task" in tools["solve"].input_schema["properties"]
            assert await call(client, "idea_249") == {"result": 1}
            assert "unknown tool" in await refused(client, "of_another")
            publish(front, "idea_000", output={"type": "integer"})
            assert (await all_tools(client))["idea_000"].output_schema == {
                "type": "object",
                "properties": {"result": {"type": "integer"}},
                "required": ["result"],
                "additionalProperties": False,
            }
            assert await call(client, "idea_000") == {"result": 1}
            publish(front, "idea_000", output={"type": "string"})
            assert "output of idea_000" in await refused(client, "idea_000")


@tool(read_only=True)
def double(x: int) -> int:
    """Double a number."""
    return 2 * x


@pytest.mark.parametrize("mode", ERAS)
async def test_a_new_idea_has_a_place_in_a_list_that_is_full_of_used_ones(mode: str) -> None:
    async with fronted(Toolbox(double), listed_ideas=4) as front:
        used = [f"idea_{number}" for number in range(5)]
        for name in used:
            publish(front, name)
        async with Client(front.server, mode=mode) as client:
            for name in used * 2:
                await call(client, name)
            run = (
                await call(
                    client, "run_plan", calls=[{"_tool": "double", "x": 2}], output="†results.0"
                )
            )["run"]
            told = await call(client, "publish_idea", idea=run, name="fresh")
            assert "listed" not in told
            tools = await all_tools(client)
            assert "fresh" in tools
            assert len(tools) == len(LISTED) + 4

            publish(front, "newer")
            assert "newer" in await all_tools(client)
            told = await call(
                client, "publish_idea", idea=run, name="fresh", description="Doubles two."
            )
            assert told["listed"] is False
            assert "fresh" not in await all_tools(client)
            assert (await call(client, "fresh"))["result"] == 4


async def test_a_task_with_many_tools_shows_signatures_of_those_that_fit_it() -> None:
    properties: JSONObject = {
        f"parameter_{number}": {"type": "string", "description": "x" * 500} for number in range(4)
    }
    parameters: JSONObject = {"type": "object", "properties": properties}
    toolbox = Toolbox(
        *(
            Tool(
                f"large_{number}",
                f"Large {number}.",
                parameters,
                annotations=Annotations(read_only=True),
            )
            for number in range(600)
        )
    )
    async with fronted(toolbox) as front, Client(front.server) as client:
        result = await client.call_tool("solve", {"task": "Make large 417."})
        [asked] = structured(result)["requests"]
        assert "tools.large_417(" in asked["instructions"]
        assert "tools.pick(" in asked["instructions"]
        assert "more, which search_tools finds" in asked["instructions"]
        # These are at most about 5,000 tokens.
        assert len(json.dumps(asked)) < 20_000
        assert len(text(result)) < 20_000
        run = structured(result)["run"]
        done = await call(
            client, "solve", run=run, turn=0, solution={"calls": [], "output": "done"}
        )
        assert done["output"] == "done"
