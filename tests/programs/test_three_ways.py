"""Sixty tasks as a plan, as a program, and call by call: equal outputs and equal sets of calls,
over real servers.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.runs.run import Run
from ideabridge.server.server import Front
from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import ActivityError
from tests import preloaded
from tests.lifting.world import git
from tests.npm import missing, program
from tests.programs.three_ways import Desk, Task, tasks
from tests.server.serving import text

pytestmark = pytest.mark.anyio

BIN = Path(sys.executable).parent
NO_FILES = missing("@modelcontextprotocol/server-filesystem")


def repository(folder: Path, name: str, count: int, *, dirty: bool) -> Path:
    """A repository with some commits and two branches."""
    repo = folder / name
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    for number in range(count):
        (repo / "notes.txt").write_text(f"{name} {number}\n", encoding="utf-8")
        git(repo, "add", "notes.txt")
        who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        git(repo, *who, "commit", "-q", "-m", f"change {number} of {name}")

    git(repo, "branch", "topic")
    if dirty:
        (repo / "notes.txt").write_text("changed\n", encoding="utf-8")

    return repo


@dataclass
class Stage:
    """A bridge over all servers, and a client of its server."""

    bridge: Bridge
    client: Client
    desk: Desk
    tasks: list[Task]

    async def run(self, plan: JSONObject) -> tuple[JSON, Counter[str]]:
        """The output of a plan or program, and its calls of tools that are not built in."""
        self.desk.notes.clear()
        run = await self.bridge.run_plan(plan)
        assert await run.wait() == "done", (plan, run.answer())
        return run.given(), calls_of(run)

    async def by_hand(self, task: Task) -> tuple[JSON, Counter[str]]:
        """The same for single calls through the server."""
        self.desk.notes.clear()
        made: Counter[str] = Counter()

        async def call(name: str, /, **parameters: Any) -> Any:
            module, _, own = name.rpartition(".")
            made[shown(module or None, own, parameters)] += 1
            result = await self.client.call_tool(own, parameters)
            if result.is_error:
                raise ActivityError(text(result))

            found: Any = result.structured_content
            if found is None:
                return text(result)
            return found["result"] if list(found) == ["result"] else found

        return await task.by_hand(call, dict(task.given)), made


def shown(module: str | None, name: str, parameters: JSONObject) -> str:
    ordered = {key: parameters[key] for key in sorted(parameters)}
    return f"{module}.{name} {encode_text(ordered)}"


def calls_of(run: Run) -> Counter[str]:
    built_in = builtin_toolbox().tools
    return Counter(
        shown(*one.call.tool.origin, item.parameters)
        for one in run.machine.history
        if one.call.tool is not None and one.call.name not in built_in
        for item in one.items
    )


@asynccontextmanager
async def staged(base: anyio.Path, more: JSONObject | None = None) -> AsyncGenerator[Stage]:
    """The servers of the tasks, and `more` servers."""
    folder = Path(base)
    repos = [repository(folder, "one", 2, dirty=False), repository(folder, "two", 4, dirty=True)]
    (folder / "papers").mkdir()
    for name, content in (("a.txt", "some words\n"), ("b.txt", "three more words")):
        (folder / "papers" / name).write_text(content, encoding="utf-8")

    servers: JSONObject = {
        "git": preloaded.module(BIN / "mcp-server-git"),
        "time": preloaded.module(BIN / "mcp-server-time", "--local-timezone", "UTC"),
        **(more or {}),
    }
    if NO_FILES is None:
        command, *arguments = program("mcp-server-filesystem")
        servers["files"] = {"command": command, "args": [*arguments, str(folder)]}

    configuration = parse_configuration(
        {"mcpServers": servers, "approval": "allow_all", "expose": ["modules", "tools"]},
        project=folder,
    )
    desk = Desk()
    every = tasks(repos, folder / "papers")
    async with (
        Bridge(configuration, toolbox=desk.toolbox, store=":memory:") as bridge,
        anyio.create_task_group() as group,
        Client(Front(bridge, group, "0").server, read_timeout_seconds=60) as client,
    ):
        await bridge.modules.settled(30)
        yield Stage(
            bridge,
            client,
            desk,
            [one for one in every if NO_FILES is None or "files." not in str(one.calls)],
        )
        group.cancel_scope.cancel()


async def test_sixty_tasks_are_the_same_three_ways(tmp_path: Path) -> None:
    different: list[str] = []
    async with staged(await anyio.Path(tmp_path).resolve()) as stage:
        for task in stage.tasks:
            plan, planned = await stage.run(task.plan)
            written, called = await stage.run({"program": task.program, "input": task.given})
            by_hand, made = await stage.by_hand(task)
            if not (same(plan, written) and same(written, by_hand)):
                different.append(
                    f"{task.name}: plan {plan!r}, program {written!r}, by hand {by_hand!r}"
                )
            if not planned == called == made:
                different.append(
                    f"{task.name}: {planned - made} {called - made} "
                    f"{made - planned} {made - called}"
                )
        assert different == []
        assert len(stage.tasks) == (60 if NO_FILES is None else 48)
