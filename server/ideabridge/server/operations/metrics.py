"""Collect a server's metrics for Prometheus, at `/metrics`. They exist only with `serve --http
--metrics`.

Labels never contain text written by a user or a model. Methods are MCP methods. Tools are this
server's own tools and those from its tool files and from the servers behind it; published ideas and
tools without code are counted under `idea` and `latent`. The first `MOST_TOOLS` tools have their
own series, and all later tools share `other`, so the number of series is bounded.

The label `workspace` is the name of a workspace in a user's service. It is empty for the server
itself, which for Prometheus is the same as a series without this label. Whatever several workspaces
share is reported only once: a server in the workspace where it runs, and a store in the workspace
that opened it first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.driving.queue import MOST_QUEUED
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import (
    ApprovalAsked,
    CallDecided,
    Event,
    PlanAsked,
    PlanDecided,
    RunEnded,
    UsageNoted,
)
from ideabridge.bridge.runs.executor import ObservedRun
from ideabridge.bridge.store.direct_calls import DirectCall
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.operations.requests import ServedRequest, known_name
from ideabridge.tools.encoding import JSON, number_or_none
from ideabridge.tools.errors import IdeabridgeError

PATH: Final = "/metrics"

MOST_TOOLS: Final = 500
"""Maximum number of tools with their own series."""

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class CountedTool:
    """A tool that calls are counted as.

    Attributes:
        workspace: the workspace in which the tool is called, or "" for the server itself.
        module: the server, or "" if the tool does not belong to one.
        name: the name of the tool.
    """

    workspace: str
    module: str
    name: str


class Metrics:
    """The metrics of one process. `observe` counts requests. The runs and direct calls of a bridge
    are counted while it is watched.
    """

    def __init__(self, version: str) -> None:
        self._registry = registry = CollectorRegistry()
        # The bridges that are watched, keyed by workspace, in the order in which they were opened.
        self._bridges: dict[str, Bridge] = {}
        self._tools: set[CountedTool] = set()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"ideabridge_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(
                f"ideabridge_{name}", text, labels, registry=registry, buckets=_SECONDS
            )

        Gauge(
            "ideabridge_info",
            "The version, as a label; the value is always 1.",
            ["version"],
            registry=registry,
        ).labels(version).set(1)
        self._requests = counter(
            "requests", "MCP requests.", "workspace", "method", "tool", "status"
        )
        self._request_seconds = histogram(
            "request_seconds", "Seconds from an MCP request to its response.", "workspace", "method"
        )
        self._responses = counter("http_responses", "HTTP responses.", "code")
        self._calls = counter(
            "calls",
            "Calls to tools, direct and within runs.",
            "workspace",
            "module",
            "tool",
            "outcome",
        )
        self._call_seconds = histogram(
            "call_seconds", "Duration of tool calls, in seconds.", "workspace", "module"
        )
        self.ended = counter(
            "runs_ended",
            "Runs that ended in this process, without rooms.",
            "workspace",
            "kind",
            "status",
        )
        self.asked = counter(
            "approvals_asked", "Calls and plans that people were asked about.", "workspace"
        )
        self.decided = counter(
            "approvals_decided", "Decisions about calls and plans.", "workspace", "decision"
        )
        self.tokens = counter(
            "tokens", "Tokens of the models that answered Requests.", "workspace", "direction"
        )
        ProcessCollector(registry=registry)
        registry.register(self)

    @contextmanager
    def watching(
        self, bridge: Bridge, direct_calls: DirectCalls, workspace: str = ""
    ) -> Generator[None]:
        """Include a bridge in these metrics while the context is open.

        Args:
            bridge: the bridge.
            direct_calls: the record of the bridge's direct calls.
            workspace: the name of the bridge's workspace, or "" for the server itself.
        """
        bridge.executor.observers.append(partial(_RunCount, self, bridge, workspace))
        direct_calls.observers.append(partial(self._observe_direct, bridge, workspace))
        # Create the counter with the value 0, because a counter that first appears with the value 1
        # would lose this increase.
        self.asked.labels(workspace)
        self._bridges[workspace] = bridge
        try:
            yield
        finally:
            del self._bridges[workspace]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics whose values are read only when Prometheus asks for them."""
        up = GaugeMetricFamily(
            "ideabridge_module_up",
            "Whether a server is connected.",
            labels=["workspace", "module"],
        )
        at_work = _gauge("runs_at_work", "Runs that this process is driving.")
        for workspace, bridge in self._bridges.items():
            at_work.add_metric([workspace], bridge.runs_at_work(SEES_ALL))
            for status in bridge.modules.statuses():
                # A server that starts only when it is used is not missing, and one that another
                # bridge lends is reported by that bridge.
                is_own = status.name in bridge.modules.own_names
                if is_own and status.state not in ("disabled", "idle"):
                    up.add_metric([workspace, status.name], status.state == "up")

        yield up
        yield at_work
        yield from self._stores()

    def _stores(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics of the stores. A store shared by several bridges appears once."""
        queued = _gauge("runs_queued", "Runs in the store that are waiting for a worker.")
        writable = _gauge(
            "store_writable", "0 while writes are waiting because of an error, otherwise 1."
        )
        size = _gauge("store_bytes", "The size of the store's file.")
        paths = set[str]()
        for workspace, bridge in self._bridges.items():
            store = bridge.store
            if store.path in paths and store.path != ":memory:":
                continue

            paths.add(store.path)
            # If the store cannot be read, leave this number out, and let the next metric be 0.
            with suppress(StoreError):
                queued.add_metric([workspace], store.queue.count(most=MOST_QUEUED))

            writable.add_metric([workspace], bridge.obstacle is None)
            path = Path(store.path)
            if store.is_file and path.exists():
                size.add_metric([workspace], path.stat().st_size)

        yield queued
        yield writable
        yield size

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    # -- values of the metrics ---------------------------------------------------------------------

    def observe(self, served: ServedRequest) -> None:
        """Count a request."""
        if served.http is not None:
            self._responses.labels(str(served.http)).inc()
        if served.is_call:
            tool = "idea" if served.kind == "idea" else served.tool
            if served.kind == "exposed":
                tool = self._bounded(CountedTool(served.workspace, "", tool)).name
            status = served.status or ""
            self._requests.labels(served.workspace, served.method, tool, status).inc()
            self._request_seconds.labels(served.workspace, served.method).observe(served.seconds)

    def _observe_direct(self, bridge: Bridge, workspace: str, call: DirectCall) -> None:
        if call.run is None:
            tool = self._named(bridge, CountedTool(workspace, call.module or "", call.tool))
            self.count(tool, call.outcome, call.seconds)

    def count(self, tool: CountedTool, outcome: str, seconds: float) -> None:
        """Count a call to a tool."""
        self._calls.labels(tool.workspace, tool.module, tool.name, outcome).inc()
        self._call_seconds.labels(tool.workspace, tool.module).observe(seconds)

    def counted_as(self, bridge: Bridge, workspace: str, effect: Execute) -> CountedTool:
        """Return the tool that a call of a run is counted as."""
        tool = effect.tool
        if effect.is_latent:
            return CountedTool(workspace, "", "latent")
        name = tool.remote_name if tool.module else effect.activity
        return self._named(bridge, CountedTool(workspace, tool.module or "", name or tool.name))

    def _named(self, bridge: Bridge, tool: CountedTool) -> CountedTool:
        if tool in self._tools:
            return tool
        module, name = known_name(bridge, tool.module or None, tool.name)
        known = CountedTool(tool.workspace, module, name)
        return self._bounded(tool) if known == tool else known

    def _bounded(self, tool: CountedTool) -> CountedTool:
        if tool not in self._tools:
            if len(self._tools) >= MOST_TOOLS:
                return replace(tool, name="other")
            self._tools.add(tool)
        return tool


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"ideabridge_{name}", text, labels=["workspace"])


class _RunCount:
    """The `RunObserver` of one run of a bridge."""

    def __init__(self, metrics: Metrics, bridge: Bridge, workspace: str, run: ObservedRun) -> None:
        self._metrics = metrics
        self._bridge = bridge
        self._workspace = workspace
        self._run = run

    def see(self, events: Sequence[Event]) -> None:
        """See `RunObserver`."""
        metrics = self._metrics
        workspace = self._workspace
        is_room = self._run.parent is not None
        for event in events:
            match event:
                case RunEnded() if not is_room:
                    metrics.ended.labels(workspace, self._run.machine.mode, event.status).inc()
                case UsageNoted():
                    for direction in ("input", "output"):
                        number = number_or_none(event.usage.get(f"{direction}_tokens"))
                        metrics.tokens.labels(workspace, direction).inc(number or 0)
                case ApprovalAsked() | PlanAsked():
                    metrics.asked.labels(workspace).inc()
                case CallDecided() | PlanDecided():
                    metrics.decided.labels(workspace, event.decision).inc()
                case _:
                    pass

    @contextmanager
    def around(self, effect: Execute) -> Generator[Callable[[JSON], None]]:
        """See `RunObserver`."""
        began = time.perf_counter()
        outcome = "error"
        try:
            yield _ignore
            outcome = "ok"
        except IdeabridgeError as error:
            outcome = "unknown" if error.outcome == "unknown" else "error"
            raise
        except anyio.get_cancelled_exc_class():
            outcome = "cancelled"
            raise
        finally:
            tool = self._metrics.counted_as(self._bridge, self._workspace, effect)
            self._metrics.count(tool, outcome, time.perf_counter() - began)


def _ignore(_value: JSON) -> None:
    pass


def with_metrics(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """Return ASGI middleware, behind the gate, that serves `/metrics`."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await app(scope, receive, send)
            return

        if scope["method"] in ("GET", "HEAD"):
            answer = Response(
                metrics.text(), headers={"content-type": _CONTENT_TYPE, "cache-control": "no-store"}
            )
        else:
            answer = PlainTextResponse("expected GET\n", 405, {"Allow": "GET, HEAD"})

        await answer(scope, receive, send)

    return served
