"""Servers of the tests, as processes of their own, and how to speak to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import anyio
from mcp import Client, StdioServerParameters, types

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.driving.queue import Role
from ideabridge.bridge.modules.connection import own_version
from ideabridge.server.asking.elicitation import AT_ONCE_S
from ideabridge.server.server import Front
from tests import preloaded

HERE = Path(__file__).parent
LAUNCH = HERE / "launch.py"
TOOLS = HERE / "tools.py"
BIN = Path(sys.executable).parent
ERAS = ("legacy", "auto")
Command = Callable[[Path], list[str]]
Open = Callable[..., AbstractAsyncContextManager[Client]]
"""`over_stdio` or `in_memory`."""

PLAIN = HERE / "plain.py"


def configured(folder: Path, **top: Any) -> Path:
    """A configuration file with a store and the tools of the tests."""
    path = folder / "ideabridge.json"
    path.write_text(json.dumps({"store": "ideas.sqlite", "tools": [str(TOOLS)], **top}))
    return path


def plain(
    folder: Path, name: str, *tools: str | dict[str, Any], hold: Path | None = None
) -> dict[str, Any]:
    """Configuration of a module with these tools; see `plain.py`. It is the same whatever
    the module does. The module starts with each server, so that tests can hold it while it
    connects.

    Args:
        folder: where the file with its tools stands, as `NAME.json`.
        name: the module's name.
        tools: definitions, or names of tools that take any text `x`.
        hold: a named pipe; the module does not answer before somebody writes to it.
    """
    parameters = {"type": "object", "properties": {"x": {"type": "string"}}}
    told = [
        {"name": one, "inputSchema": parameters} if isinstance(one, str) else one for one in tools
    ]
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"tools": told, "hold": None if hold is None else str(hold)}))
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(PLAIN), str(file)],
        "start": "eager",
    }


def command(configuration: Path, *more: str) -> list[str]:
    return preloaded.python(LAUNCH, str(configuration), *more)


def served(configuration: Path, *more: str) -> list[str]:
    """What a host starts."""
    return preloaded.python(BIN / "ideabridge", "serve", "--config", str(configuration), *more)


def time_module() -> dict[str, Any]:
    """Configuration of a module that nobody here wrote."""
    return preloaded.module(BIN / "mcp-server-time", "--local-timezone", "UTC")


def git_module(repository: Path) -> dict[str, Any]:
    """Configuration of a module that nobody here wrote."""
    return preloaded.module(BIN / "mcp-server-git", "--repository", str(repository))


@asynccontextmanager
async def over_stdio(
    configuration: Path, mode: str, start: Command = command, **keys: Any
) -> AsyncGenerator[Client]:
    """A client of a server process of its own."""
    program, *arguments = start(configuration)
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with Client(parameters, mode=mode, read_timeout_seconds=60, **keys) as client:
        yield client


@asynccontextmanager
async def in_memory(
    configuration: Path, mode: str, *, role: Role = "alone", **keys: Any
) -> AsyncGenerator[Client]:
    """A client of a server in this process, with the same work in the background as `over_stdio`:
    for tests that neither the transport nor a process of its own makes a difference to.
    """
    fronts: list[Front] = []

    def changed() -> None:
        for front in fronts:
            front.announcements.poke()

    loaded = load_configuration(configuration)
    async with (
        Bridge(loaded, on_tools_changed=changed, role=role, standing_rules=True) as bridge,
        anyio.create_task_group() as group,
    ):
        front = Front(bridge, group, own_version())
        fronts.append(front)
        group.start_soon(front.announcements.run)
        group.start_soon(front.running.relaying.elsewhere.run)
        group.start_soon(front.direct_calls.run)
        group.start_soon(front.direct_calls.end_sessions)
        async with Client(front.server, mode=mode, read_timeout_seconds=60, **keys) as client:
            yield client

        front.running.closing = True
        front.direct_calls.flush()
        group.cancel_scope.cancel()


@contextmanager
def http_process(configuration: Path, **environment: str) -> Generator[str]:
    """A server process on a free port; gives its URL."""
    with listening(command(configuration, "0"), **environment) as url:
        yield url


@contextmanager
def listening(program: Sequence[str], **environment: str) -> Generator[str]:
    """A server process that tells where it listens; gives its URL."""
    process = subprocess.Popen(
        program, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "serving on http://" in line, line
        yield line.split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def structured(result: types.CallToolResult) -> dict[str, Any]:
    """The structured content of an answer. That of an error which the schema of its tool refuses
    stands in `_meta`.
    """
    if result.structured_content is None and result.is_error:
        return (result.meta or {})["ideabridge/structured"]
    return cast("dict[str, Any]", result.structured_content)


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def call(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that works."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, text(result)
    return structured(result)


async def refused(client: Client, name: str, /, **arguments: Any) -> str:
    """The text of a call that does not."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, text(result)
    return text(result)


async def read_by_a_person() -> None:
    """Wait for longer than a client takes that declines a form without showing it."""
    await anyio.sleep(AT_ONCE_S + 0.05)


class Gate:
    """Holds calls of the tool `hold` until it is opened: a named pipe, which keeps
    what is written.
    """

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.path = folder / name
        os.mkfifo(self.path)
        self._descriptor = os.open(self.path, os.O_RDWR)

    def open(self) -> None:
        """Let the call that waits, or comes, go on."""
        os.write(self._descriptor, b"open\n")

    def close(self) -> None:
        os.close(self._descriptor)


class Heard:
    """Notifications a client got, and waiting for one."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self._changed = anyio.Event()

    async def __call__(self, message: Any) -> None:
        self.note(getattr(message, "method", type(message).__name__))

    def note(self, method: str) -> None:
        self.methods.append(method)
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, method: str, times: int = 1) -> None:
        with anyio.fail_after(20):
            while self.methods.count(method) < times:
                await self._changed.wait()

    async def more_than(self, number: int) -> None:
        """Wait until more notifications than these have come."""
        with anyio.fail_after(30):
            while len(self.methods) <= number:
                await self._changed.wait()


async def all_tools(client: Client) -> dict[str, types.Tool]:
    """Every tool of every page, asked afresh."""
    tools: dict[str, types.Tool] = {}
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            return tools
