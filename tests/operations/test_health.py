"""`/healthz` and `/readyz`: what supervisors and balancers ask a server over HTTP."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client

from ideabridge.bridge.store.store import Store
from tests import preloaded, waiting
from tests.disk import REASON, SCRIPT, Disk
from tests.server.serving import configured, http_process, listening, plain

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def delete_store(folder: Path) -> None:
    for path in folder.glob("ideas.sqlite*"):
        path.unlink()


async def reach(url: str, path: str, method: str = "GET", **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient() as http:
        return await http.request(method, url.removesuffix("/mcp") + path, headers=headers)


async def until(url: str, wanted: Callable[[httpx2.Response], bool]) -> httpx2.Response:
    """The first answer of `/readyz` that is as wanted."""
    with anyio.fail_after(20):
        while not wanted(answer := await reach(url, "/readyz")):  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(waiting.PAUSE)
        return answer


async def test_probes_need_no_token_and_no_name_and_tell_nothing(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("alice")

    with http_process(configuration) as url:
        assert (await reach(url, "/mcp", "POST")).status_code == 401
        for path in ("/healthz", "/readyz"):
            answer = await reach(url, path, host="10.0.0.7:8787")
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
            assert answer.headers["cache-control"] == "no-store"
            head = await reach(url, path, "HEAD")
            assert (head.status_code, head.content) == (200, b"")
            assert (await reach(url, path, "POST")).status_code == 405

        assert (await reach(url, "/healthz/more")).status_code == 401


async def test_a_server_is_ready_once_its_modules_were_tried(tmp_path: Path) -> None:
    pipe = tmp_path / "hold"
    os.mkfifo(pipe)
    modules = {
        "slow": plain(tmp_path, "slow", "look", hold=pipe),
        "missing": {"command": "no-such-program-anywhere"},
    }
    with http_process(configured(tmp_path, mcpServers=modules)) as url:
        held = await reach(url, "/readyz")
        assert held.status_code == 503
        assert held.json() == {
            "status": "not ready",
            "reasons": ["servers are connecting for the first time"],
        }
        assert (await reach(url, "/healthz")).status_code == 200
        # The pipe can be opened once the module is waiting at it.
        await anyio.to_thread.run_sync(pipe.write_text, "go on\n")
        # The other module has failed, and the server works without it.
        assert (await until(url, lambda answer: answer.is_success)).json() == {"status": "ok"}


@pytest.mark.skipif(bool(REASON), reason=REASON)
async def test_a_server_whose_store_takes_no_writes_is_not_ready_until_it_does(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path / "disk")
    configuration = configured(tmp_path)
    command = preloaded.python(
        SCRIPT, str(disk.folder), "serve", "--http", "0", "--config", str(configuration)
    )
    plan: dict[str, Any] = {
        "name": "run_plan",
        "arguments": {"calls": [{"_tool": "add", "a": 1, "b": 2}]},
    }
    with listening(command) as url:

        async def run() -> None:
            async with Client(url, mode="auto", read_timeout_seconds=60) as client:
                assert not (await client.call_tool(**plan)).is_error

        await until(url, lambda answer: answer.is_success)
        async with anyio.create_task_group() as group:
            disk.fail(errno.ENOSPC)
            group.start_soon(run)
            failing = await until(url, lambda answer: answer.status_code == 503)
            assert failing.json()["reasons"] == ["the store cannot be written"]
            assert (await reach(url, "/healthz")).status_code == 200
            disk.heal()
            await until(url, lambda answer: answer.is_success)


async def test_a_server_whose_store_is_gone_is_not_ready(tmp_path: Path) -> None:
    with http_process(configured(tmp_path)) as url:
        await until(url, lambda answer: answer.is_success)
        delete_store(tmp_path)
        gone = await until(url, lambda answer: answer.status_code == 503)
        assert "the store cannot be read" in gone.json()["reasons"]
        # The reasons do not name any file, because nobody had to prove who they are.
        assert str(tmp_path) not in gone.text
