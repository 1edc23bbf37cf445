"""A server in a process of its own (`ideabridge serve --http`), and clients that speak
to it in bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

OLD = "2025-11-25"
NEW = "2026-07-28"
CLIENT = {"name": "benchmark", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
STARTS = 120.0
"""Seconds within which a server prints its address."""


class Server:
    """One server, which is killed when the block ends.

    Args:
        config: its configuration.
        noise: the file that gets what it prints.
        more: further options of `ideabridge serve`.

    Attributes:
        url: where it serves.
        pid: its process id.
    """

    def __init__(self, config: Path, noise: Path, *more: str) -> None:
        command = [
            sys.executable,
            "-m",
            "ideabridge.server",
            "serve",
            "--http",
            "127.0.0.1:0",
            "--config",
            str(config),
        ]
        command += more
        with noise.open("ab") as printed:
            begins = printed.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=printed)

        self.pid = self._process.pid
        self.url = ""
        end = time.monotonic() + STARTS
        while not self.url:
            for line in noise.read_text()[begins:].splitlines(keepends=True):
                # Other lines contain the address as well, and those of a server that was started
                # earlier can come late.
                if "serving on http://" in line and line.endswith("\n"):
                    self.url = line.split()[-1]

            if time.monotonic() > end or self._process.poll() is not None:
                raise SystemExit(f"the server does not start: {noise.read_text()[begins:]}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def ended(self) -> int | None:
        """Its exit code; None where it runs."""
        return self._process.poll()

    def end(self) -> int:
        """End it with SIGTERM, and return its exit code."""
        self._process.terminate()
        return self._process.wait(10)

    def memory(self) -> int:
        """Bytes of memory that it holds."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def work(self) -> float:
        """Seconds of CPU time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def files(self) -> int:
        """How many files, pipes and sockets it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


class CallError(Exception):
    """The answer to a call is an error. Its text says which."""


class Client:
    """One client with one connection.

    Args:
        url: of the server.
        era: the version of the protocol that it speaks.
    """

    def __init__(self, url: str, era: str = NEW) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = str(parts.hostname), int(parts.port or 80), parts.path
        self.era = era
        self._session = ""
        self._number = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool, and return its result.

        Raises:
            CallError: the result is an error.
        """
        result = await self.ask("tools/call", {"name": name, "arguments": arguments})
        if result.get("isError"):
            raise CallError(
                str(result["content"][0].get("text") if result.get("content") else result)
            )
        return result

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return its result.

        Raises:
            CallError: the server refused it.
            OSError, EOFError: the connection ended.
        """
        if self.era == OLD and self._streams is None:
            await self._connect()
            greeting = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": CLIENT}
            await self._exchange("initialize", greeting)
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"}, "")
            await self._answer()
        elif self._streams is None:
            await self._connect()
        return await self._exchange(method, params)

    async def _connect(self) -> None:
        self._streams = await asyncio.open_connection(self._host, self._port)

    def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
            self._session = ""

    async def _exchange(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        if self.era == NEW:
            params = {**params, "_meta": META}

        if self.era == NEW:
            extra = f"mcp-method: {method}\r\nmcp-name: {params.get('name')}\r\n"
        else:
            extra = ""

        try:
            await self._send(
                {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}, extra
            )
            answer = await self._answer()
        except BaseException:
            self.close()
            raise

        # A balancer, or a server that cannot read a request, answers with an error that belongs to
        # no request.
        found = next(
            (
                one
                for one in answer
                if one.get("id") in (self._number, None) and "method" not in one
            ),
            None,
        )
        if found is None or "error" in found:
            raise CallError(str(found and found["error"]))
        return found["result"]

    async def _send(self, message: dict[str, Any], extra: str) -> None:
        assert self._streams is not None
        body = json.dumps(message).encode()
        session = f"mcp-session-id: {self._session}\r\n" if self._session else ""
        head = (
            f"POST {self._path} HTTP/1.1\r\nhost: "
            f"{self._host}:{self._port}\r\ncontent-type: application/json\r\n"
            f"accept: application/json, text/event-stream\r\nmcp-protocol-version: {self.era}\r\n"
            f"content-length: {len(body)}\r\n{session}{extra}\r\n"
        )
        self._streams[1].write(head.encode() + body)
        await self._streams[1].drain()

    async def _answer(self) -> list[dict[str, Any]]:
        assert self._streams is not None
        reading = self._streams[0]
        head = (await reading.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        self._session = headers.get("mcp-session-id", self._session)
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await reading.readuntil(b"\r\n"), 16):
                body += (await reading.readexactly(size + 2))[:-2]
            await reading.readexactly(2)
        else:
            body = await reading.readexactly(int(headers.get("content-length", 0)))

        if "text/event-stream" in headers.get("content-type", ""):
            return [
                json.loads(line[5:])
                for line in body.splitlines()
                if line.startswith(b"data:") and line[5:].strip()
            ]

        if not body:
            return []
        try:
            return [json.loads(body)]
        except ValueError:
            raise CallError(f"{head[0]}: {body[:200]!r}") from None
