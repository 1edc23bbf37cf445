"""SIGTERM and SIGINT end a server within five seconds, whatever code it is in, and its
children with it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.server.serving import command, configured
from tests.server.test_ending import HELLO

TOOLS = """
import ctypes
import time
from ideabridge.tools.decorator import tool

def told(path: str) -> None:
    with open(path, "w") as file:
        file.write("stuck")

@tool(read_only=True)
async def rows(n: int) -> list[dict[str, int | str]]:
    return [{"id": one, "name": f"row {one}"} for one in range(n)]

@tool(read_only=True)
async def python(path: str) -> None:
    told(path)
    while True:
        pass

@tool(read_only=True)
async def sleep(path: str) -> None:
    told(path)
    time.sleep(60)

@tool(read_only=True)
async def machine_code(path: str) -> None:
    told(path)
    # A deadlock in C: it keeps the interpreter to itself as a long computation does, and leaves the CPU to others.
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)
"""
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write("up")
while True: time.sleep(60)
"""
COSTLY = " && ".join(["contains(name, 'row')"] * 80)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descendants are found in /proc")


def descendants(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])

    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more

    return found - {pid}


def until_ended(pids: Iterable[int], deadline: float) -> None:
    """Wait until processes have ended, whoever is their parent."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        left = max(0, deadline - time.monotonic())
        assert select.select([descriptor], [], [], left)[0], f"process {pid} is there"
        os.close(descriptor)


def halt_at_work(server: int) -> None:
    """Halt the worker of a server in its job, where it ends no sooner than one that computes
    and uses no CPU.
    """
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for pid in descendants(server):
            computed = sum(
                map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
            )
            # This is much more than the start of a worker takes.
            if is_worker(pid) and computed > 0.3 * os.sysconf("SC_CLK_TCK"):
                os.kill(pid, signal.SIGSTOP)
                return

        # No event tells that a worker is computing.
        time.sleep(0.01)

    raise AssertionError("no worker is at its job after 20 s")


def is_worker(pid: int) -> bool:
    return b"worker_process.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


@contextmanager
def server(folder: Path, *more: str) -> Generator[subprocess.Popen[str]]:
    tools = folder / "tools.py"
    up = folder / "up"
    tools.write_text(TOOLS)
    os.mkfifo(up)
    module: dict[str, Any] = {"command": sys.executable, "args": ["-c", STUBBORN, str(up)]}
    configuration = configured(folder, tools=[str(tools)], mcpServers={"stubborn": module})
    with subprocess.Popen(
        command(configuration, *more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        up.read_text()
        try:
            yield process
        finally:
            process.kill()


def stuck(folder: Path, how: str, send: Callable[[int, str, dict[str, Any]], None]) -> None:
    """Have a worker at work, and then the event loop stuck; returns when it is."""
    told = folder / "stuck"
    os.mkfifo(told)
    calls: list[dict[str, Any]] = [
        {"_tool": "rows", "n": 10_000, "_outputPath": "rows"},
        {"_tool": "filter", "items": "†state.rows", "where": COSTLY, "_id": "slow"},
        # This count also runs in a worker. In the meantime, the event loop gives the filter to the
        # other worker.
        {"_tool": "count", "items": "†state.rows", "by": "type(name)", "_outputPath": "n"},
        {"_tool": how, "path": str(told), "_imports": ["†state.n"]},
    ]
    send(2, "run_plan", {"calls": calls, "wait_s": 0})
    assert told.read_text() == "stuck"


def check_end(process: subprocess.Popen[str], number: int) -> None:
    """Everything is gone five seconds after the signal; nothing is polled that the issue
    does not promise.
    """
    pid = preloaded.number(process)
    halt_at_work(pid)
    family = descendants(pid)
    # These are the module, the guard, the worker that is filtering, and the worker that has
    # counted.
    assert len(family) >= 4, family
    deadline = time.monotonic() + 5
    process.send_signal(number)
    process.wait(timeout=30)
    until_ended(family, deadline)


@pytest.mark.parametrize("how", ["python", "sleep", "machine_code"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_over_stdio(tmp_path: Path, how: str, number: int) -> None:
    with server(tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(message: dict[str, Any]) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()

        send(HELLO)
        assert process.stdout.readline()
        send({"method": "notifications/initialized"})
        stuck(
            tmp_path,
            how,
            lambda i, name, arguments: send(
                {"id": i, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
            ),
        )
        check_end(process, number)


@pytest.mark.parametrize("how", ["python", "machine_code"])
def test_over_http(tmp_path: Path, how: str) -> None:
    with server(tmp_path, "0") as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        post = [sys.executable, "-c", POST, url]

        def send(number: int, name: str, arguments: dict[str, Any]) -> None:
            body = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
            params: dict[str, Any] = {"name": name, "arguments": arguments, "_meta": META}
            with subprocess.Popen([*post, name], stdin=subprocess.PIPE) as sending:
                sending.communicate(json.dumps({**body, "params": params}).encode())

        stuck(tmp_path, how, send)
        check_end(process, signal.SIGTERM)


META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
POST = """
import http.client, sys, urllib.parse
url = urllib.parse.urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(url.netloc)
headers = {"content-type": "application/json", "accept": "application/json, text/event-stream",
           "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": sys.argv[2]}
connection.request("POST", url.path, sys.stdin.buffer.read(), headers)
sys.stdout.flush()
"""
