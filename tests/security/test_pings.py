"""No request holds up the others: every own tool and every page, with large inputs, beside a
client that pings.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import httpx
import pytest
from mcp import Client

from ideabridge.bridge import Bridge
from ideabridge.server.own_tools import OWN_NAMES
from ideabridge.server.server import Front
from ideabridge.server.ui.pages import routes_of
from ideabridge.server.ui.site import Site
from tests.security.pinging import Pinger, Pings
from tests.server.serving import call
from tests.ui import serving

pytestmark = pytest.mark.anyio

CALLS: Final = 2_500

HELD: Final = 0.1
"""Seconds of processor time that the event loop may take at a time for a request, without the
collector of garbage. The load of the machine does not change them much."""

COLLECTED: Final = 0.3
"""Seconds of processor time that the collector of garbage may take at a time."""

EXCEPTIONS: Final = {
    "run_plan of wide results": 0.3,
    "run_plan of 10,000 calls": 0.3,
    "submit_solution of 2,500 calls": 0.2,
    "POST /playground": 0.2,
}
"""What takes the event loop longer, with its own bound. docs/security.md says why."""


def counts(number: int, *, start: int = 0) -> list[dict[str, Any]]:
    """Calls that read nothing of each other."""
    return [
        {"_tool": "count", "items": [one, f"item {one}"], "_outputPath": f"n{one}"}
        for one in range(start, start + number)
    ]


def rows(number: int) -> list[dict[str, Any]]:
    return [{"name": f"row {one}", "v": one % 7} for one in range(number)]


class Walk:
    """A server in a process of its own, its owner at the page and at MCP, and a client that
    pings beside both.
    """

    def __init__(self, http: httpx.Client, mcp: Client, pinger: Pinger) -> None:
        self.http = http
        self.mcp = mcp
        self.pinger = pinger
        self.measured: list[Pings] = []
        self.used: set[str] = set()

    async def tool(
        self, name: str, /, what: str = "", *, is_refused: bool = False, **arguments: Any
    ) -> dict[str, Any]:
        """Call one of the server's own tools. What is refused because it is too large shows nothing
        about the rest.
        """
        self.used.add(name)
        with self.pinger.beside(f"{name} {what}") as pings:
            result = await self.mcp.call_tool(name, arguments, read_timeout_seconds=300)
        self.measured.append(pings)
        assert result.is_error == is_refused, f"{name} {what}: {str(result.content)[:500]}"
        return cast("dict[str, Any]", result.structured_content or {})

    async def page(self, route: str, **values: Any) -> str:
        """Load a page; `values` fill its route, and what is left is its query."""
        return (
            await self._load(
                "GET", route, values, lambda path, query: self.http.get(path, params=query)
            )
        ).text

    async def form(self, route: str, **values: Any) -> httpx.Response:
        """Send a form."""
        return await self._load(
            "POST", route, values, lambda path, fields: serving.send(self.http, path, **fields)
        )

    async def _load(
        self,
        method: str,
        route: str,
        values: dict[str, Any],
        load: Callable[[str, dict[str, Any]], httpx.Response],
    ) -> httpx.Response:
        path = f"/ui{route}"
        left = dict(values)
        for found in re.findall(r"{(\w+)(?::\w+)?}", route):
            path = re.sub(rf"{{{found}(:\w+)?}}", str(left.pop(found)), path)

        self.used.add(f"{method} {route}")
        with self.pinger.beside(f"{method} {route}") as pings:
            response = await anyio.to_thread.run_sync(load, path, left)

        self.measured.append(pings)
        assert response.status_code in (200, 400, 404), response.text[:500]
        return response


@asynccontextmanager
async def walking(folder: Path) -> AsyncGenerator[Walk]:
    holds = folder / "holds.jsonl"
    through = [Path(__file__).with_name("watched_server.py"), holds]
    with (
        serving.served(folder, command="serve", through=through) as link,
        serving.client(link) as http,
    ):
        http.timeout = httpx.Timeout(300)
        address = str(http.base_url).rstrip("/")
        with Pinger(address.removeprefix("http://"), holds) as pinger:
            async with Client(f"{address}/mcp", mode="auto", read_timeout_seconds=300) as mcp:
                yield Walk(http, mcp, pinger)


async def test_the_worst_known_requests_leave_others_served(tmp_path: Path) -> None:
    async with walking(tmp_path) as walk:
        big = await walk.tool(
            "run_plan", "of 1,250 calls, saved", calls=counts(CALLS // 2), save_as="many", wait_s=0
        )
        while (await call(walk.mcp, "check_run", run=big["run"], wait_s=1)).get("saved", {}).get(
            "version"
        ) is None:
            pass
        await walk.page("/ideas/publish", ref=big["run"], name="many")
        await walk.page("/runs/{run}", run=big["run"])
        await walk.tool("check_run", run=big["run"], paths=[f"†state.n{one}" for one in range(100)])
        wide = await walk.tool(
            "run_plan", "of wide results", calls=wide_calls(), input={"rows": rows(10_000)}
        )
        await walk.page("/runs/{run}", run=wide["run"])
        await walk.tool("search_ideas", words="item " * 50_000)
        await walk.tool("search_tools", words="item " * 50_000)
        await walk.page("/runs")
        await walk.page("/ideas")
        drawn = await walk.form(
            "/playground", kind="plan", text=json.dumps(many_references(65)), action="check"
        )
        assert "it would make 150 calls" in drawn.text
        # Nobody could read such a drawing.
        assert 'class="graph' not in drawn.text
        # However slow the machine is, others must get answers while a request takes long.
        held = [one.shown for one in walk.measured if one.seconds > 1.5 and one.answered < 5]
        assert held == [], "\n".join(one.shown for one in walk.measured)


async def test_others_are_served_between_the_plan_checks_of_one_caller(tmp_path: Path) -> None:
    calls = [
        {
            "_tool": "count",
            "items": [f"†results.{before}" for before in range(max(0, number - 60), number)] or [1],
        }
        for number in range(200)
    ]
    checks = 5
    async with walking(tmp_path) as walk:
        with walk.pinger.beside("plan checks") as pings:
            async with anyio.create_task_group() as group:
                for _ in range(checks):
                    # On a slow machine, the answer comes too late for its size, and is an error.
                    group.start_soon(
                        walk.mcp.call_tool, "run_plan", {"calls": calls, "dry_run": True}
                    )

    assert pings.answered > 2 * checks, pings.shown


def many_references(each: int = 130) -> dict[str, Any]:
    """A plan of few calls, which read very many values of the input: so many each."""
    names = [[f"v{number}_{other}" for other in range(each)] for number in range(150)]
    calls = [
        {"_tool": "compute", "code": "1", **{name: f"†input.{name}" for name in row}}
        for row in names
    ]
    return {"calls": calls, "input": {name: 1 for row in names for name in row}}


def wide_calls() -> list[dict[str, Any]]:
    """Calls with large results."""
    return [
        {
            "_tool": "filter",
            "items": "†input.rows",
            "where": f"v != `{one}`",
            "_outputPath": f"w{one}",
        }
        for one in range(7)
    ]


@pytest.mark.long
async def test_every_tool_and_every_page_leaves_others_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with walking(tmp_path) as walk:
        try:
            await _every_tool(walk)
            await _every_page(walk)
        finally:
            measured = sorted(walk.measured, key=lambda one: -one.processor)
            with capsys.disabled():
                print("", *[one.shown for one in measured], sep="\n")

        assert set(OWN_NAMES) <= walk.used
        assert await routes() - walk.used == set()

    # docs/security.md has the figures, and says where they come from.
    held = [
        one.shown for one in walk.measured if one.processor > EXCEPTIONS.get(one.what.strip(), HELD)
    ]
    assert held == []
    assert [one.shown for one in walk.measured if one.collected > COLLECTED] == []


async def _every_tool(walk: Walk) -> None:
    many = await walk.tool(
        "run_plan", "of 2,500 calls, saved", calls=counts(CALLS), save_as="many", wait_s=45
    )
    await walk.tool("run_plan", "of 5,000 calls, dry", calls=counts(5_000), dry_run=True)
    chain: list[dict[str, Any]] = [{"_tool": "count", "items": [1]}]
    chain += [{"_tool": "count", "items": [f"†results.{one}"]} for one in range(2_000)]
    await walk.tool("run_plan", "of 2,000 calls in a chain", calls=chain, wait_s=45)
    text = "x" * 3_000_000
    await walk.tool("run_plan", "of 10,000 calls", calls=counts(10_000), wait_s=45)
    small_values = [[0] * 1_000 for _ in range(240)]
    call_of_them = {"_tool": "pick", "data": small_values, "path": "@"}
    await walk.tool(
        "run_plan", "of 240,000 small values", calls=[call_of_them], output="†results.0", wait_s=45
    )
    call_of_rows = {"_tool": "pick", "data": rows(80_000), "path": "@"}
    await walk.tool(
        "run_plan", "of 80,000 rows", calls=[call_of_rows], output="†results.0", wait_s=45
    )
    await walk.tool(
        "run_plan", "of a text of 3 MB", calls=[{"_tool": "pick", "data": text, "path": "@"}]
    )
    wide = await walk.tool(
        "run_plan", "of wide results", calls=wide_calls(), input={"rows": rows(60_000)}, wait_s=45
    )
    await walk.tool(
        "run_plan",
        "of a long program",
        program="\n".join(f"x{one} = {one}" for one in range(6_000)),
    )
    await walk.tool("check_run", "of 2,500 calls", run=many["run"])
    await walk.tool(
        "check_run",
        "with 100 paths",
        run=many["run"],
        paths=[f"†state.n{one}" for one in range(100)],
    )
    await walk.tool("check_run", "whole wide result", run=wide["run"], paths=["†state.w0"])
    await walk.tool("check_run", "of all runs")
    await walk.tool("publish_idea", "of 2,500 calls", idea=many["run"], name="many_more")
    await walk.tool("publish_idea", "of wide results", idea=wide["run"], name="wide")
    await walk.tool(
        "publish_idea", "asks for a program", idea=many["run"], name="program", program="?"
    )
    await walk.tool("search_ideas", "for many words", words="item " * 500_000)
    await walk.tool("search_ideas", "all", limit=100)
    await walk.tool("search_tools", "for many words", words="item " * 500_000)
    await walk.tool("search_tools", "for many tasks", words=["count items"] * 100_000)
    await walk.tool("view_run", "of 2,500 calls", run=many["run"])
    await walk.tool("view_run", "of wide results", run=wide["run"])
    task = await walk.tool("solve", "of a long task", task="word " * 200_000, mind="turns")
    turn = task["turn"]
    solution = {"calls": counts(CALLS), "output": None}
    run = task["run"]
    await walk.tool("submit_solution", "of 2,500 calls", run=run, turn=turn, solution=solution)
    decisions = [_decision(one) for one in range(1_000)]
    await walk.tool("decide_approval", "1,000 times", is_refused=True, run=run, decisions=decisions)


def _decision(number: int) -> dict[str, Any]:
    return {"approval": f"ap_{number}", "decision": "approve"}


async def _every_page(walk: Walk) -> None:
    listed = (await call(walk.mcp, "check_run"))["runs"]
    many, wide = (
        max(listed, key=lambda one: title in one["title"])["run"] for title in ("count", "filter")
    )
    for route in (
        "/",
        "/sign-in",
        "/runs",
        "/runs/direct",
        "/approvals",
        "/ideas",
        "/modules",
        "/admin",
    ):
        await walk.page(route)

    for route in ("/playground", "/playground/tools", "/admin/doctor"):
        await walk.page(route)

    for run in (many, wide):
        await walk.page("/approvals/whole", which=f"{run}:none")
        await walk.page("/runs/{run}", run=run)
        await walk.page("/runs/{run}", run=run, at=CALLS)
        await walk.page("/runs/{run}/picture.svg", run=run)
        for route in ("/runs/{run}/calls/{call}", "/runs/{run}/calls/{call}/result"):
            await walk.page(route, run=run, call=0)

        await walk.page("/runs/{run}/calls/{call}/images/{image}", run=run, call=0, image=0)
        await walk.form("/runs/{run}/fork", run=run, at="2")
        await walk.form("/runs/{run}/cancel", run=run)
        await walk.form("/runs/{run}/resume", run=run)
        await walk.page("/ideas/publish", ref=run, name="made")
        await walk.form("/ideas/publish", ref=run, name="made", decided="[{}, {}]")

    await walk.page("/ideas/{name}", name="many")
    await walk.page("/ideas/{name}/diff", name="made")
    await walk.page("/ideas/id/{idea}", idea="many")
    await walk.form("/ideas/{name}/call", name="many")
    await walk.form("/ideas/{name}/verify", name="many")
    await walk.form("/ideas/{name}/version", name="many", action="pin", version="1")
    await walk.form("/ideas/{name}/unpublish", name="made")
    await walk.page("/modules/{name}", name="none")
    await walk.form("/modules/{name}/call", name="none")
    await walk.form(
        "/playground", kind="plan", text=json.dumps({"calls": counts(CALLS)}), action="check"
    )
    await walk.form("/playground", kind="plan", text=json.dumps(many_references()), action="check")
    await walk.page("/write")
    await walk.form("/write", text=json.dumps({"context": ["x"] * 50_000}), action="check")
    await _every_page_of_a_long_question(walk)
    await walk.form("/approvals", decision="approve")
    await walk.form("/approvals/decide", which=f"{many}:none", decision="approve")
    await walk.form("/admin/users", action="add", name="ann")
    await walk.form("/admin/tokens", action="issue", name="ann")
    await walk.form("/admin/backup")


async def _every_page_of_a_long_question(walk: Walk) -> None:
    asking = {"_tool": "refund", "order": 1, "amount": 5, "note": "long " * 500_000}
    waiting = await walk.tool("run_plan", "that asks about 2.5 MB", calls=[asking], wait_s=45)
    run = waiting["run"]
    [asked] = waiting["approvals"]
    await walk.page("/approvals")
    assert "long long" in await walk.page("/approvals/whole", which=f"{run}:{asked['approval']}")
    await walk.page("/runs/{run}", run=run)
    await walk.page("/runs/{run}/calls/{call}", run=run, call=0)


async def routes() -> set[str]:
    """The routes of all pages, as `GET /runs`."""
    async with Bridge(store=":memory:") as bridge, anyio.create_task_group() as group:
        found = {
            f"{method} {route.path}"
            for route in routes_of(Site(bridge, Front(bridge, group, "0")))
            for method in route.methods or ()
            if method != "HEAD"
        }
        group.cancel_scope.cancel()
        return found
    raise AssertionError
