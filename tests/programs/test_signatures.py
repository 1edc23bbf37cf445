"""`search_tools` tells what tools are called in programs and in plans, on one line each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.server.server import Front
from tests import preloaded
from tests.security.listing import Modules, described
from tests.server.serving import BIN, call, structured, text

pytestmark = pytest.mark.anyio


async def test_a_signature_names_what_plans_and_programs_call_differently(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    properties = {"class": {"type": "string"}, "unit": {"enum": ["c", "f"], "default": "c"}}
    odd = described("look-up", properties=properties, required=["class"])
    modules.lists("my-server", odd, "time")
    modules.lists("time", "now")
    async with (
        Bridge(modules.configured("my-server", "time"), store=":memory:") as bridge,
        anyio.create_task_group() as group,
    ):
        await bridge.modules.settled(20)
        async with Client(Front(bridge, group, "0").server) as client:
            told = await client.call_tool("search_tools", {"words": "", "limit": 100})
            found: dict[str, Any] = {tool["name"]: tool for tool in structured(told)["tools"]}
            assert found["look-up"]["signature"] == (
                "my_server.look_up(class_: str, unit: Literal['c', 'f'] = 'c') -> Any"
                ' # _tool: "look-up", _module: "my-server", class_: "class"'
            )
            assert not {"parameters", "output"} & found["look-up"].keys()
            lines = text(told).splitlines()
            assert found["look-up"]["signature"] in lines
            assert "  look-up of a repository" in lines
            assert 'time_.now(repo: str = ...) -> Any # _module: "time"' in lines
            assert any(line.startswith("tools.pick(") and line.endswith("-> Any") for line in lines)
            # What the line says is all that is needed for writing a plan and a program.
            calls = [{"_tool": "look-up", "_module": "my-server", "class": "a", "_outputPath": "x"}]
            assert (await call(client, "run_plan", calls=calls))["status"] == "done"
            program = (
                "import my_server\nfrom servers import time\nawait "
                'my_server.look_up(class_="a")\nawait time.now()'
            )
            run = await bridge.run_plan({"program": program})
            assert await run.wait() == "done"
            assert (await bridge.dry_run({"program": program}))["renamed"] == [
                ["my-server", "my_server"],
                ["time", "time_"],
                ["my-server.look-up", "my_server.look_up"],
                ["my-server.look-up(class)", "my_server.look_up(class_)"],
            ]
            for name in ("look-up", "my-server.look-up", "my_server.look_up"):
                [named] = (await call(client, "search_tools", words=name, limit=1))["tools"]
                assert named["parameters"]["properties"] == properties

        group.cancel_scope.cancel()


async def test_what_was_observed_is_told_and_refuses_no_program(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log")
    async with (
        Bridge(modules.configured("git"), store=":memory:") as bridge,
        anyio.create_task_group() as group,
    ):
        await bridge.modules.settled(20)
        async with Client(Front(bridge, group, "0").server) as client:
            [tool] = (await call(client, "search_tools", words="git_log", limit=1))["tools"]
            assert tool["signature"] == "git.git_log(repo: str = ...) -> Any"
            await call(
                client, "run_plan", calls=[{"_tool": "git_log", "repo": "r", "_outputPath": "x"}]
            )
            told = await client.call_tool("search_tools", {"words": "log of a repository"})
            [tool] = [one for one in structured(told)["tools"] if one["name"] == "git_log"]
            assert tool["signature"] == "git.git_log(repo: str = ...) -> str # observed"
            assert "does not declare" in text(told)
            # Text has no `keys`, but nobody said that the result is text.
            program = (
                "import git\nx = await git.git_log(repo='r')\nx.keys() if isinstance(x, "
                "dict) else x + 1 if 0 else x"
            )
            run = await bridge.run_plan({"program": program})
            assert await run.wait() == "done"

        group.cancel_scope.cancel()


async def test_signatures_of_real_servers() -> None:
    servers = {name: preloaded.module(BIN / f"mcp-server-{name}") for name in ("git", "time")}
    async with Bridge(parse_configuration({"mcpServers": servers}), store=":memory:") as bridge:
        await bridge.modules.settled(60)
        async with anyio.create_task_group() as group:
            async with Client(Front(bridge, group, "0").server) as client:
                [log] = (await call(client, "search_tools", words="git_log", limit=1))["tools"]
                assert log["signature"].startswith(
                    "git.git_log(repo_path: str, max_count: int = 10, "
                )
                [now] = (await call(client, "search_tools", words="get_current_time", limit=1))[
                    "tools"
                ]
                assert now["signature"].startswith(
                    "time_.get_current_time(timezone: str) -> {timezone: str, datetime: "
                )
            group.cancel_scope.cancel()
        program = (
            "from servers import time\n(await time.get_current_time(timezone='UTC'))['timezone']"
        )
        run = await bridge.run_plan({"program": program})
        assert await run.wait() == "done"
        assert run.given() == "UTC"
