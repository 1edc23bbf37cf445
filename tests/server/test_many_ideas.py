"""Ten thousand published ideas: hosts are told the most used, and every one is found
and can be called.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.bridge.store.store import Store
from ideabridge.server.own_tools import LISTED
from ideabridge.server.server import Front
from ideabridge.tools.encoding import JSONObject

from .serving import ERAS, all_tools, call

pytestmark = pytest.mark.anyio

MANY = 10_000
PLAN: JSONObject = {
    "calls": [{"_tool": "count", "items": "†input.text", "_outputPath": "n"}],
    "output": "†state.n",
}
INPUT: JSONObject = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}


def fill(store: Store) -> None:
    """Publish `MANY` ideas to everyone, and one to somebody else."""
    with store.transaction():
        idea = store.ideas.save(
            Idea([{"type": "input", "input": {"text": "x"}}], {}, PLAN), IdeaMeta()
        )
        for number in range(MANY + 1):
            store.publications.publish(
                NewPublication(
                    name=f"report_{number:05}",
                    idea_id=idea,
                    description=f"Counts the letters of item{number:05}.",
                    answer="plan",
                    input_schema=INPUT,
                    output_schema={"type": "integer"},
                    annotations={"readOnlyHint": True},
                    plan=PLAN,
                    owner=None if number < MANY else "somebody",
                )
            )


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "ideas.sqlite"
    with Store.open(path) as store:
        fill(store)
    return path


@pytest.mark.parametrize("mode", ERAS)
async def test_the_list_stays_short_and_everything_is_found(
    filled: Path, tmp_path: Path, mode: str
) -> None:
    configuration = Configuration(listed_ideas=120)
    path = tmp_path / "ideas.sqlite"
    shutil.copy(filled, path)
    async with Bridge(configuration, store=path) as bridge, anyio.create_task_group() as group:
        front = Front(bridge, group, "0")
        async with Client(front.server, mode=mode) as client:
            tools = await all_tools(client)
            assert len(tools) == len(LISTED) + 120
            assert "report_00007" not in tools
            for number in (7, 4321, MANY - 1):
                name = f"report_{number:05}"
                found: list[Any] = (await call(client, "search_tools", words=f"item{number:05}"))[
                    "tools"
                ]
                assert found[0]["name"] == name
                assert found[0]["module"] == f"idea:{name}"
                assert found[0]["signature"].startswith(f"ideas.{name}(")
                named: list[Any] = (await call(client, "search_tools", words=name))["tools"]
                assert [one["parameters"] for one in named if one["name"] == name] == [INPUT]
                # The idea can be called in a plan, as the search says, and by its name.
                told = await call(
                    client,
                    "run_plan",
                    calls=[{"_tool": name, "_module": f"idea:{name}", "text": "four"}],
                )
                assert told["results"] == {"0": 4}
                assert (await call(client, name, text="seven77"))["result"] == 7

            assert (await call(client, "search_tools", words=f"item{MANY:05}"))["tools"] == []
            # Ideas that were called are now listed, among the most used.
            tools = await all_tools(client)
            assert len(tools) == len(LISTED) + 120
            assert {"report_00007", "report_04321"} <= tools.keys()
            assert all(len(name) <= 48 for name in tools)

        group.cancel_scope.cancel()
