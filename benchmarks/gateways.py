"""Direct calls through `ideabridge serve` beside FastMCP's proxy and mcp-proxy, in front of
the same module.

    pip install '.[bench]'                          (FastMCP)
    python benchmarks/gateways.py [--json] [--rounds N] [--mcp-proxy COMMAND]

mcp-proxy needs an older SDK, so it is installed somewhere else, and COMMAND names it. All are
spoken to in bytes, in 2025-11-25, which all of them know. Two arrangements, since mcp-proxy
knows no others:

    stdio: the client over stdio, the module over HTTP
    HTTP: the client over HTTP, the module over stdio

1 client makes one call after the other. 16 clients are 16 sessions over HTTP, and 16 calls at a
time over stdio, where a gateway has one client. The CPU time is that of the gateway's process alone
(Linux). Rounds of all take turns, and a figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Add the folder above, because this file may also be run as a script.
sys.path.insert(1, str(Path(__file__).parents[1]))
from benchmarks import serve
from benchmarks.serve import ADD, OLD, Pipe, Post, serving

CALLS = 160
MODULE = [sys.executable, serve.__file__, "--peer"]

PROXY = """
import json, sys
from fastmcp.server import create_proxy

server = create_proxy({"mcpServers": {"module": json.loads(sys.argv[1])}})
if sys.argv[2:]:
    server.run("http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, log_level="ERROR")
else:
    server.run("stdio", show_banner=False, log_level="ERROR")
"""


@dataclass
class Gateway:
    """One gateway in one arrangement, and what its rounds measured."""

    pid: int
    talks: list[Pipe | Post]
    rows: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def note(self, what: str, value: float) -> None:
        """Add a figure of a round."""
        self.rows.setdefault(what, []).append(value)

    def round(self, clients: int) -> None:
        """Make `CALLS` calls."""
        for one in self.talks:
            if isinstance(one, Post):
                # Close the connection, because servers close connections that are idle while the
                # other servers have their turn.
                one.connection.close()

        cpu = cpu_seconds(self.pid)
        started = time.perf_counter()
        talk = self.talks[0]
        if clients == 1:
            taken = [timed(talk) for _ in range(CALLS)]
        elif isinstance(talk, Pipe):
            taken = at_a_time(talk, clients)
        else:

            def in_turn(one: Pipe | Post) -> list[float]:
                return [timed(one) for _ in range(CALLS // clients)]

            with ThreadPoolExecutor(clients) as pool:
                taken = [seconds for part in pool.map(in_turn, self.talks) for seconds in part]

        whole = time.perf_counter() - started
        taken.sort()
        self.note("median, ms", statistics.median(taken) * 1e3)
        self.note("p95, ms", taken[int(len(taken) * 0.95)] * 1e3)
        self.note("ms per call", whole / len(taken) * 1e3)
        self.note("CPU ms per call", (cpu_seconds(self.pid) - cpu) / len(taken) * 1e3)


def timed(talk: Pipe | Post) -> float:
    started = time.perf_counter()
    talk.call("add", ADD)
    return time.perf_counter() - started


def at_a_time(talk: Pipe, most: int) -> list[float]:
    """`CALLS` calls, of which `most` are in progress."""
    began: dict[int, float] = {}
    taken: list[float] = []

    def begin() -> None:
        line = talk.message("tools/call", {"name": "add", "arguments": ADD}) + b"\n"
        began[talk.number] = time.perf_counter()
        talk.input.write(line)
        talk.input.flush()

    for _ in range(most):
        begin()

    left = CALLS - most
    while began:
        told = json.loads(talk.output.readline())
        since = began.pop(told.get("id"), None)
        if since is None:
            continue
        taken.append(time.perf_counter() - since)
        if serve.result_of(told).get("isError"):
            raise SystemExit(f"a call failed: {told}")
        if left:
            left -= 1
            begin()

    return taken


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, without those that it started; 0 where there is no /proc."""
    try:
        values = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


# -- gateways --------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def commands(
    folder: Path, url: str | None, port: int, mcp_proxy: str | None
) -> dict[str, list[str]]:
    """How each gateway is started: over stdio before the module at `url`, or over HTTP at `port`
    before one of its own.
    """
    if url:
        entry: dict[str, Any] = {"url": url}
    else:
        entry = {"command": MODULE[0], "args": MODULE[1:]}

    path = folder / "ideabridge.json"
    path.write_text(
        json.dumps(
            {"store": "ideas.sqlite", "mcpServers": {"module": entry}, "expose": ["modules"]}
        )
    )
    ours = [sys.executable, "-m", "ideabridge.server", "serve", "--config", str(path)]
    found = {"ideabridge": ours if url else [*ours, "--http", f"127.0.0.1:{port}"]}
    if importlib.util.find_spec("fastmcp") is not None:
        script = folder / "proxy.py"
        script.write_text(PROXY)
        found["FastMCP"] = [
            sys.executable,
            str(script),
            json.dumps(entry),
            *([] if url else [str(port)]),
        ]

    if mcp_proxy is not None:
        serving_ = ["--port", str(port), "--host", "127.0.0.1", "--", *MODULE]
        found["mcp-proxy"] = [
            mcp_proxy,
            *(["--transport", "streamablehttp", url] if url else serving_),
        ]

    return found


