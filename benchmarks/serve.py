"""Calls through `ideabridge serve` beside a bare low-level server of the MCP SDK
with the same tool.

    python benchmarks/serve.py [--json] [--rounds N]

Both are spoken to in bytes, over stdio and HTTP, in both eras of the protocol: no client's own work
dilutes the ratio. Rounds of ours and the peer's follow each other, and a figure is the median of
its rounds: noise hits both.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

from ideabridge.tools.decorator import tool

CALLS = 150
OLD = "2025-11-25"
NEW = "2026-07-28"
CLIENT = {"name": "benchmark", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ACCEPT = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
async def text(size: int) -> str:
    """A text."""
    return "text " * (size // 5)


# -- the peer --------------------------------------------------------------------------------------


def peer(port: int | None) -> None:
    """The bare server: one tool, no checks, the same result."""
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    listed = types.Tool(name="add", description="Add two numbers.", input_schema=SCHEMA)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[listed])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        total = arguments["a"] + arguments["b"]
        text = types.TextContent(type="text", text=str(total))
        return types.CallToolResult(content=[text], structured_content={"result": total})

    def schema_of(_name: str) -> dict[str, Any]:
        return SCHEMA

    server: Server[Any] = Server(
        "peer", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=schema_of
    )

    async def over_stdio() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    async def over_http() -> None:
        import socket

        import uvicorn

        # Set the protocol to TCP, because asyncio would otherwise leave Nagle's algorithm on, and
        # both measurements would only show its delay.
        listening = socket.socket(proto=socket.IPPROTO_TCP)
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        sys.stderr.write(f"serving on http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
        sys.stderr.flush()
        app = server.streamable_http_app()
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_keep_alive=120)
        await uvicorn.Server(config).serve(sockets=[listening])

    anyio.run(over_stdio if port is None else over_http)


# -- talking in bytes ------------------------------------------------------------------------------


class Talk:
    """One connection to one server: `ask` sends a request and gives its result."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.number = 0

    def message(self, method: str, params: dict[str, Any]) -> bytes:
        """The next request, in bytes."""
        self.number += 1
        if self.era == NEW:
            params = {**params, "_meta": META}
        return json.dumps(
            {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        ).encode()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request; gives its result."""
        raise NotImplementedError

    def greet(self) -> None:
        """Shake hands, where the era asks for it."""
        if self.era == OLD:
            hello = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": CLIENT}
            self.ask("initialize", hello)

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool that must work."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        if result.get("isError"):
            raise SystemExit(f"{name}: {result['content']}")
        return result


class Pipe(Talk):
    """Over stdio."""

    def __init__(self, command: list[str], era: str, stack: ExitStack) -> None:
        super().__init__(era)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stack.enter_context(process)
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self.input, self.output = process.stdin, process.stdout
        self.greet()
        if era == OLD:
            self.input.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            self.input.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a line, and read until its answer."""
        self.input.write(self.message(method, params) + b"\n")
        self.input.flush()
        while True:
            line = self.output.readline()
            if not line:
                raise SystemExit("the server ended")
            told = json.loads(line)
            if told.get("id") == self.number:
                return result_of(told)


class Post(Talk):
    """Over streamable HTTP, on one connection that is kept."""

    def __init__(self, url: str, era: str) -> None:
        super().__init__(era)
        parts = urlsplit(url)
        self.path = parts.path
        self.connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
        self.headers = {**ACCEPT, "mcp-protocol-version": era}
        self.greet()
        if era == OLD:
            self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}').read()

    def send(self, body: bytes, **headers: str) -> http.client.HTTPResponse:
        """Post a message."""
        self.connection.request("POST", self.path, body, {**self.headers, **headers})
        return self.connection.getresponse()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Post a request; its answer comes as JSON or as one event."""
        headers: dict[str, str] = {}
        if self.era == NEW:
            headers = {"mcp-method": method, "mcp-name": str(params.get("name"))}

        answer = self.send(self.message(method, params), **headers)
        session = answer.headers.get("mcp-session-id")
        if session is not None:
            self.headers["mcp-session-id"] = session

        body = answer.read()
        if answer.headers.get_content_type() == "text/event-stream":
            body = next(line[6:] for line in body.split(b"\r\n") if line.startswith(b"data: {"))

        return result_of(json.loads(body))


def result_of(told: dict[str, Any]) -> dict[str, Any]:
    if "error" in told:
        raise SystemExit(f"refused: {told['error']}")
    return told["result"]


def serving(command: list[str], stack: ExitStack) -> str:
    """Start a server over HTTP; gives its URL."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def end() -> None:
        process.terminate()
        process.communicate()

    stack.callback(end)
    assert process.stderr is not None
    line = process.stderr.readline()
    if "http://" not in line:
        raise SystemExit(f"{command}: {line}")
    return line.split()[-1]


