"""Published tools that lack a server or an own tool: hidden, found with the reason, and
refused up front.
"""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from ideabridge.server.main import main
from tests.trusting import write_trusted
from tests.ui.serving import client as page_client
from tests.ui.serving import served as page_served

from .serving import (
    ERAS,
    Heard,
    all_tools,
    call,
    configured,
    http_process,
    in_memory,
    over_stdio,
    plain,
    refused,
    served,
    structured,
    text,
)

pytestmark = pytest.mark.anyio

NO_SHOP = "needs the server 'shop', which is not configured here (mcpServers)"
BUY: dict[str, Any] = {
    "calls": [{"_tool": "buy", "_module": "shop", "x": "†input.x"}],
    "input": {"x": "a"},
    "output": "†results.0",
}
OUTER = {**BUY, "calls": [{"_tool": "order", "_module": "idea:order", "x": "†input.x"}]}
OWN = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": 1}],
    "input": {"a": 1},
    "output": "†results.0",
}
PROGRAM = {"program": "import shop\nawait shop.buy(x=input['x'])", "input": {"x": "a"}}


async def publish_all(folder: Path) -> None:
    """Publish `order` (a plan), `outer` (calls it), `ordered` (recorded), `again` (solve),
    `adding` (an own tool) and `by_program`, into the store of a folder, with a configuration that
    has everything.
    """
    everything = configured(
        folder, mcpServers={"shop": plain(folder, "shop", "buy")}, approval="allow_all"
    )
    async with in_memory(everything, "auto") as client:
        for name, plan in (
            ("order", BUY),
            ("outer", OUTER),
            ("adding", OWN),
            ("by_program", PROGRAM),
        ):
            assert (await call(client, "run_plan", **plan, save_as=name))["saved"]["name"] == name
        run = (await call(client, "run_plan", **BUY))["run"]
        await call(client, "publish_idea", idea=run, name="ordered", answer="recorded")
        await call(client, "publish_idea", idea=run, name="again", answer="solve")


@pytest.mark.parametrize("mode", ERAS)
async def test_what_cannot_run_here_is_found_with_the_reason_and_not_listed(
    tmp_path: Path, mode: str
) -> None:
    await publish_all(tmp_path)
    async with in_memory(configured(tmp_path, tools=[]), mode) as client:
        assert "published from runs; no MCP server is configured here" in (
            client.instructions or ""
        )
        listed = await all_tools(client)
        # A recorded answer needs nothing. The idea that is solved again begins with the call of its
        # run.
        assert "ordered" in listed
        assert not {"order", "outer", "adding", "by_program", "again"} & listed.keys()
        for name in ("order", "outer", "by_program"):
            assert (
                await refused(client, name, x="b") == f"{name} cannot be called here: it {NO_SHOP}."
            )
            found: list[Any] = (await call(client, "search_tools", words=name))["tools"]
            assert {
                one["name"]: one["cannot_be_called"] for one in found if one["name"] == name
            } == {name: NO_SHOP}
        assert f"cannot be called here: it {NO_SHOP}" in text(
            await client.call_tool("search_tools", {"words": "order"})
        )
        own = "needs the tool 'add', which no tool file here defines"
        assert await refused(client, "adding", a=2) == f"adding cannot be called here: it {own}."
        ideas: list[Any] = (await call(client, "search_ideas", words="order"))["ideas"]
        assert any(one.get("cannot_be_called", {}).get("order") == NO_SHOP for one in ideas)
        # It is still a document.
        assert "shop" in str(await client.read_resource("idea://order"))
        # A plan or program that calls it is rejected as a whole.
        step = {"_tool": "order", "_module": "idea:order", "x": "b"}
        for given in (
            {"calls": [{"_tool": "sleep", "seconds": 0}, step]},
            {"program": "import ideas\nawait ideas.outer(x='b')"},
        ):
            assert f"cannot be called here: it {NO_SHOP}" in await refused(
                client, "run_plan", **given
            )
        assert structured(await client.call_tool("check_run", {}))["runs"][0]["status"] == "done"


@pytest.mark.parametrize("mode", ERAS)
async def test_what_waits_for_its_server_stays_listed(tmp_path: Path, mode: str) -> None:
    await publish_all(tmp_path)
    broken = {"shop": {"command": "false"}}
    async with in_memory(configured(tmp_path, mcpServers=broken), mode) as client:
        assert (await all_tools(client)).keys() >= {"order", "outer", "adding"}
        assert "The MCP servers and own tools of the user are behind this one." in (
            client.instructions or ""
        )

    disabled = {"shop": {**plain(tmp_path, "shop", "buy"), "disabled": True}}
    async with in_memory(configured(tmp_path, mcpServers=disabled), mode) as client:
        assert "outer" not in await all_tools(client)
        why = "order cannot be called here: it needs the server 'shop', which is disabled here."
        assert await refused(client, "order", x="b") == why
        assert "own tools are behind this one; no MCP server" in (client.instructions or "")


