"""Spans of OpenTelemetry, as a collector gets them over OTLP, and that they cost nothing where
nobody wants them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.context.mind import Usage
from ideabridge.bridge.context.request import Request
from ideabridge.server import serve
from ideabridge.server.operations.telemetry import Telemetry
from ideabridge.tools.decorator import tool
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests import postgres, preloaded
from tests.operations.test_workers import front, working
from tests.server.serving import ERAS, call, configured, listening, served
from tests.waiting import until

pytestmark = pytest.mark.anyio

SECRET = "a-word-that-only-users-write"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

MODULE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": asked.get("id")}
    if asked["method"] == "initialize":
        answer["result"] = {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}
        }
    elif asked["method"] == "tools/list":
        answer["result"] = {
            "tools": [{"name": "work", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
        }
    elif asked["method"] == "tools/call":
        told = asked["params"].get("_meta", {}).get("traceparent", "none")
        answer["result"] = {"content": [{"type": "text", "text": told}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    if answer["id"] is not None:
        print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Got:
    """A span that the collector got; ids in hex."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    error: bool
    seconds: float
    service: str


class Collector:
    """What a collector gets: spans, and all bytes of them."""

    def __init__(self) -> None:
        self.spans: list[Got] = []
        self.raw = b""

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(
                one.value.string_value
                for one in resource.resource.attributes
                if one.key == "service.name"
            )
            for scope in resource.scope_spans:
                for span in scope.spans:
                    assert not span.events
                    assert not span.status.message
                    values = {
                        one.key: getattr(one.value, one.value.WhichOneof("value") or "")
                        for one in span.attributes
                    }
                    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
                    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                    self.spans.append(
                        Got(span.name, *ids, values, span.status.code == 2, seconds, service)
                    )

    async def get(self, *names: str) -> list[Got]:
        """One span of each name, when all are there."""
        await until(lambda: {*names} <= {span.name for span in self.spans})
        return [next(span for span in self.spans if span.name == name) for name in names]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Generator[Collector]:
    """A collector whose address all processes of the test find in their environment."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            assert self.headers.get("content-encoding") is None
            found.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def module(folder: Path) -> dict[str, Any]:
    script = folder / "module.py"
    script.write_text(MODULE)
    return {"command": sys.executable, "args": ["-I", str(script)]}


@contextmanager
def traced(*, sampled: bool = True) -> Generator[SpanContext]:
    """A scope whose requests have a trace."""
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    own = SpanContext(0xABCDEF << 64 | 7, 0x123456, is_remote=False, trace_flags=flags)
    token = contexts.attach(trace.set_span_in_context(NonRecordingSpan(own)))
    try:
        yield own
    finally:
        contexts.detach(token)


@pytest.mark.parametrize("engine", ["file", "postgres"])
async def test_a_run_of_servers_and_workers_is_one_trace_and_its_module_gets_it(
    tmp_path: Path, collector: Collector, engine: str
) -> None:
    store = "ideas.sqlite" if engine == "file" else postgres.server().address()
    path = configured(tmp_path, store=store, mcpServers={"desk": module(tmp_path)}, tools=[])
    calls = [{"_tool": "work", "word": SECRET, "_outputPath": "told"}]
    with working(path):
        async with front(path) as client:
            with traced() as caller:
                answer = await call(
                    client, "run_plan", calls=calls, output="†state.told", wait_s=20
                )
            alone = await call(client, "run_plan", calls=calls, output="†state.told", wait_s=20)
            await until(lambda: len(collector.spans) == 4)

    above = f"{caller.span_id:016x}"
    [run] = [one for one in collector.spans if one.parent == above]
    assert run.attributes["ideabridge.run.id"] == answer["run"]
    [made] = [one for one in collector.spans if one.parent == run.id]
    assert (run.name, run.trace) == ("invoke_workflow plan", f"{caller.trace_id:032x}")
    assert run.attributes["ideabridge.run.status"] == "done"
    assert run.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert run.service == "ideabridge"
    assert (made.name, made.trace) == ("execute_tool work", run.trace)
    assert made.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "work",
        "gen_ai.tool.type": "extension",
        "ideabridge.module": "desk",
        "ideabridge.run.id": answer["run"],
    }
    assert answer["output"] == f"00-{made.trace}-{made.id}-01"
    assert run.seconds >= made.seconds >= 0
    # Without a trace of the caller, the run is a trace of its own.
    rest = [one for one in collector.spans if one.attributes["ideabridge.run.id"] == alone["run"]]
    assert {one.trace for one in rest} == {alone["output"].split("-")[1]} != {run.trace}
    assert [one.name for one in rest if not one.parent] == ["invoke_workflow plan"]
    assert SECRET.encode() not in collector.raw


@pytest.mark.parametrize("mode", ERAS)
async def test_a_direct_call_is_a_span_of_its_callers_trace(
    tmp_path: Path, collector: Collector, mode: str
) -> None:
    path = configured(tmp_path, mcpServers={"desk": module(tmp_path)}, tools=[], expose=["modules"])
    with listening(served(path, "--http", "0")) as url:
        async with Client(url, mode=mode, read_timeout_seconds=30) as client:
            with traced() as caller:
                result = await client.call_tool("work", {"word": SECRET})

            [made] = await collector.get("execute_tool work")
            with traced(sampled=False):
                unseen = await client.call_tool("work", {})

            await client.call_tool("work", {})
            await until(lambda: len(collector.spans) == 2)

    assert (made.trace, made.parent) == (f"{caller.trace_id:032x}", f"{caller.span_id:016x}")
    assert f"{result.content[0]}".count(f"00-{made.trace}-{made.id}-01") == 1
    assert f"{caller.trace_id:032x}" in str(unseen.content)
    assert SECRET.encode() not in collector.raw
    assert "-00'" in str(unseen.content)


@tool(read_only=True)
def fails(word: str) -> str:
    """Fails with a message that holds what users wrote."""
    raise ActivityError(f"no {word}")


class OneCall:
    """A mind that makes a call that fails, and then ends."""

    name = "tiny"
    asked = 0

    async def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        self.asked += 1
        if self.asked == 1:
            yield json.dumps({"calls": [{"_tool": "fails", "word": SECRET}], "output": None})
        else:
            yield json.dumps({"calls": [], "output": SECRET})
        yield Usage(3, 5, model="tiny-1")


async def test_an_agents_requests_are_chats_and_nothing_of_errors_is_sent(
    collector: Collector,
) -> None:
    toolbox = Toolbox()
    toolbox.add(fails)
    async with Bridge(toolbox=toolbox, mind=OneCall()) as bridge:
        with Telemetry(bridge, "1"):
            run = await bridge.solve(SECRET)
            await run.wait()
            await until(lambda: len(collector.spans) >= 4)

    [agent] = [one for one in collector.spans if one.name == "invoke_agent solve"]
    chats = [one for one in collector.spans if one.name == "chat tiny-1"]
    [failed] = [one for one in collector.spans if one.name == "execute_tool fails"]
    assert agent.attributes["gen_ai.agent.name"] == "solve"
    assert len(chats) == 2
    for chat in chats:
        assert (chat.trace, chat.parent) == (agent.trace, agent.id)
        assert chat.attributes["gen_ai.provider.name"] == "tiny"
        assert chat.attributes["gen_ai.usage.input_tokens"] == 3
        assert chat.attributes["gen_ai.usage.output_tokens"] == 5

    assert failed.error
    assert failed.attributes["error.type"] == "ActivityError"
    assert SECRET.encode() not in collector.raw


@pytest.mark.parametrize("how", ["refuses", "hangs"])
async def test_a_dead_collector_slows_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    path = configured(tmp_path, mcpServers={"desk": module(tmp_path)}, tools=[], expose=["modules"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{listener.getsockname()[1]}")
        if how == "refuses":
            listener.close()
        # `listening` gives the server five seconds to end.
        with listening(served(path, "--http", "0")) as url:
            async with Client(url, read_timeout_seconds=30) as client:
                for _ in range(100):
                    assert not (await client.call_tool("work", {})).is_error


def test_nothing_is_imported_or_sent_where_nobody_wants_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, ideabridge.server.serve; print([one for one in sys.modules if one "
        "== 'opentelemetry.sdk'])"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        preloaded.python(script), env=clean, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

    wanted: Callable[..., Any] = serve._telemetry  # pyright: ignore[reportPrivateUsage]
    for name, value in {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"}.items():
        with monkeypatch.context() as patched:
            patched.setenv(ENDPOINT, "http://127.0.0.1:1")
            patched.setenv(name, value)
            assert not isinstance(wanted(None), Telemetry)

    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ideabridge.server.operations.telemetry", None)
    assert not isinstance(wanted(None), Telemetry)
    assert (
        "OTEL_EXPORTER_OTLP_ENDPOINT is set, but spans are not available" in capsys.readouterr().err
    )
    # The module is installed, but too old.
    monkeypatch.setitem(
        sys.modules, "ideabridge.server.operations.telemetry", types.ModuleType("telemetry")
    )
    assert not isinstance(wanted(None), Telemetry)
    assert (
        "spans are not available: cannot import name 'Telemetry' from 'telemetry'"
        in capsys.readouterr().err
    )
