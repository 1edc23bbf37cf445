"""Workers: a job that is given up ends its own worker, and nobody else's."""

from __future__ import annotations

from collections.abc import Generator

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.abc import TaskGroup

from ideabridge.tools import worker
from ideabridge.tools.encoding import JSON
from ideabridge.tools.worker import WorkerError, Workers

pytestmark = pytest.mark.anyio


@pytest.fixture
def workers() -> Generator[Workers]:
    made = Workers()
    yield made
    made.close()


async def quick(workers: Workers) -> JSON:
    """A job that takes no time."""
    return await workers.run("ideabridge.tools.names:printable", ["done"], what="printing")


async def answered_but_not_taken(
    workers: Workers, scope: anyio.CancelScope, group: TaskGroup
) -> None:
    """Let a worker answer a job whose task cannot go on, because this one holds the event loop."""

    async def ask() -> None:
        with scope:
            await quick(workers)

    group.start_soon(ask)
    await wait_all_tasks_blocked()
    while workers.at_work:
        pass


async def test_a_job_that_is_given_up_when_it_is_answered_leaves_no_worker_at_work(
    workers: Workers,
) -> None:
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()
        await answered_but_not_taken(workers, scope, group)
        scope.cancel()
    assert workers.at_work == 0
    assert await quick(workers) == "done"


async def test_a_job_that_is_given_up_ends_no_worker_that_has_another_job(workers: Workers) -> None:
    answers: list[JSON] = []

    async def ask() -> None:
        answers.append(await quick(workers))

    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()
        await answered_but_not_taken(workers, scope, group)
        # This uses the worker that is idle again.
        group.start_soon(ask)
        scope.cancel()

    assert answers == ["done"]


async def test_a_worker_that_does_not_begin_in_time_has_not_computed_for_too_long(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "START_SECONDS", 0.001)
    with pytest.raises(WorkerError, match=r"printing: its worker process did not start within"):
        await quick(workers)

    assert workers.at_work == 0