@pytest.mark.parametrize("mode", ERAS)
async def test_instructions_claim_nothing_that_is_not_there(tmp_path: Path, mode: str) -> None:
    async with in_memory(configured(tmp_path, tools=[]), mode) as client:
        assert (client.instructions or "").startswith(
            "No MCP server and no tool of the user is configured here"
        )

    servers = {"shop": plain(tmp_path, "shop", "buy")}
    async with in_memory(configured(tmp_path, tools=[], mcpServers=servers), mode) as client:
        assert (client.instructions or "").startswith(
            "The MCP servers of the user are behind this one. For more"
        )

    with http_process(configured(tmp_path, tools=[])) as url:
        async with Client(url, mode=mode) as client:
            assert "no tool of the user is configured" in (client.instructions or "")
            run = (await call(client, "run_plan", calls=[{"_tool": "count", "items": "abc"}]))[
                "run"
            ]
            await call(client, "publish_idea", idea=run, name="counting")

        async with Client(url, mode=mode) as client:
            assert "published from runs; no MCP server is configured here" in (
                client.instructions or ""
            )


async def test_the_file_that_is_not_trusted_is_the_reason(tmp_path: Path) -> None:
    await publish_all(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    path = write_trusted(project, {"mcpServers": {"shop": plain(tmp_path, "shop", "buy")}})
    path.write_text(path.read_text() + "\n")
    store = tmp_path / "ideas.sqlite"

    def start(_: Path) -> list[str]:
        return [*served(path)[:-2], "--project", str(project), "--store", str(store)]

    async with over_stdio(path, "auto", start) as client:
        told = await refused(client, "order", x="b")
        assert "needs the server 'shop', which is only in the project's ideabridge.json" in told
        assert f"`ideabridge trust {project}`" in told


async def test_the_most_used_that_can_be_called_are_listed(tmp_path: Path) -> None:
    await publish_all(tmp_path)
    async with in_memory(configured(tmp_path, listed_ideas=1), "auto") as client:
        for _ in range(3):
            await refused(client, "order", x="b")
        assert [
            name for name in await all_tools(client) if name in ("order", "outer", "ordered")
        ] == ["ordered"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_change_of_what_an_idea_needs_is_announced(tmp_path: Path, mode: str) -> None:
    await publish_all(tmp_path)
    heard = Heard()
    async with in_memory(configured(tmp_path, tools=[]), mode, message_handler=heard) as client:
        assert "outer" not in await all_tools(client)
        run = (
            await call(
                client,
                "run_plan",
                calls=[{"_tool": "count", "items": "†input.x"}],
                input={"x": "a"},
            )
        )["run"]
        await call(client, "publish_idea", idea=run, name="order")
        if mode == "legacy":
            await heard.until("notifications/tools/list_changed")

        assert "outer" in await all_tools(client)


async def test_the_command_line_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await publish_all(tmp_path)
    path = configured(tmp_path, tools=[])
    capsys.readouterr()
    options = ["--config", str(path)]
    assert main(["ideas", "list", "--published", *options]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert f"outer cannot be called here: it {NO_SHOP}" in told
    assert "adding cannot be called here: it needs the tool 'add'" in told
    assert "ordered cannot" not in told
    assert main(["ideas", "list", "--published", "--json", *options]) == 0
    ideas = {
        one["name"]: one["cannot_be_called"] for one in json.loads(capsys.readouterr().out)["ideas"]
    }
    assert ideas["outer"] == NO_SHOP
    assert ideas["ordered"] is None


async def test_the_page_says_why(tmp_path: Path) -> None:
    await publish_all(tmp_path)
    (tmp_path / "ideabridge.json").unlink()
    with page_served(tmp_path) as url, page_client(url) as visitor:
        page = unescape(visitor.get("/ui/ideas").text)
        assert page.count(f"cannot be called here: it {NO_SHOP}") == 4
        page = unescape(visitor.get("/ui/ideas/order").text)
        assert f"It cannot run here: it {NO_SHOP}." in page
        assert "data-default>Run" not in page
        assert "data-default>Run" in visitor.get("/ui/ideas/ordered").text
