"""Nobody freezes the server: what computes for long does so in a worker process, which can be stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client

from ideabridge.tools.builtins import builtin_toolbox
from ideabridge.tools.encoding import JSON
from ideabridge.tools.worker import workers
from tests.server.serving import call, configured, http_process

pytestmark = pytest.mark.anyio

ROWS: Final = """
from ideabridge.tools.decorator import tool

@tool(read_only=True)
async def rows(n: int) -> list[dict[str, int | str]]:
    return [{"id": one, "name": f"row {one}", "v": one % 7} for one in range(n)]
"""
SLOW: Final = " && ".join(["contains(name, 'row')"] * 12)
"""A condition that takes seconds over 100,000 rows, and holds for all of them."""


def rows(count: int) -> list[JSON]:
    return [{"id": one, "name": f"row {one}", "v": one % 7} for one in range(count)]


async def run(tool: str, **arguments: JSON) -> JSON:
    return await builtin_toolbox().activity(tool).run(dict[str, JSON](arguments), Any)  # pyright: ignore[reportArgumentType]


def children() -> list[int]:
    """The worker processes of this process."""
    return [one.process.pid for one in workers.alive()]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def no_workers() -> Iterator[None]:
    workers.close()
    yield
    workers.close()


async def test_others_are_answered_while_one_call_computes_over_100_000_items(tmp_path: Path) -> None:
    tools = tmp_path / "rows.py"
    tools.write_text(ROWS)
    plan: list[dict[str, Any]] = [
        {"_tool": "rows", "n": 100_000, "_outputPath": "rows"},
        {"_tool": "filter", "items": "†state.rows", "where": f"v > `5` && {SLOW}", "_outputPath": "kept", "_id": "f"},
        {"_tool": "pick", "data": "†state.kept", "path": "[length(@), sum([].id)]", "_outputPath": "told"},
    ]
    with http_process(configured(tmp_path, tools=[str(tools)])) as url:
        async with Client(url, mode="auto") as one, Client(url, mode="auto") as other:
            begun = await call(one, "run_plan", calls=plan, output="†state.told", wait_s=0)
            for _ in range(3):
                assert (await other.list_tools(cache_mode="bypass")).tools
                assert (await call(other, "search_tools", words="filter"))["tools"]
            # The run was not over when the others were answered.
            now = await call(other, "check_run", run=begun["run"], wait_s=0)
            assert now["status"] == "running", now
            done = await call(one, "check_run", run=begun["run"], wait_s=45)
    kept = [one for one in range(100_000) if one % 7 > 5]
    assert (done["status"], done["output"]) == ("done", [len(kept), sum(kept)])
