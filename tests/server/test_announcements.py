"""Changes are announced: in both eras, of this process and of another one on the same store."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, types

from .serving import ERAS, Heard, all_tools, call, configured, over_stdio, text, time_module

pytestmark = pytest.mark.anyio

PLAN: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"}],
    "input": {"a": 1, "b": 2},
    "output": {"sum": "†state.sum"},
}


async def test_clients_of_both_eras_hear_of_a_new_tool_over_http(shared_url: str) -> None:
    heard = Heard()
    async with (
        Client(shared_url, mode="legacy", message_handler=heard) as old,
        Client(shared_url, mode="auto") as new,
        new.listen(tools_list_changed=True) as listening,
    ):
        capabilities = old.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.tools.list_changed is True
        await call(new, "run_plan", **PLAN, save_as="announced_over_http")
        with anyio.fail_after(20):
            event = await anext(aiter(listening))
        assert type(event).__name__ == "ToolsListChanged"
        await heard.until("notifications/tools/list_changed")
        assert "announced_over_http" in await all_tools(old)


@pytest.mark.parametrize("mode", ERAS)
async def test_what_one_process_publishes_the_other_announces_lists_and_calls(
    tmp_path: Path, mode: str
) -> None:
    configuration = configured(tmp_path)
    heard = Heard()
    async with (
        over_stdio(configuration, "legacy") as one,
        over_stdio(configuration, mode, message_handler=heard) as other,
        anyio.create_task_group() as group,
    ):
        if mode == "auto":
            ready = anyio.Event()

            async def listen() -> None:
                async with other.listen(
                    tools_list_changed=True, resource_subscriptions=["idea://sum_up"]
                ) as events:
                    ready.set()
                    async for event in events:
                        heard.note(type(event).__name__)

            group.start_soon(listen)
            await ready.wait()
            tools = "ToolsListChanged"
            updated = "ResourceUpdated"
        else:
            request = types.SubscribeRequest(
                params=types.SubscribeRequestParams(uri="idea://sum_up")
            )
            await other.session.send_request(request, types.EmptyResult)
            tools = "notifications/tools/list_changed"
            updated = "notifications/resources/updated"

        await call(one, "run_plan", **PLAN, save_as="sum_up")
        await heard.until(tools)
        await heard.until(updated)
        assert "sum_up" in await all_tools(other)
        assert await call(other, "sum_up", a=20, b=22) == {"sum": 42}
        # There was one notification, although several writes were seen.
        assert heard.methods.count(tools) == 1
        group.cancel_scope.cancel()


async def test_tools_that_come_up_later_are_announced_where_they_are_exposed(
    tmp_path: Path,
) -> None:
    heard = Heard()
    configuration = configured(tmp_path, mcpServers={"time": time_module()}, expose=["modules"])
    async with over_stdio(configuration, "legacy", message_handler=heard) as client:
        # The first list is returned immediately, and the module's tools are announced when it is
        # up.
        if "get_current_time" not in await all_tools(client):
            await heard.until("notifications/tools/list_changed")
        assert "get_current_time" in await all_tools(client)


async def test_a_module_that_was_not_up_at_the_start_is_announced_and_ideas_that_need_it_work(
    tmp_path: Path,
) -> None:
    heard = Heard()
    server = Path(__file__).parents[1] / "modules" / "servers" / "pay.py"
    bank: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", str(server), str(tmp_path), "--late"],
    }
    configuration = configured(
        tmp_path, mcpServers={"bank": bank}, expose=["modules"], approval="allow_all"
    )
    async with over_stdio(configuration, "legacy", message_handler=heard) as client:
        assert "pay" not in await all_tools(client)
        told = text(await client.call_tool("search_tools", {"words": "pay"}))
        assert "the bank is closed; " in told
        (tmp_path / "open").touch()
        await heard.until("notifications/tools/list_changed")
        assert "pay" in await all_tools(client)
        assert text(await client.call_tool("pay", {"to": "Ada"})) == "done: pay Ada"
        calls = [{"_tool": "pay", "to": "†input.to", "_outputPath": "paid"}]
        plan: dict[str, Any] = {
            "calls": calls,
            "input": {"to": "Bob"},
            "output": {"paid": "†state.paid"},
        }
        await call(client, "run_plan", **plan, save_as="pay_somebody")

    (tmp_path / "open").unlink()
    given: list[Any] = []
    async with over_stdio(configuration, "legacy") as client, anyio.create_task_group() as group:

        async def call_idea() -> None:
            given.append(await call(client, "pay_somebody", to="Bob"))

        group.start_soon(call_idea)
        await client.list_prompts()
        (tmp_path / "open").touch()

    assert given == [{"paid": "done: pay Bob"}]
