"""A web server in the process of a test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import anyio
import uvicorn


class WebServer(uvicorn.Server):
    """Ends at once. A server of uvicorn asks itself ten times a second whether it should end, and
    then waits for a tenth of a second; hundreds of tests would wait for it.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = anyio.Event()
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        # A signal does not wake the event loop.
        self._loop.call_soon_threadsafe(self._ending.set)

    def end(self) -> None:
        self.should_exit = True
        self.force_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()

        for connection in list(self.server_state.connections):
            connection.shutdown()

        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()

        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def serving(app: Any, listening: socket.socket, **options: Any) -> AsyncGenerator[None]:
    """Serve an application at a socket while the block runs. `options`: of `uvicorn.Config`."""
    server = WebServer(uvicorn.Config(app, log_config=None, log_level="critical", **options))
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: server.serve(sockets=[listening]))
        try:
            yield
        finally:
            server.end()
