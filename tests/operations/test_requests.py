"""The log of requests: a line for each, with who asked for what and how it ended, and nothing
of what was sent.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.store import Store
from ideabridge.server.operations.requests import ServedRequest, log_request
from tests.server.serving import ERAS, configured, served

pytestmark = pytest.mark.anyio

SECRET = "a-word-that-only-parameters-have"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": SECRET, "version": "1"},
    },
}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Written:
    """A server process, and the lines that it writes to standard error."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        self.all: list[str] = []
        self.lines: list[dict[str, str]] = []
        self._stream = process.stderr

    def url(self) -> str:
        line = self._stream.readline()
        assert "serving on http://" in line, line
        return line.split()[-1]

    def until(self, **wanted: str) -> dict[str, str]:
        """The next line of a request with these values."""
        while line := self._stream.readline():
            self.all.append(line)
            if line.startswith("time="):
                self.lines.append(dict(pair.split("=", 1) for pair in shlex.split(line)))
                if wanted.items() <= self.lines[-1].items():
                    return self.lines[-1]
        raise AssertionError(f"no line with {wanted} in {self.all}")

    def end(self) -> str:
        """End the server; everything that it wrote."""
        self.process.send_signal(signal.SIGTERM)
        self.all += self._stream.readlines()
        self.process.wait(30)
        return "".join(self.all)


@contextmanager
def started(configuration: Path, *words: str) -> Generator[Written]:
    command = served(configuration, *words)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as process:
        try:
            yield Written(process)
        finally:
            process.kill()


@pytest.mark.parametrize("mode", ERAS)
async def test_each_request_over_http_is_one_line_without_what_was_sent(
    tmp_path: Path, mode: str
) -> None:
    configuration = configured(tmp_path, expose=["tools"])
    with Store.open(tmp_path / "ideas.sqlite") as store:
        token = store.users.add_token(store.users.add("alice").name)[1]

    with started(configuration, "--http", "0", "--ui", "--log-level", "info") as written:
        url = written.url()
        base = url.removesuffix("/mcp")
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=20) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            plan: dict[str, Any] = {"calls": [{"_tool": "count_words", "text": SECRET}]}
            await client.call_tool("run_plan", plan)
            call = written.until(method="tools/call", tool="run_plan")
            assert (call["user"], call["status"], call["http"], call["level"]) == (
                "alice",
                "ok",
                "200",
                "info",
            )
            assert 0 < float(call["seconds"]) < 20
            await client.call_tool("add", {"a": 1, "b": 2})
            assert written.until(tool="add")["status"] == "ok"
            await client.call_tool("add", {"a": SECRET})
            assert written.until(tool="add")["status"] == "error"
            # The client made up the name of a tool that does not exist, so the name is not logged.
            assert (await client.call_tool(f"no-{SECRET}", {})).is_error
            unknown = written.until(method="tools/call")
            assert (unknown["status"], unknown["user"], unknown.get("tool")) == (
                "error",
                "alice",
                None,
            )
            counted = len([line for line in written.lines if line["method"] == "tools/call"])
            assert counted == 4

        async with httpx2.AsyncClient() as stranger:
            assert (
                await stranger.post(url, headers={"authorization": f"Bearer {SECRET}"})
            ).status_code == 401
            refused = written.until(http="401")
            assert (refused["method"], refused["status"], refused.get("user")) == (
                "POST /mcp",
                "refused",
                None,
            )
            await stranger.get(f"{base}/healthz")
            await stranger.get(f"{base}/ui/runs/{SECRET}")
            await stranger.get(f"{base}/{SECRET}")
            written.until(method="GET elsewhere")
            # Requests for health have no lines. The client that left may have some here, because
            # its stream ends only when the server notices.
            since = [line["method"] for line in written.lines[written.lines.index(refused) + 1 :]]
            assert [method for method in since if not method.endswith(" /mcp")] == [
                "GET /ui",
                "GET elsewhere",
            ]

        everything = written.end()

    assert SECRET not in everything
    assert token not in everything


async def test_methods_that_do_not_exist_are_not_named(tmp_path: Path) -> None:
    with started(configured(tmp_path), "--http", "0", "--log-level", "debug") as written:
        url = written.url()
        async with httpx2.AsyncClient(headers=HEADERS) as http:
            session = (await http.post(url, json=HELLO)).headers["mcp-session-id"]
            assert written.until()["method"] == "initialize"
            message = {"jsonrpc": "2.0", "id": 2, "method": f"tools/{SECRET}"}
            await http.post(url, json=message, headers={"mcp-session-id": session})
            line = written.until()
            assert (line["method"], line["status"], line["user"]) == ("unknown", "error", "local")
            await http.get(url.replace("/mcp", "/readyz"))
            assert written.until(level="debug")["method"] == "GET /readyz"
        assert SECRET not in written.end()


def test_requests_on_stdio_are_lines_too(tmp_path: Path) -> None:
    with started(configured(tmp_path), "--log-level", "info") as written:
        assert written.process.stdin is not None
        told = {"method": "notifications/initialized"}
        call = {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "search_tools", "arguments": {"words": SECRET}},
        }
        for message in (HELLO, told, call):
            written.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            written.process.stdin.flush()
        line = written.until(tool="search_tools")
        assert (line["status"], line["user"], line.get("http")) == ("ok", "local", None)
        assert [one["method"] for one in written.lines] == ["initialize", "tools/call"]
        assert SECRET not in written.end()


async def test_without_being_asked_for_there_are_no_lines(tmp_path: Path) -> None:
    with started(configured(tmp_path), "--http", "0") as written:
        async with Client(written.url(), mode="auto") as client:
            await client.list_tools()
        assert "tools/list" not in written.end()


@pytest.mark.parametrize(
    ("status", "method", "level"),
    [
        ("failed", "GET /ui", "ERROR"),
        ("ok", "GET /healthz", "DEBUG"),
        ("refused", "POST /mcp", "INFO"),
    ],
)
def test_the_level_of_a_line_says_whose_matter_it_is(
    status: Any, method: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "ideabridge.requests"):
        log_request(ServedRequest(method, 'a "b"\nlevel=error', status=status))

    (record,) = caplog.records
    assert record.levelname == level
    pairs = shlex.split(record.getMessage())[1:]
    # A name stays a single value on a single line, whatever it contains.
    user = 'user=a "b"\\u000alevel=error'
    assert pairs[:4] == [f"level={level.lower()}", f"method={method}", user, f"status={status}"]
