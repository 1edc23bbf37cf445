"""Modules that send far more than they were asked for: notifications, requests, stderr, lists
of tools, values.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge.context.preview import MAX_DESCRIPTION
from ideabridge.bridge.modules.connection import MOST_NOTIFICATIONS
from ideabridge.bridge.modules.errors import ModuleTimeoutError
from ideabridge.bridge.modules.pages import MAX_LIST_BYTES
from ideabridge.tools.errors import LimitExceededError
from tests.modules.conftest import Changes, modules_of

pytestmark = pytest.mark.anyio

FLOODING = Path(__file__).with_name("flooding.py")


def flooding(kind: str = "plain", **keys: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", str(FLOODING), kind], **keys}


@asynccontextmanager
async def over_http(path: str) -> AsyncGenerator[dict[str, Any]]:
    command = [sys.executable, "-I", str(FLOODING), "plain", "--http"]
    async with await anyio.open_process(command, stdin=None, stderr=None) as process:
        assert process.stdout is not None
        port = int(await process.stdout.receive())
        try:
            yield {
                "type": "sse" if path == "/sse" else "http",
                "url": f"http://127.0.0.1:{port}{path}",
            }
        finally:
            process.kill()


async def test_progress_beyond_a_bound_is_left_out_and_the_answer_comes() -> None:
    heard = 0

    async def told(_progress: float, _total: float | None, _message: str | None) -> None:
        nonlocal heard
        heard += 1

    async with modules_of({"m": flooding()}) as modules:
        assert await modules["m"].call("progress", {}, progress=told) == "done"
        assert MOST_NOTIFICATIONS // 2 < heard < 10_000
        assert any("notifications" in note for note in modules["m"].status().notes)


async def test_a_storm_of_changes_ends_with_the_last_list() -> None:
    changes = Changes()
    async with modules_of({"m": flooding("changing")}, changes) as modules:
        await modules["m"].call("changed", {})
        await changes.until(lambda: "list_2" in [tool.name for tool in modules.tools()])
        before = len(changes.heard)
        await modules["m"].call("changed", {})
        await changes.until(lambda: len(changes.heard) > before)
        assert len(changes.heard) < 50


async def test_a_module_that_asks_without_end_keeps_nobody_else_waiting() -> None:
    async with (
        modules_of({"m": flooding(), "other": flooding()}) as modules,
        anyio.create_task_group() as group,
    ):

        async def flood() -> None:
            await modules["m"].call("ping", {}, timeout=300)
            raise AssertionError("the flood has ended")

        await modules.settled(30)
        group.start_soon(flood)
        with anyio.fail_after(60):
            for _ in range(20):
                assert await modules["other"].call("quick", {}) == "done"

        group.cancel_scope.cancel()


async def test_a_call_that_is_answered_with_a_flood_ends_with_its_time() -> None:
    async with modules_of({"m": flooding()}) as modules:
        with pytest.raises(ModuleTimeoutError), anyio.fail_after(60):
            await modules["m"].call("ping", {}, timeout=0.5)


async def test_stderr_is_read_to_its_end_and_only_its_end_is_kept() -> None:
    async with modules_of({"m": flooding()}) as modules:
        with anyio.fail_after(60):
            assert await modules["m"].call("stderr", {}) == "done"


async def test_a_list_of_tools_without_end_is_cut_off() -> None:
    async with modules_of({"m": flooding("pages")}) as modules:
        await modules["m"].ready(30)
        assert f"lists its tools in more than {MAX_LIST_BYTES:,} bytes" in str(
            modules["m"].status().notes
        )


async def test_long_descriptions_are_cut_with_a_note() -> None:
    async with modules_of({"m": flooding()}) as modules:
        await modules.settled(30)
        for tool in modules.tools():
            assert len(tool.description.encode()) == MAX_DESCRIPTION
            assert tool.description.endswith("… (cut: the description has 5,000 bytes)")


async def test_millions_of_values_in_an_answer_are_refused_over_stdio() -> None:
    async with modules_of({"m": flooding()}) as modules:
        with pytest.raises(LimitExceededError, match="contains more than 1,048,576 JSON values"):
            await modules["m"].call("lists", {})
        assert await modules["m"].call("quick", {}) == "done"


@pytest.mark.parametrize("path", ["/json", "/events", "/sse"])
async def test_millions_of_values_in_an_answer_are_refused_over_http(path: str) -> None:
    async with over_http(path) as entry, modules_of({"m": entry}) as modules:
        with pytest.raises(LimitExceededError, match="contains more than 1,048,576 JSON values"):
            await modules["m"].call("lists", {})
        assert await modules["m"].call("quick", {}) == "done"
