"""Metrics of a server for Prometheus, at `/metrics`. They exist only with `serve --http --metrics`.

A label never contains text that a user or a model wrote. Methods are MCP methods; tools are those
of this server, of its tool files and of the modules; published ideas and tools without code are
counted under `idea` and `latent`. The first `MOST_TOOLS` tools have series of their own, and all
later tools share `other`. So the number of series is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
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
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError

PATH: Final = "/metrics"

MOST_TOOLS: Final = 500
"""Maximum number of tools with their own series."""

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one server. `observe` counts its requests. Runs and direct calls are counted
    from the time when this object is created.
    """

    def __init__(self, bridge: Bridge, direct_calls: DirectCalls, version: str) -> None:
        self._bridge = bridge
        self._registry = registry = CollectorRegistry()
        self._tools: set[tuple[str, str]] = set()

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
        self._requests = counter("requests", "MCP requests.", "method", "tool", "status")
        self._request_seconds = histogram(
            "request_seconds", "Seconds from an MCP request to its answer.", "method"
        )
        self._responses = counter("http_responses", "Answers over HTTP.", "code")
        self._calls = counter(
            "calls", "Calls to tools, direct and within runs.", "module", "tool", "outcome"
        )
        self._call_seconds = histogram(
            "call_seconds", "Duration of tool calls, in seconds.", "module"
        )
        self.ended = counter(
            "runs_ended", "Runs that ended in this process, without rooms.", "kind", "status"
        )
        self.asked = counter("approvals_asked", "Calls and plans that people were asked about.")
        self.decided = counter("approvals_decided", "Decisions about calls and plans.", "decision")
        self.tokens = counter("tokens", "Tokens of the models that answered Requests.", "direction")
        ProcessCollector(registry=registry)
        registry.register(self)
        bridge.executor.observers.append(partial(_RunCount, self))
        direct_calls.observers.append(self._observe_direct)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics whose values are read only on demand."""
        bridge = self._bridge
        up = GaugeMetricFamily(
            "ideabridge_module_up", "Whether a server is connected.", labels=["module"]
        )
        for status in bridge.modules.statuses():
            # A server that waits for its use is not missing.
            if status.state not in ("disabled", "idle"):
                up.add_metric([status.name], status.state == "up")

        yield up
        at_work = bridge.runs_at_work(SEES_ALL)
        yield GaugeMetricFamily(
            "ideabridge_runs_at_work", "Runs that this process is driving.", at_work
        )
        # If the store cannot be read, this number is unknown, and the next metric is 0.
        with suppress(StoreError):
            queued = bridge.store.queue.count(most=MOST_QUEUED)
            yield GaugeMetricFamily(
                "ideabridge_runs_queued", "Runs in the store that wait for a worker.", queued
            )

        writable = bridge.obstacle is None
        yield GaugeMetricFamily(
            "ideabridge_store_writable", "0 while writes wait because of an error.", writable
        )
        path = Path(bridge.store.path)
        if bridge.store.is_file and path.exists():
            size = path.stat().st_size
            yield GaugeMetricFamily("ideabridge_store_bytes", "The size of the store's file.", size)

    def text(self) -> bytes:
        """Return all metrics in the text format that Prometheus reads."""
        return generate_latest(self._registry)

    # -- what is counted ---------------------------------------------------------------------------

    def observe(self, served: ServedRequest) -> None:
        """Count a request."""
        if served.http is not None:
            self._responses.labels(str(served.http)).inc()
        if served.is_call:
            tool = "idea" if served.kind == "idea" else served.tool
            if served.kind == "exposed":
                tool = self._bounded("", tool)[1]
            self._requests.labels(served.method, tool, served.status or "").inc()
            self._request_seconds.labels(served.method).observe(served.seconds)

    def _observe_direct(self, call: DirectCall) -> None:
        if call.run is None:
            self.count(self._named(call.module, call.tool), call.outcome, call.seconds)

    def count(self, tool: tuple[str, str], outcome: str, seconds: float) -> None:
        """Count a call to a tool, given as (module, name)."""
        self._calls.labels(*tool, outcome).inc()
        self._call_seconds.labels(tool[0]).observe(seconds)

    def label(self, effect: Execute) -> tuple[str, str]:
        """Return the (module, name) that a run's call is counted under."""
        tool = effect.tool
        if effect.is_latent:
            return "", "latent"
        return self._named(
            tool.module, (tool.remote_name if tool.module else effect.activity) or tool.name
        )

    def _named(self, module: str | None, name: str) -> tuple[str, str]:
        key = (module or "", name)
        bridge = self._bridge
        if key in self._tools:
            return key
        own_name = known_name(bridge, module, name)
        return self._bounded(*key) if own_name == key else own_name

    def _bounded(self, module: str, name: str) -> tuple[str, str]:
        if (module, name) not in self._tools:
            if len(self._tools) >= MOST_TOOLS:
                return module, "other"
            self._tools.add((module, name))
        return module, name


class _RunCount:
    """The `RunObserver` of one run."""

    def __init__(self, metrics: Metrics, run: ObservedRun) -> None:
        self._metrics = metrics
        self._run = run

    def see(self, events: Sequence[Event]) -> None:
        """See `RunObserver`."""
        metrics = self._metrics
        is_room = self._run.parent is not None
        for event in events:
            match event:
                case RunEnded() if not is_room:
                    metrics.ended.labels(self._run.machine.mode, event.status).inc()
                case UsageNoted():
                    for direction in ("input", "output"):
                        number = event.usage.get(f"{direction}_tokens")
                        metrics.tokens.labels(direction).inc(
                            number if isinstance(number, int) else 0
                        )
                case ApprovalAsked() | PlanAsked():
                    metrics.asked.inc()
                case CallDecided() | PlanDecided():
                    metrics.decided.labels(event.decision).inc()
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
            self._metrics.count(self._metrics.label(effect), outcome, time.perf_counter() - began)


def _ignore(_value: JSON) -> None:
    pass


def with_metrics(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """ASGI middleware, behind the gate, that answers `/metrics`."""

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