# -- measuring -------------------------------------------------------------------------------------


def seconds(work: Callable[[], object], calls: int) -> float:
    """Seconds one of `calls` calls takes."""
    started = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - started) / calls


def interleaved(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds a call of each takes, by round; the order turns with every round."""
    for work in works.values():
        seconds(work, CALLS // 3)

    taken: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for _ in range(rounds):
        for name in names:
            taken[name].append(seconds(works[name], CALLS))
        names = [*names[1:], names[0]]

    return taken


def rate(taken: list[float]) -> float:
    return 1 / statistics.median(taken)


def compared(ours: list[float], others: list[float]) -> float:
    """Our rate to theirs: the median over the rounds."""
    return statistics.median(other / our for our, other in zip(ours, others, strict=True))


def row(
    what: str, ours: float, peer_: float | None, ratio: float | None, target: float | None
) -> dict[str, Any]:
    if target is None or ratio is None:
        met = None
    elif "hops" in what:
        met = ratio <= target
    else:
        met = ratio >= target
    return {
        "what": what,
        "ours": round(ours, 3),
        "peer": None if peer_ is None else round(peer_, 3),
        "floor": None,
        "ratio": None if ratio is None else round(ratio, 3),
        "target": target,
        "met": met,
    }


ADD: dict[str, Any] = {"a": 1, "b": 2}
PLAN: dict[str, Any] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"}],
    "input": ADD,
    "output": {"sum": "†state.sum"},
}


def configured(folder: Path, module: bool, *, sessions: bool = True) -> list[str]:
    """The command line of `ideabridge serve` for a configuration in `folder`; `sessions`:
    calls are recorded.
    """
    store = str(folder / "ideas.sqlite")
    config: dict[str, Any] = {
        "store": store,
        "tools": [__file__],
        "expose": ["tools"],
        "sessions": sessions,
    }
    if module:
        servers = {"module": {"command": sys.executable, "args": [__file__, "--peer"]}}
        config = {"store": store, "mcpServers": servers, "expose": ["modules"]}

    path = folder / "ideabridge.json"
    path.write_text(json.dumps(config))
    return [sys.executable, "-m", "ideabridge.server", "serve", "--config", str(path)]


def local_calls(rounds: int, folder: Path) -> list[dict[str, Any]]:
    """A local tool, over both transports, in both eras; and the same tool by run_plan, and by
    a recorded idea.
    """
    rows: list[dict[str, Any]] = []
    for transport in ("stdio", "HTTP"):
        for era in (OLD, NEW):
            with ExitStack() as stack:
                place = folder / f"{transport}{era}"
                place.mkdir()
                command, other = (
                    configured(place, module=False),
                    [sys.executable, __file__, "--peer"],
                )
                if transport == "stdio":
                    ours: Pipe | Post = Pipe(command, era, stack)
                    theirs: Pipe | Post = Pipe(other, era, stack)
                else:
                    ours = Post(serving([*command, "--http", "127.0.0.1:0"], stack), era)
                    theirs = Post(serving([*other, "--http"], stack), era)

                run = ours.call("run_plan", PLAN)["structuredContent"]["run"]
                ours.call(
                    "publish_idea", {"idea": run, "name": "recorded_add", "answer": "recorded"}
                )
                taken = interleaved(
                    {
                        "ours": lambda talk=ours: talk.call("add", ADD),
                        "peer": lambda talk=theirs: talk.call("add", ADD),
                        "recorded": lambda talk=ours: talk.call("recorded_add", ADD),
                        "plan": lambda talk=ours: talk.call("run_plan", PLAN),
                    },
                    rounds,
                )
                for talk in (ours, theirs):
                    if isinstance(talk, Pipe):
                        talk.input.close()
                    else:
                        talk.connection.close()

            where = f"{transport}, {era}"
            rows += [
                row(
                    f"tools/call of a local tool, {where} (calls/s)",
                    rate(taken["ours"]),
                    rate(taken["peer"]),
                    compared(taken["ours"], taken["peer"]),
                    0.9,
                ),
                row(
                    f"recorded replay beside a local tool, {where} (calls/s)",
                    rate(taken["recorded"]),
                    rate(taken["ours"]),
                    compared(taken["recorded"], taken["ours"]),
                    0.8,
                ),
                row(
                    f"the same by run_plan, {where} (plans/s)",
                    rate(taken["plan"]),
                    rate(taken["peer"]),
                    compared(taken["plan"], taken["peer"]),
                    None,
                ),
            ]

    return rows


def recorded_calls(rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Direct calls of a local tool that are recorded with their results, beside those of which only
    a line is kept.
    """
    rows: list[dict[str, Any]] = []
    for size in (100, 16_000):
        with ExitStack() as stack:
            talks: dict[str, Pipe] = {}
            for name in ("on", "off"):
                place = folder / f"sessions {name} {size}"
                place.mkdir()
                talks[name] = Pipe(
                    configured(place, module=False, sessions=name == "on"), OLD, stack
                )

            taken = interleaved(
                {
                    name: lambda talk=talk, size=size: talk.call("text", {"size": size})
                    for name, talk in talks.items()
                },
                rounds,
            )
            for talk in talks.values():
                talk.input.close()

        on, off = (statistics.median(taken[name]) * 1000 for name in ("on", "off"))
        ratio = compared(taken["on"], taken["off"])
        rows.append(
            row(
                f"a recorded call beside one that is not, {size:,} bytes (ms)", on, off, ratio, None
            )
        )

    return rows


def module_calls(rounds: int, folder: Path) -> list[dict[str, Any]]:
    """A call through the server to a stdio module, beside its two hops."""
    place = folder / "module"
    place.mkdir()
    with ExitStack() as stack:
        ours = Pipe(configured(place, module=True), OLD, stack)
        bare = Pipe([sys.executable, __file__, "--peer"], OLD, stack)
        # This call waits until the module is up.
        ours.call("run_plan", {"calls": [{"_tool": "add", "_module": "module", **ADD}]})
        taken = anyio.run(_hops, ours, bare, rounds)
        ours.input.close()
        bare.input.close()

    through = statistics.median(taken["through"])
    first = statistics.median(taken["first"])
    second = statistics.median(taken["second"])
    pairs = zip(taken["through"], taken["first"], taken["second"], strict=True)
    ratio = statistics.median(whole / (one + two) for whole, one, two in pairs)
    return [
        row(
            "a call to a stdio module beside its two hops (ms)",
            through * 1000,
            (first + second) * 1000,
            ratio,
            1.2,
        )
    ]


async def _hops(ours: Pipe, bare: Pipe, rounds: int) -> dict[str, list[float]]:
    import mcp_types as types
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(
        command=sys.executable, args=[__file__, "--peer"], env=dict(os.environ)
    )
    taken: dict[str, list[float]] = {"through": [], "first": [], "second": []}
    async with Client(parameters, mode="auto") as client:
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name="add", arguments=ADD)
        )

        async def second() -> float:
            started = time.perf_counter()
            for _ in range(CALLS):
                await client.session.send_request(request, types.CallToolResult)
            return (time.perf_counter() - started) / CALLS

        await second()
        for _ in range(rounds):
            taken["through"].append(seconds(lambda: ours.call("add", ADD), CALLS))
            taken["first"].append(seconds(lambda: bare.call("add", ADD), CALLS))
            taken["second"].append(await second())

    return taken


def main() -> int:
    """Measure, print, and tell by the exit code whether every target was met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=12, help="rounds of each measurement")
    parser.add_argument("--peer", action="store_true", help="be the bare server")
    parser.add_argument("--http", action="store_true", help="with --peer: over HTTP")
    options = parser.parse_args()
    if options.peer:
        peer(0 if options.http else None)
        return 0

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = [
            *local_calls(options.rounds, place),
            *recorded_calls(options.rounds, place),
            *module_calls(options.rounds, place),
        ]

    if options.json:
        print(json.dumps({"rows": rows}))
    else:
        for one in rows:
            met = {True: "yes", False: "NO", None: ""}[one["met"]]
            figures = (
                f"{one['ours']:>10} {one['peer']!s:>10} {one['ratio']!s:>7} {one['target']!s:>5}"
            )
            print(f"{one['what']:<72} {figures} {met}")

    return 1 if any(one["met"] is False for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
