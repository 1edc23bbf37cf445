"""Others get a tool whose program an assistant wrote once a person agreed: in a form, or
as an approval.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests import preloaded
from tests.server.sampled import Model
from tests.server.serving import (
    BIN,
    ERAS,
    all_tools,
    call,
    http_process,
    in_memory,
    over_stdio,
    refused,
    structured,
    text,
)
from tests.server.test_needs_program import TASKS, by_hand, handed_in, office

pytestmark = pytest.mark.anyio

WORK = TASKS["sum by group"]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A server with a user, so that tools are shared with somebody."""
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ann")
    return office(tmp_path)


def person(action: Any, **content: str) -> tuple[list[str], dict[str, Any]]:
    """What the forms said that a person was shown, and the arguments of a client whose person
    answers them so.
    """
    shown: list[str] = []

    async def callback(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        shown.append(params.message)
        return types.ElicitResult(action=action, content={**content} or None)

    return shown, {"elicitation_callback": callback}


async def version_1(client: Client) -> dict[str, Any]:
    """Publish what was done by hand, and return what hands a program in."""
    await by_hand(client, WORK)
    made = await call(client, "publish_idea", idea="session", name="task")
    assert made["version"] == 1
    return handed_in(WORK, made["needs_program"]["runs"][0])


def versions(folder: Path) -> list[int]:
    with Store.open(folder / "ideas.sqlite") as store:
        return [one.version for one in store.publications.versions("task", caller=SEES_ALL)]


async def at_terminal(configuration: Path, decision: str, approval: str) -> None:
    """Decide as a person does at a terminal."""
    words = ["approvals", "decide", decision, approval, "--config", str(configuration)]
    command = preloaded.python(BIN / "ideabridge", *words)
    ended = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    # If the question is refused, its run ends.
    assert ended.returncode == (0 if decision == "approve" else 1), ended.stderr.decode()


async def test_a_person_agrees_in_a_form(configuration: Path, era: str) -> None:
    shown, keys = person("accept", decision="approve")
    async with over_stdio(configuration, era, **keys) as client:
        arguments = await version_1(client)
        second = await call(client, "publish_idea", **arguments)
        assert (second["version"], second["answer"]) == (2, "program")
        assert structured(await client.call_tool("task", {"table": "gifts"})) == {
            "result": {"Ulm": 40}
        }

    [form] = shown
    # The form breaks long lines, and marks each of them.
    whole = " ".join(form.replace("  | ", "").split())
    for part in (
        '"_tool": "publish_idea"',
        '"name": "task"',
        '"with": [ "all"',
        "Does the task.",
        'sums.get(row[\\"city\\"], 0)',
    ):
        assert part.replace(" ", "") in whole.replace(" ", ""), part


async def test_a_person_refuses_in_a_form(configuration: Path, era: str) -> None:
    shown, keys = person("accept", decision="deny", reason="it is not ready")
    async with in_memory(configuration, era, **keys) as client:
        said = await refused(client, "publish_idea", **await version_1(client))
        assert "refused to share the tool: it is not ready; nothing was published" in said
    assert len(shown) == 1
    assert versions(configuration.parent) == [1]


async def test_where_no_form_is_shown_it_waits_for_an_approval(
    configuration: Path, era: str
) -> None:
    async with over_stdio(configuration, era) as client:
        arguments = await version_1(client)
        told = await client.call_tool("publish_idea", arguments)
        waiting = structured(told)["needs_person"]
        [approval] = waiting["approvals"]
        assert (
            "only the person can decide, on the page that `ideabridge ui` opens, or at a terminal: "
            "ideabridge approvals decide" in waiting["decides"]
        )
        assert approval in text(told)
        assert versions(configuration.parent) == [1]
        # Repeating the call asks the same question.
        again = await call(client, "publish_idea", **arguments)
        assert again["needs_person"]["approvals"] == [approval]

        await at_terminal(configuration, "approve", approval)
        second = await call(client, "publish_idea", **arguments)
        assert (second["version"], second["answer"]) == (2, "program")
        # An agreement counts only once.
        asked = await call(
            client, "publish_idea", **{**arguments, "description": "Does something else."}
        )
        assert asked["needs_person"]["approvals"] != [approval]
    assert versions(configuration.parent) == [2, 1]


async def test_a_person_refuses_at_a_terminal(configuration: Path, era: str) -> None:
    async with in_memory(configuration, era) as client:
        arguments = await version_1(client)
        [approval] = (await call(client, "publish_idea", **arguments))["needs_person"]["approvals"]
        await at_terminal(configuration, "deny", approval)
        assert "the person refused to share the tool" in await refused(
            client, "publish_idea", **arguments
        )
    assert versions(configuration.parent) == [1]


async def test_what_an_assistant_decides_shares_nothing(configuration: Path, era: str) -> None:
    async with in_memory(configuration, era) as client:
        arguments = await version_1(client)
        waiting = (await call(client, "publish_idea", **arguments))["needs_person"]
        approval = waiting["approvals"][0].partition(":")[2]
        decisions = [{"approval": approval, "decision": "approve"}]
        await client.call_tool("decide_approval", {"run": waiting["run"], "decisions": decisions})
        said = await refused(client, "publish_idea", **arguments)
        assert "only a person can share a tool that an assistant wrote" in said
        assert "needs_person" in await call(client, "publish_idea", **arguments)
    assert versions(configuration.parent) == [1]


async def test_a_program_that_the_recordings_refuse_is_put_before_nobody(
    configuration: Path, era: str
) -> None:
    shown, keys = person("accept", decision="approve")
    async with in_memory(configuration, era, **keys) as client:
        arguments = await version_1(client)
        wrong = {**arguments, "program": WORK.program.replace('"boss"', '"bob"')}
        assert '"to": "bob"' in await refused(client, "publish_idea", **wrong)
    assert not shown


async def test_what_a_clients_model_wrote_waits_until_it_is_handed_in(
    configuration: Path, era: str
) -> None:
    answer = {"program": WORK.program, "inputs": [WORK.given], "description": "Sums a table."}
    model = Model(
        {"calls": [{"_tool": "rows", "table": "sales"}], "output": None},
        {"calls": [{"_tool": "send", "to": "boss", "text": "Bern 325, Kiel 75"}], "output": None},
        {"calls": [], "output": {"Bern": 325, "Kiel": 75}},
        {"calls": [], "output": answer},
    )
    async with in_memory(configuration, era, **model.keys) as client:
        schema = {"type": "object"}
        run = await call(
            client, "solve", task="Sum the sales by city for the boss.", output_schema=schema
        )
        made = await call(client, "publish_idea", idea=run["run"], name="task")
        assert (made["version"], made["answer"]) == (1, "auto")
        assert "'task' is shared with others, and an assistant wrote the program" in made["note"]
        assert "and a person is asked" in made["note"]
        handed = await call(client, "publish_idea", idea=run["run"], name="task", **answer)
        assert len(handed["needs_person"]["approvals"]) == 1

    assert versions(configuration.parent) == [1]


@asynccontextmanager
async def as_user(url: str, token: str, era: str) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=era, read_timeout_seconds=30
        ) as client,
    ):
        yield client


async def test_a_user_shares_with_others_after_a_person_agreed(tmp_path: Path, era: str) -> None:
    configuration = office(tmp_path)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        tokens = {
            name: store.users.add_token(store.users.add(name).name)[1] for name in ("ann", "bob")
        }

    with http_process(configuration) as url:
        async with as_user(url, tokens["ann"], era) as ann, as_user(url, tokens["bob"], era) as bob:
            await by_hand(ann, WORK)
            session = (await call(ann, "check_run"))["sessions"][0]["run"]
            made = await call(ann, "publish_idea", idea=session, name="task")
            arguments = {**handed_in(WORK, made["needs_program"]["runs"][0]), "to": "bob"}
            waiting = (await call(ann, "publish_idea", **arguments))["needs_person"]
            assert "task" not in await all_tools(bob)
            # Nobody else can see the question.
            assert "run" in await refused(bob, "check_run", run=waiting["run"])
            [approval] = waiting["approvals"]
            await at_terminal(configuration, "approve", approval)
            assert (await call(ann, "publish_idea", **arguments))["version"] == 2
            assert "task" in await all_tools(bob)
            assert structured(await bob.call_tool("task", {"table": "gifts"})) == {
                "result": {"Ulm": 40}
            }
