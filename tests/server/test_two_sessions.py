"""A task that was done twice by direct calls: the session that goes on now stands beside
an earlier one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.main import main
from tests.server.serving import ERAS, call, configured, in_memory, over_stdio, structured, text

pytestmark = pytest.mark.anyio

TOOLS = '''
from ideabridge.tools.decorator import tool

SENT = []
PEOPLE = {"anvil": {"name": "ann", "team": "iron"}, "cog": {"name": "bob", "team": "brass"}}


@tool(read_only=True)
async def owner_of(project: str) -> dict[str, str]:
    """Who owns a project."""
    return PEOPLE[project]


@tool(read_only=True)
async def think(thought: str) -> str:
    """Write down a thought."""
    return "noted"


@tool(read_only=True)
async def members_of(team: str) -> list[str]:
    """The members of a team."""
    return [f"{team} one", f"{team} two"]


@tool
async def send(to: str, text: str) -> dict[str, int]:
    """Send a message."""
    SENT.append([to, text])
    return {"sent": len(text)}


@tool(read_only=True)
async def sent() -> list[list[str]]:
    """What was sent since the last look."""
    listed = [*SENT]
    SENT.clear()
    return listed
'''

PROGRAM = """
import tools
owner = await tools.owner_of(project=input["project"])
await tools.send(to=owner["name"], text=input["text"])
{"to": owner["name"]}
"""


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    tools = tmp_path / "people_tools.py"
    tools.write_text(TOOLS, encoding="utf-8")
    return configured(tmp_path, tools=[str(tools)], expose=["tools"], approval="allow_all")


async def anvil(client: Client) -> str:
    """The task with much looking around; returns the session."""
    for thought in ("who owns it", "ask around", "now write"):
        await call(client, "think", thought=thought)
    await call(client, "owner_of", project="anvil")
    await call(client, "members_of", team="iron")
    await call(client, "send", to="ann", text="please review anvil")
    return (await call(client, "check_run"))["sessions"][0]["run"]


async def cog(client: Client) -> None:
    """The same task with other data, and with fewer calls."""
    await call(client, "owner_of", project="cog")
    await call(client, "send", to="bob", text="please review cog")


def lifting(folder: Path, name: str) -> Any:
    with Store.open(folder / "ideas.sqlite") as store:
        publication = store.publications.get(name, caller=SEES_ALL)
    return (publication.plan or {})["lifting"]


@pytest.mark.parametrize("first", ["the earlier one", "the one that goes on"])
async def test_the_session_that_goes_on_confirms_an_earlier_one(
    configuration: Path, era: str, first: str
) -> None:
    async with over_stdio(configuration, era) as client:
        earlier = await anvil(client)
    async with over_stdio(configuration, era) as client:
        await cog(client)
        idea, other = (earlier, "session") if first == "the earlier one" else ("session", earlier)
        told = await client.call_tool(
            "publish_idea",
            {"idea": idea, "name": "review", "choices": {"runs": [other]}, "program": False},
        )
        assert not told.is_error, text(told)
        made = lifting(configuration.parent, "review")
        assert len(made["runs"]) == 1
        assert made["confirmed_by"] == made["runs"]
        await call(client, "sent")
        answer = await client.call_tool("review", {"project": "cog"})
        assert not answer.is_error, text(answer)
        assert structured(await client.call_tool("sent", {}))["result"] == [
            ["bob", "please review cog"]
        ]


async def test_a_program_is_judged_by_the_session_that_goes_on_too(
    configuration: Path, era: str
) -> None:
    async with in_memory(configuration, era) as client:
        earlier = await anvil(client)
    async with in_memory(configuration, era) as client:
        await cog(client)
        choices = {"runs": ["session"]}
        wanted = await call(
            client, "publish_idea", idea=earlier, name="review", choices=choices, program="?"
        )
        assert len(wanted["runs"]) == 2
        inputs = [
            {"project": "anvil", "text": "please review anvil"},
            {"project": "cog", "text": "please review cog"},
        ]
        made = await call(
            client,
            "publish_idea",
            idea=earlier,
            name="review",
            choices=choices,
            program=PROGRAM,
            inputs=inputs,
        )
        # Thoughts and a look at the team are not part of what both sessions did.
        assert made["answer"] == "program"
        assert lifting(configuration.parent, "review")["confirmed_by"] == wanted["runs"][1:]


async def test_a_call_that_both_sessions_made_is_needed(configuration: Path, era: str) -> None:
    async with in_memory(configuration, era) as client:
        earlier = await anvil(client)
    async with in_memory(configuration, era) as client:
        await cog(client)
        written = 'import tools\nawait tools.send(to=input["to"], text=input["text"])\n'
        inputs = [
            {"to": "ann", "text": "please review anvil"},
            {"to": "bob", "text": "please review cog"},
        ]
        arguments: dict[str, Any] = {
            "idea": earlier,
            "name": "review",
            "choices": {"runs": ["session"]},
        }
        told = await client.call_tool(
            "publish_idea", {**arguments, "program": written, "inputs": inputs}
        )
        assert told.is_error
        assert "the program does not make the call owner_of" in text(told)


async def test_the_session_that_goes_on_is_a_further_run_at_the_terminal(
    configuration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with in_memory(configuration, "legacy") as client:
        earlier = await anvil(client)

    async with in_memory(configuration, "legacy") as client:
        await cog(client)
        await call(client, "check_run")
        words = ["--config", str(configuration), "--json"]

        def publish() -> int:
            return main(
                ["ideas", "publish", earlier, "review", "--with", "session", "--no-program", *words]
            )

        assert await anyio.to_thread.run_sync(publish) == 0

    assert json.loads(capsys.readouterr().out)["version"] == 1
    assert len(lifting(configuration.parent, "review")["confirmed_by"]) == 1
