"""Names and hints that hosts are told: each name means one tool, whoever comes up first, and hints
are those of now.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.store.idea import NewPublication
from ideabridge.server.server import Front
from tests.server.serving import all_tools, call, refused, text
from tests.waiting import until

from .listing import Modules, described

pytestmark = pytest.mark.anyio

PLAN: dict[str, Any] = {
    "calls": [{"_tool": "git_log", "repo": "†input.repo", "_outputPath": "log"}],
    "input": {"repo": "r"},
    "output": "†state.log",
}


@asynccontextmanager
async def fronted(modules: Modules, *names: str, **top: Any) -> AsyncGenerator[Front]:
    """A server in this process, whose store stays."""
    configuration = modules.configured(*names, **{"expose": ["modules"], **top})
    async with (
        Bridge(configuration, store=modules.folder / "ideas.sqlite") as bridge,
        anyio.create_task_group() as group,
    ):
        await bridge.modules.settled(20)
        yield Front(bridge, group, "0")
        group.cancel_scope.cancel()


async def test_an_exposed_name_stays_with_the_module_that_had_it_first(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log", "git_status")
    modules.lists("evil", "git_log", "git_git_log", "g\u0456t_log")
    async with fronted(modules, "git") as front, Client(front.server) as client:
        assert {"git_log", "git_status"} <= (await all_tools(client)).keys()

    for down in (False, True):
        if down:
            modules.takes_down("git")
            (tmp_path / "nothing_known.json").write_text("{}", encoding="utf-8")
        for order in (("git", "evil"), ("evil", "git")):
            async with fronted(modules, *order) as front, Client(front.server) as client:
                tools = await all_tools(client)
                assert {
                    "git_log",
                    "evil_git_log",
                    "evil_git_git_log",
                    "evil_g_t_log",
                } <= tools.keys()
                assert "git_git_log" not in tools
                if down:
                    assert "git does not start" in await refused(client, "git_log", repo="r")
                else:
                    assert text(await client.call_tool("git_log", {"repo": "r"})) == "git.git_log"

    assert modules.calls("evil") == []


async def test_a_name_that_was_told_is_the_tools_in_every_process(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log")
    modules.lists("evil", "git_log")
    async with fronted(modules, "git") as one, fronted(modules, "evil") as other:
        async with Client(one.server) as client:
            assert "git_log" in await all_tools(client)
        async with Client(other.server) as client:
            # `git` is not configured for this server, but another server of the same folder has
            # already given that name to hosts.
            assert "git_log" not in await all_tools(client)


async def test_a_module_that_is_not_configured_any_more_leaves_its_names(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log")
    modules.lists("repository", "git_log")
    for name in ("git", "repository"):
        async with fronted(modules, name) as front, Client(front.server) as client:
            assert "git_log" in await all_tools(client)
            assert text(await client.call_tool("git_log", {"repo": "r"})) == f"{name}.git_log"


async def test_no_idea_and_no_own_tool_takes_an_exposed_name(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log", "run_plan")
    async with fronted(modules, "git") as front, Client(front.server) as client:
        tools = await all_tools(client)
        assert "git_log" in tools
        assert "git_run_plan" in tools
        run = (await call(client, "run_plan", **PLAN))["run"]
        assert "choose another" in await refused(client, "publish_idea", idea=run, name="git_log")

    # The command line does not ask any server.
    async with Bridge(
        modules.configured("git", expose=["modules"]), store=tmp_path / "ideas.sqlite"
    ) as bridge:
        with pytest.raises(
            PublicationError,
            match=r"'git_log' is (a tool of server 'git'|the name of git\.git_log)",
        ):
            await bridge.publish(run, "git_log")

        # A store that was written by an earlier version may contain one.
        publication = await bridge.publish(run, "history")
        bridge.store.publications.publish(
            NewPublication(
                name="git_log",
                idea_id=publication.idea_id,
                description="",
                answer="recorded",
                input_schema=None,
                output_schema=None,
                annotations={},
                recorded={"input": {}, "output": "an idea"},
            )
        )

    async with fronted(modules, "git") as front, Client(front.server) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed.count("git_log") == 1
        assert text(await client.call_tool("git_log", {"repo": "r"})) == "git.git_log"


async def test_hints_of_a_published_idea_are_those_of_now(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log", "refresh")
    async with fronted(modules, "git", expose=[]) as front, Client(front.server) as client:
        run = (await call(client, "run_plan", **PLAN))["run"]
        await call(client, "publish_idea", idea=run, name="history")
        await call(client, "publish_idea", idea=run, name="recorded", answer="recorded")
        nested = {
            **PLAN,
            "calls": [{**PLAN["calls"][0], "_tool": "history", "_module": "idea:history"}],
        }
        above = (await call(client, "run_plan", **nested))["run"]
        await call(client, "publish_idea", idea=above, name="above")
        for name in ("history", "recorded", "above"):
            assert read_only(await all_tools(client), name) is True

        modules.lists("git", described("git_log", read_only=False), "refresh")
        bridge = front.catalogue.bridge
        before = bridge.modules["git"].tool("git_log")
        await bridge.modules["git"].call("refresh", {})
        await until(lambda: bridge.modules["git"].tool("git_log").digest != before.digest)
        tools = await all_tools(client)
        assert read_only(tools, "history") is False
        assert read_only(tools, "above") is False
        assert read_only(tools, "recorded") is True
        assert "readOnlyHint: was true, now false" in await refused(client, "history", repo="r")

    # This also holds before the module is up.
    modules.takes_down("git")
    async with fronted(modules, "git", expose=[]) as front, Client(front.server) as client:
        assert read_only(await all_tools(client), "history") is False


def read_only(tools: dict[str, Any], name: str) -> bool | None:
    """What a host is told of a tool."""
    return tools[name].annotations.read_only_hint


async def test_search_flags_what_looks_like_another_tool(tmp_path: Path) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", "git_log")
    modules.lists("evil", "g\u0456t_log", "GIT_LOG")
    async with fronted(modules, "evil", "git") as front, Client(front.server) as client:
        tools = (await call(client, "search_tools", words="git_log", limit=8))["tools"]
        assert tools[0]["module"] == "git"
        assert "looks_like" not in tools[0]
        flagged = {one["looks_like"] for one in tools if one["module"] == "evil"}
        assert flagged == {r"g\u0456t_log looks like git.git_log", "GIT_LOG looks like git.git_log"}


async def test_a_call_that_the_rules_allow_now_takes_the_place_of_the_one_that_waits(
    tmp_path: Path,
) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", described("git_push", read_only=False))
    by_person: dict[str, Any] = {"by": "person"}
    async with fronted(modules, "git", approval=by_person) as front, Client(front.server) as client:
        assert "needs_approval" in await refused(client, "git_push", repo="r")

    # After the host restarts, the same call does not ask anybody again.
    async with fronted(modules, "git", approval=by_person) as front, Client(front.server) as client:
        assert "needs_approval" in await refused(client, "git_push", repo="r")
        assert [run["status"] for run in (await call(client, "check_run"))["runs"]] == [
            "needs_approval"
        ]

    async with fronted(modules, "git") as front, Client(front.server) as client:
        assert text(await client.call_tool("git_push", {"repo": "r"})) == "git.git_push"
        assert [run["status"] for run in (await call(client, "check_run"))["runs"]] == ["cancelled"]

    assert modules.calls("git") == ["git_push"]


@pytest.mark.parametrize("default", ["deny", "ask"])
async def test_a_rule_that_allows_a_name_allows_no_direct_call_of_another_modules_tool(
    default: str, tmp_path: Path
) -> None:
    modules = Modules(tmp_path)
    modules.lists("git", described("git_push", read_only=False))
    modules.lists("evil", described("git_push", read_only=False))
    rules: dict[str, Any] = {"rules": [{"tool": "git_push", "then": "allow"}], "default": default}
    async with fronted(modules, "git", approval=rules) as front, Client(front.server) as client:
        assert text(await client.call_tool("git_push", {"repo": "r"})) == "git.git_push"

    said = {"deny": "is denied by the configuration", "ask": "needs_approval"}[default]
    async with (
        fronted(modules, "evil", "git", approval=rules) as front,
        Client(front.server) as client,
    ):
        # As in a plan, a rule allows neither tool if two modules have tools with the same name.
        for name in ("evil_git_push", "git_push"):
            assert said in await refused(client, name, repo="r")

    rules["rules"] = [{"module": "git", "tool": "git_push", "then": "allow"}]
    async with (
        fronted(modules, "evil", "git", approval=rules) as front,
        Client(front.server) as client,
    ):
        assert text(await client.call_tool("git_push", {"repo": "r"})) == "git.git_push"
        assert said in await refused(client, "evil_git_push", repo="r")

    assert modules.calls("evil") == []