def over_stdio(command: list[str], stack: ExitStack) -> Gateway:
    talk = Pipe(command, OLD, stack)
    stack.callback(talk.input.close)
    return Gateway(talk.pid, [talk])


def over_http(command: list[str], port: int, clients: int, stack: ExitStack) -> Gateway:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"{command[:2]} does not listen") from None
            time.sleep(0.05)

    talks: list[Pipe | Post] = [Post(f"http://127.0.0.1:{port}/mcp", OLD) for _ in range(clients)]
    for talk in talks:
        assert isinstance(talk, Post)
        stack.callback(talk.connection.close)

    return Gateway(process.pid, talks)


def measured(
    transport: str, clients: int, rounds: int, mcp_proxy: str | None
) -> dict[str, Gateway]:
    """All gateways in one arrangement."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = serving([*MODULE, "--http"], stack) if transport == "stdio" else None
        gateways: dict[str, Gateway] = {}
        for name in commands(folder, url, 0, mcp_proxy):
            port = free_port()
            command = commands(folder, url, port, mcp_proxy)[name]
            if url:
                gateways[name] = over_stdio(command, stack)
            else:
                gateways[name] = over_http(command, port, clients, stack)
            gateways[name].talks[0].ask("tools/list", {})
            gateways[name].round(clients)
            gateways[name].rows.clear()
        names = list(gateways)
        for _ in range(rounds):
            for name in names:
                gateways[name].round(clients)
            names = [*names[1:], names[0]]
        return gateways


def rows_of(transport: str, clients: int, gateways: dict[str, Gateway]) -> list[dict[str, Any]]:
    """A row for each figure and peer. Below 1 we are ahead."""
    rows: list[dict[str, Any]] = []
    ours = gateways["ideabridge"].rows
    for name in gateways.keys() - {"ideabridge"}:
        for what, values in ours.items():
            others = gateways[name].rows[what]
            mine = statistics.median(values)
            theirs = statistics.median(others)
            pairs = zip(values, others, strict=True)
            if theirs:
                ratio = statistics.median(one / two for one, two in pairs if two)
            else:
                ratio = None

            row = {
                "what": f"{transport}, {clients} at a time, {what}; peer: {name}",
                "ours": round(mine, 3),
            }
            met = None if ratio is None else ratio <= 1
            rows.append(
                {
                    **row,
                    "peer": round(theirs, 3),
                    "floor": None,
                    "ratio": ratio,
                    "target": 1.0,
                    "met": met,
                }
            )

    return sorted(rows, key=lambda row: row["what"])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--mcp-proxy", default=shutil.which("mcp-proxy"), help="the command of mcp-proxy"
    )
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    has_peer = arguments.mcp_proxy is not None or importlib.util.find_spec("fastmcp") is not None
    for transport in ("stdio", "HTTP") if has_peer else ():
        for clients in (1, 16):
            rows += rows_of(
                transport,
                clients,
                measured(transport, clients, arguments.rounds, arguments.mcp_proxy),
            )

    if rows:
        skipped = ""
    else:
        skipped = "no peer is installed: pip install '.[bench]', and mcp-proxy elsewhere"

    if arguments.json:
        print(
            json.dumps(
                {"benchmark": "gateways", "rows": rows, **({"skipped": skipped} if skipped else {})}
            )
        )
    else:
        print(skipped, end="\n" if skipped else "")
        for row in rows:
            ratio = "" if row["ratio"] is None else f"{row['ratio']:6.2f}x"
            print(f"{row['what']:62} ours {row['ours']:8.3f}  peer {row['peer']:8.3f} {ratio}")

    return 0 if all(row["met"] is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
