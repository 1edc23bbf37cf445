"""The odd server in the process of the test, under a clock that jumps: what waits for
seconds takes none.

The whole transport over stdio runs, except the process: `Child` stands in for it.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar

import anyio
import anyio.to_thread
import pytest

from ideabridge.bridge.modules import stdio
from ideabridge.bridge.modules.settings import Launch
from tests.modules.servers.odd import Edit, Server, encoded

T = TypeVar("T")

STUCK_SECONDS = 5.0
"""Real seconds without any event and any deadline, after which a test waits for what never
happens."""

LEAST = 1e-6


class Stuck(BaseException):
    """Everything waits, and nothing can wake it up."""


class JumpingSelector(selectors.DefaultSelector):
    """Does not wait until a deadline, but sets the clock to it."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            ready = super().select(STUCK_SECONDS)
            if not ready:
                raise Stuck
            return ready

        self.now += timeout + LEAST
        return []


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next deadline when there is nothing to do."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class Output:
    """What the child writes, as a stream."""

    def __init__(self) -> None:
        self._written = bytearray()
        self._ended = False
        self._changed = anyio.Event()

    def write(self, data: bytes) -> None:
        self._written += data
        self._changed.set()

    def close(self) -> None:
        self._ended = True
        self._changed.set()

    async def receive(self) -> bytes:
        while not self._written:
            if self._ended:
                raise anyio.EndOfStream
            self._changed = anyio.Event()
            await self._changed.wait()

        data = bytes(self._written)
        self._written.clear()
        return data


class Child:
    """The odd server in place of a child process; its arguments are those of the script."""

    servers: ClassVar[list[Server]] = []
    """The servers that were started, each by one connection."""

    edits: ClassVar[dict[str, list[Edit]]] = {}
    """The edits of each configured server, by a key in place of the argument, which may
    not be as long."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.pid = 0
        self.stdin = self
        self.stdout = Output()
        self.stderr = Output()
        self.code: int | None = None
        self._ended = anyio.Event()
        self._held = b""

    @classmethod
    async def start(cls, _module: str, launch: Launch) -> Child:
        edits, era = launch.args[-2:]
        server = Server(cls.edits[edits], era)
        cls.servers.append(server)
        return cls(server)

    async def send(self, data: bytes) -> None:
        """Take what the client writes."""
        if self.code is not None:
            raise anyio.BrokenResourceError
        for line in data.splitlines():
            for told in self.server.handle(json.loads(line)):
                self.stdout.write(encoded(told) + b"\n")
            if self.server.exit is not None:
                self._end(self.server.exit)
                return

    async def aclose(self) -> None:
        self._end(0)

    def _end(self, code: int) -> None:
        if self.code is None:
            self.code = code
            self.stdout.close()
            self.stderr.close()
            self._ended.set()

    @property
    def has_exited(self) -> bool:
        return self.code is not None

    @property
    def how_it_ended(self) -> str:
        if self.code is None:
            return "closed its output"
        return f"ended with exit code {self.code}"

    async def wait(self) -> None:
        await self._ended.wait()

    async def exits_within(self, seconds: float, *, poll: float = 0.0) -> bool:
        with anyio.move_on_after(seconds):
            await self._ended.wait()
        return self.has_exited

    async def end(self) -> None:
        self._end(0)


async def _at_once(function: Callable[..., T], *arguments: object, **_keys: object) -> T:
    return function(*arguments)


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every module over stdio be the odd server of this process."""
    monkeypatch.setattr(stdio, "ChildProcess", Child)
    # Run the work here, because the clock would jump while a thread is working.
    monkeypatch.setattr(anyio.to_thread, "run_sync", _at_once)
    Child.servers = []
    Child.edits = {}


def run(function: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function under the jumping clock.

    Raises:
        Stuck: it waits for what never happens.
    """
    return anyio.run(function, backend_options={"loop_factory": JumpingLoop})


def entry(edits: list[Edit], era: str = "legacy", **keys: Any) -> Mapping[str, Any]:
    """Configuration of the odd server in this process."""
    key = f"edits {len(Child.edits)}"
    Child.edits[key] = edits
    return {"command": "odd", "args": [key, era], **keys}
