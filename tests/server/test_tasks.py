"""Long runs as tasks, for clients that declare the extension."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import types
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError

from .serving import configured, in_memory, over_stdio, structured
from .test_skills import AnyResult

pytestmark = pytest.mark.anyio

TASKS = [advertise("io.modelcontextprotocol/tasks", {})]
Method = Literal["tools/call", "tasks/get", "tasks/update", "tasks/cancel"]


class Raw(types.Request[Any, Method]):
    method: Method
    params: Any


async def asked(client: Any, method: Method, **params: Any) -> dict[str, Any]:
    result = await client.session.send_request(Raw(method=method, params=params), AnyResult)
    return result.model_dump(by_alias=True, exclude_none=True)


async def started(client: Any, gate: Path, **more: Any) -> dict[str, Any]:
    plan = {"calls": [{"_tool": "hold", "gate": str(gate)}], "output": "†results.0", **more}
    return await asked(client, "tools/call", name="run_plan", arguments=plan)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def opened(gate: Path) -> None:
    with gate.open("w") as file:
        file.write("go\n")


async def test_a_long_run_is_a_task_whose_result_is_that_of_the_run(
    tmp_path: Path, gate: Path
) -> None:
    async with over_stdio(configured(tmp_path), "auto", extensions=TASKS) as client:
        task = await started(client, gate, wait_s=0)
        assert (task["resultType"], task["status"]) == ("task", "working")
        state = await asked(client, "tasks/get", taskId=task["taskId"])
        assert (state["resultType"], state["status"]) == ("complete", "working")
        assert state["statusMessage"] == "0 of 1 call ended"
        updated = await asked(client, "tasks/update", taskId=task["taskId"], inputResponses={})
        assert updated["resultType"] == "complete"
        await anyio.to_thread.run_sync(opened, gate)
        while (state := await asked(client, "tasks/get", taskId=task["taskId"]))[
            "status"
        ] == "working":
            pass
        assert state["status"] == "completed"
        told = state["result"]["structuredContent"]
        assert (told["run"], told["status"], told["output"]) == (task["taskId"], "done", "go")
        # Every other tool can use the run, too.
        checked = structured(await client.call_tool("check_run", {"run": task["taskId"]}))
        assert checked["output"] == "go"


async def test_a_cancelled_task_is_a_cancelled_run(tmp_path: Path, gate: Path) -> None:
    async with in_memory(configured(tmp_path), "auto", extensions=TASKS) as client:
        task = await started(client, gate, wait_s=0)
        await asked(client, "tasks/cancel", taskId=task["taskId"])
        assert (await asked(client, "tasks/get", taskId=task["taskId"]))["status"] == "cancelled"
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(MCPError) as refused:
                await asked(client, method, taskId="run_0000000000000000")
            assert refused.value.error.code == types.INVALID_PARAMS


async def test_other_clients_get_no_tasks(tmp_path: Path, gate: Path) -> None:
    async with in_memory(configured(tmp_path), "auto") as client:
        answer = await started(client, gate, wait_s=0)
        assert answer["resultType"] == "complete"
        assert answer["structuredContent"]["status"] == "running"
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(MCPError) as refused:
                await asked(client, method, taskId=answer["structuredContent"]["run"])
            assert refused.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        await anyio.to_thread.run_sync(opened, gate)


async def test_a_short_run_is_answered_at_once(tmp_path: Path) -> None:
    async with in_memory(configured(tmp_path), "auto", extensions=TASKS) as client:
        plan = {"calls": [{"_tool": "add", "a": 1, "b": 2}], "output": "†results.0"}
        answer = await asked(client, "tools/call", name="run_plan", arguments=plan)
        assert answer["resultType"] == "complete"
        assert answer["structuredContent"]["output"] == 3
