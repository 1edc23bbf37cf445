"""Agent/Call: from an idea to a tool to a call, and the container idea; what no other test holds
of its document.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.cli.conftest import Run
from tests.seeds.minds import Prepared
from tests.server.serving import all_tools, call, configured, over_stdio, refused

pytestmark = pytest.mark.anyio

ADDING: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"}],
    "output": {"sum": "†state.sum"},
}
SUM: JSONObject = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
}


async def test_an_idea_becomes_a_tool_whose_fields_a_call_fills_in_any_host(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    async with over_stdio(configuration, "legacy") as client:
        asked = await call(
            client, "solve", task="Add.", input={"a": 1, "b": 2}, output_schema=SUM, tools=["add"]
        )
        done = await call(client, "solve", run=asked["run"], turn=0, solution=ADDING)
        assert done["output"] == {"sum": 3}
        await call(
            client, "publish_idea", idea=done["run"], name="adding", description="Add two numbers."
        )

    # This is another host, which has not seen any of this.
    async with over_stdio(configuration, "auto") as client:
        offered = (await all_tools(client))["adding"]
        # The input schema of the idea is the form, and the output schema says what is returned.
        assert offered.description is not None
        assert offered.description.startswith("Add two numbers.")
        assert set(offered.input_schema["properties"]) == {"a", "b"}
        assert offered.output_schema is not None
        assert offered.output_schema["properties"]["sum"] == {"type": "integer"}
        assert await call(client, "adding", a=20, b=22) == {"sum": 42}
        within = await call(
            client,
            "run_plan",
            calls=[
                {"_tool": "adding", "_module": "idea:adding", "a": 5, "b": 6, "_outputPath": "both"}
            ],
            output="†state.both.sum",
        )
        assert within["output"] == 11
        assert "b" in await refused(client, "adding", a=20)


def test_on_the_command_line_a_run_becomes_a_tool_and_is_called(
    ideabridge: Run, project: Path
) -> None:
    plan: JSONObject = {
        "calls": [{"_tool": "count", "items": "†input.names", "_outputPath": "n"}],
        "input": {"names": ["Ada"]},
        "output": "†state.n",
    }
    (project / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    ran = ideabridge("run", "plan.json", "--save-as", "how_many")
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
    called = ideabridge("ideas", "call", "how_many", "-i", 'names=["Ada", "Grace"]')
    assert (called.returncode, called.stdout) == (0, "2\n"), called.stderr


# -- the container idea: one moment of decision ----------------------------------------------------


@tool(read_only=True)
def look(place: str) -> str:
    """Look at a place."""
    return f"seen {place}"


@tool(read_only=True)
def listen(place: str) -> str:
    """Listen at a place."""
    return f"heard {place}"


@tool(read_only=True)
def smell(place: str) -> str:
    """Smell at a place."""
    return f"smelled {place}"


def named_in(schema: JSONObject) -> list[str]:
    """The tools that a schema allows calls of."""
    properties: Any = schema["properties"]
    return [
        branch["properties"]["_tool"]["const"] for branch in properties["calls"]["items"]["anyOf"]
    ]


async def test_a_container_idea_holds_the_context_the_allowed_tools_and_the_chosen_calls() -> None:
    chosen: list[JSON] = [
        {"_tool": "look", "place": "†input.place"},
        {"_tool": "listen", "place": "here"},
    ]
    mind = Prepared({"calls": chosen, "output": None}, {"calls": [], "output": "quiet"})
    async with Bridge(toolbox=Toolbox(look, listen, smell), mind=mind) as bridge:
        run = await bridge.solve(
            "What is there?", input={"place": "the door"}, tools=["look", "listen"]
        )
        assert await run.result() == "quiet"
        last = bridge.export_idea(run.id)
        parent = last["meta"]
        assert isinstance(parent, dict)
        container: Any = bridge.export_idea(str(parent["parent"]))

    assert container["solution"] == {"calls": chosen, "output": None}
    assert named_in(container["schema"]) == ["look", "listen"]
    assert "What is there?" in str(container["context"])
    assert "the door" in str(container["context"])
    # The context of the next moment of decision contains what was done before.
    assert "What is there?" in str(last["context"])
    assert [
        tool_name
        for tool_name in ("look", "listen", "smell")
        if f"'{tool_name}'" in str(last["context"])
    ] == [
        "look",
        "listen",
    ]
    assert "seen the door" in mind.read(1)
    assert "heard here" in mind.read(1)


async def test_a_tool_that_is_not_in_the_container_cannot_be_called() -> None:
    mind = Prepared(
        {"calls": [{"_tool": "smell", "place": "here"}]}, {"calls": [], "output": "nothing"}
    )
    async with Bridge(toolbox=Toolbox(look, listen, smell), mind=mind) as bridge:
        run = await bridge.solve("What is there?", tools=["look", "listen"])
        assert await run.result() == "nothing"
    assert "unknown tool 'smell'" in mind.read(1)


# -- calls run one by one, or at once --------------------------------------------------------------


async def test_independent_calls_run_at_once() -> None:
    started: list[str] = []
    all_started = anyio.Event()

    @tool(read_only=True)
    async def work(name: str) -> str:
        """Work until the others have begun as well."""
        started.append(name)
        if len(started) == 3:
            all_started.set()
        await all_started.wait()
        return name

    calls: list[JSONObject] = [{"_tool": "work", "name": name} for name in "abc"]
    async with Bridge(toolbox=Toolbox(work)) as bridge, bridge.session() as session:
        with anyio.fail_after(20):
            assert await session.run_all(calls) == ["a", "b", "c"]
