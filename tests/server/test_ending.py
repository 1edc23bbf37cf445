"""The end: within two seconds, children included, with nothing but the protocol on stdout."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from .serving import LAUNCH, Gate, command, configured

STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(__import__("os").getpid()))
while True: time.sleep(60)
"""
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        if not Path("/proc").exists():
            return True
        # The process may end between the two looks.
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def seconds_without_cpu(pid: int) -> float:
    """How long a process could have run so far while others had the CPU, also if it has ended and
    nobody has waited for it.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


class Ending:
    """Measures how long a process takes to end from now on, as on a machine that does
    nothing else.
    """

    def __init__(self, process: subprocess.Popen[Any]) -> None:
        self._process = process
        self._without_cpu = seconds_without_cpu(process.pid)
        self._began = time.monotonic()

    def seconds(self) -> float:
        """Wait for the end."""
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        seconds = time.monotonic() - self._began
        without_cpu = seconds_without_cpu(self._process.pid) - self._without_cpu
        self._process.wait()
        return seconds - without_cpu


@pytest.mark.parametrize("how", ["eof", "sigterm", "sigint"])
def test_everything_ends_with_the_host(tmp_path: Path, how: str) -> None:
    told = tmp_path / "pid"
    os.mkfifo(told)
    child: dict[str, Any] = {"command": sys.executable, "args": ["-c", STUBBORN, str(told)]}
    configuration = configured(tmp_path, mcpServers={"stubborn": child})
    with subprocess.Popen(
        [sys.executable, str(LAUNCH), str(configuration)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(HELLO).encode() + b"\n")
        process.stdin.flush()
        # The server answers although the module does not.
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "ideabridge"
        pid = int(told.read_text())
        assert is_there(pid)
        ending = Ending(process)
        if how == "eof":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGINT)

        assert ending.seconds() < 2.2
        assert not is_there(pid)
        assert process.stdout.read() == b""
        assert process.returncode == 0
        assert b"Traceback" not in process.stderr.read()


TIMED_OUT = "McpError: MCP error -32001: Request timed out"
ABORTED = "AbortError: The operation was aborted."


@pytest.mark.parametrize(
    ("reasons", "status"),
    [((TIMED_OUT, ABORTED), "done"), ((ABORTED, TIMED_OUT), "done"), ((ABORTED,), "cancelled")],
)
def test_a_run_goes_on_where_any_reason_says_that_its_call_took_too_long(
    tmp_path: Path, gate: Gate, reasons: tuple[str, ...], status: str
) -> None:
    with subprocess.Popen(
        command(configured(tmp_path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(*messages: dict[str, Any]) -> None:
            assert process.stdin is not None
            process.stdin.write(
                "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
            )
            process.stdin.flush()

        def received(key: str, value: object) -> dict[str, Any]:
            assert process.stdout is not None
            return next(
                message
                for line in process.stdout
                if (message := json.loads(line)).get(key) == value
            )

        def tool(number: int, name: str, **arguments: Any) -> dict[str, Any]:
            params = {"name": name, "arguments": arguments, "_meta": {"progressToken": number}}
            return {"id": number, "method": "tools/call", "params": params}

        send(HELLO, {"method": "notifications/initialized"})
        send(
            tool(
                2, "run_plan", calls=[{"_tool": "hold", "gate": str(gate.path), "_outputPath": "x"}]
            )
        )
        received("method", "notifications/progress")
        cancelled = [{"requestId": 2, "reason": reason} for reason in reasons]
        send(*({"method": "notifications/cancelled", "params": params} for params in cancelled))
        send(tool(3, "check_run"))
        run = received("id", 3)["result"]["structuredContent"]["runs"][0]["run"]
        if status == "done":
            gate.open()
        send(tool(4, "check_run", run=run, wait_s=10))
        assert received("id", 4)["result"]["structuredContent"]["status"] == status
        process.stdin.close()


LISTEN: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {
        "notifications": {"toolsListChanged": True},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


def test_http_ends_at_a_signal_with_a_client_still_listening(tmp_path: Path) -> None:
    words = [sys.executable, str(LAUNCH), str(configured(tmp_path)), "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "subscriptions/listen",
        }
        request = urllib.request.Request(url, json.dumps(LISTEN).encode(), headers)
        with urllib.request.urlopen(request, timeout=10) as listening:
            assert listening.readline() == b"event: message\r\n"
            ending = Ending(process)
            process.send_signal(signal.SIGTERM)
            # The stream ends with an answer instead of being cut off.
            assert b'"result"' in listening.read()
            assert ending.seconds() < 2.2
        assert process.returncode == 0
        assert "Traceback" not in process.stderr.read()
