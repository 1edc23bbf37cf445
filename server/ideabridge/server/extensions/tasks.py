"""Offer long runs as tasks to clients that declare the Tasks extension (SEP-2663).

A task is a run with the same id; nothing else is stored. `run_plan` and `solve` answer such a
client with a task if the run has not ended after a few seconds. The client then calls `tasks/get`
until it gets a result, which is the answer that `check_run` would give. If a run is waiting for a
decision or a solution, its task is completed, because the assistant must take the next step. The
result says what to do, as the tool's own answer does.
"""

from __future__ import annotations

from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import Field

from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.server.answers import ToolAnswer
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.running import Running
from ideabridge.tools.encoding import JSONObject
from ideabridge.tools.names import counted

EXTENSION: Final = "io.modelcontextprotocol/tasks"
STARTING: Final = ("run_plan", "solve")
"""The tools whose runs can become tasks."""

WAIT_S: Final = 5
"""Seconds after which a run becomes a task, unless the call sets `wait_s`."""

_POLL_MS: Final = 1000


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateTaskParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(default_factory=dict[str, Any])


def takes_tasks(request: ToolRequest) -> bool:
    """Return whether the client declares tasks in this request."""
    capabilities = request.context.session.client_capabilities
    extensions = None if capabilities is None else capabilities.extensions
    return request.has_rounds and EXTENSION in (extensions or {})


class RunTasks:
    """Handles `tasks/*`, and turns answers into tasks."""

    def __init__(self, running: Running) -> None:
        self._bridge = running.bridge
        self._running = running

    def answer(self, result: ToolAnswer) -> ToolAnswer:
        """Return the answer from a tool that has started a run: a task if the run is still working,
        and the tool's own answer otherwise.
        """
        content = cast("JSONObject", result.get("structuredContent") or {})
        run_id = content.get("run")
        if content.get("status") != "running" or not isinstance(run_id, str):
            return result
        return {**self._task(run_id, "working"), "resultType": "task"}

    def _task(self, run_id: str, status: str) -> dict[str, Any]:
        record = self._bridge.store.runs.get(run_id)
        assert record is not None
        return {
            "taskId": run_id,
            "status": status,
            "statusMessage": f"run {run_id}: {record.title}"[:200],
            "createdAt": record.created,
            "lastUpdatedAt": record.updated or record.created,
            "ttlMs": None,
            "pollIntervalMs": _POLL_MS,
        }

    async def _run(self, run_id: str, request: ToolRequest) -> Run:
        if not takes_tasks(request):
            data: JSONObject = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"expected the extension {EXTENSION}",
                data,
            )
        try:
            return await self._bridge.run(run_id, caller=request.caller)
        except UnknownRunError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None

    async def get(self, params: TaskParams, request: ToolRequest) -> dict[str, Any]:
        """Return the state of a task, with its result once it has one.

        Raises:
            MCPError: the caller has no such run, or the client does not declare the extension.
        """
        run = await self._run(params.task_id, request)
        if run.status == "running":
            calls = run.calls()
            ended = sum(call.settled for call in calls)
            message = f"{ended} of {counted(len(calls), 'call')} ended"
            return {
                **self._task(run.id, "working"),
                "statusMessage": message,
                "resultType": "complete",
            }

        if run.status == "cancelled":
            return {**self._task(run.id, "cancelled"), "resultType": "complete"}

        result = self._running.answer_of(run, request)
        return {**self._task(run.id, "completed"), "result": result, "resultType": "complete"}

    async def update(self, params: UpdateTaskParams, request: ToolRequest) -> dict[str, Any]:
        """Acknowledge answers. They change nothing, because tasks never ask for answers.

        Raises:
            MCPError: the caller has no such run, or the client does not declare the extension.
        """
        await self._run(params.task_id, request)
        return {"resultType": "complete"}

    async def cancel(self, params: TaskParams, request: ToolRequest) -> dict[str, Any]:
        """End the run of a task. A run that has already ended is not changed.

        Raises:
            MCPError: the caller has no such run, or the client does not declare the extension.
        """
        run = await self._run(params.task_id, request)
        if not run.machine.ended:
            await self._bridge.cancel(run.id, "cancelled by the client", caller=request.caller)
        return {"resultType": "complete"}
