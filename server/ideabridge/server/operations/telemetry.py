"""Send OpenTelemetry spans for runs, Requests to minds, and calls, following the semantic
conventions for GenAI.

Spans exist only if the standard environment variables name a collector
(`OTEL_EXPORTER_OTLP_ENDPOINT`). They contain no parameters, results, errors or prompts, and no
names made up by a user or a model.

Each run is one trace, regardless of which processes drive it. The ids of a run's span are derived
from the run's id, so every process can attach calls to it. If the request that started the run has
a trace (`traceparent` in `_meta`), the run becomes part of that trace; the journal stores the
traceparent. While a call is running, its span is the current span, and the MCP SDK passes it on to
the server. A span is sent once it has ended. The process in which a run ends sends the span of the
run.

The spans do not come from the global tracer provider, because the MCP SDK would then add error
messages to them.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Final

import anyio
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import (
    Event,
    ProgramProposed,
    RequestMade,
    RunEnded,
    RunStarted,
    SolutionClosed,
    SolutionProposed,
    UsageNoted,
)
from ideabridge.bridge.runs.executor import ObservedRun
from ideabridge.bridge.store.errors import StoreError
from ideabridge.server.direct_calls import DirectCalls, Entry
from ideabridge.server.operations.requests import known_name
from ideabridge.tools.encoding import JSON
from ideabridge.tools.errors import IdeabridgeError

ENDS_SECONDS: Final = 0.5
"""Maximum time, in seconds, that the server spends on sending the last spans when it shuts down."""

_WRITER: Final = TraceContextTextMapPropagator()
_TRACEPARENT: Final = "traceparent"


class Telemetry:
    """Creates the spans of one process while the context `with telemetry:` is open. It watches
    every run that begins or is read after this object is created.
    """

    def __init__(
        self, bridge: Bridge, version: str, direct_calls: DirectCalls | None = None
    ) -> None:
        self.bridge = bridge
        self._ids = _Ids()
        own_attributes = Resource({"service.name": "ideabridge", "service.version": version})
        provider = TracerProvider(
            resource=own_attributes.merge(OTELResourceDetector().detect()),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        # Do not log each failed attempt to reach a collector, because the exporter logs an error
        # after the last one.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
        # The processor has a thread and a bounded queue, so nothing here has to wait for the
        # collector.
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._provider = provider
        self._tracer = provider.get_tracer("ideabridge", version)
        bridge.executor.observers.append(partial(_RunSpans, self))
        bridge.executor.traceparent = _traceparent
        if direct_calls is not None:
            direct_calls.watchers.append(self.watch_direct)

    def __enter__(self) -> Telemetry:
        return self

    def __exit__(self, *_: object) -> None:
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(ENDS_SECONDS)

    def watch_direct(self, entry: Entry) -> Callable[[], None]:
        """Begin the span of a direct call in the current task. Return a function that ends the
        span, to be called in the same task.
        """
        tool = entry.tool
        module = ""
        name = "idea"
        if not isinstance(tool, str):
            module, name = known_name(self.bridge, tool.module, tool.name_in_module)

        span = self._tracer.start_span(f"execute_tool {name}", attributes=_of_tool(module, name))
        token = contexts.attach(trace.set_span_in_context(span))

        def end() -> None:
            contexts.detach(token)
            if entry.outcome not in ("ok", "asked"):
                _fail(span, entry.outcome)
            if entry.run is not None:
                span.set_attribute("ideabridge.run.id", entry.run)
            span.end()

        return end

    def span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, AttributeValue],
        within: Context,
        began: int,
    ) -> Span:
        """Return a span that began at the given time, in nanoseconds since 1970."""
        return self._tracer.start_span(name, within, kind, attributes, start_time=began)

    def span_of_run(
        self, name: str, attributes: Mapping[str, AttributeValue], run: ObservedRun, began: int
    ) -> Span:
        """Return the span of a run, with ids derived from the run."""
        with self._ids.forced(*_ids_of(run)):
            return self.span(name, SpanKind.INTERNAL, attributes, self.above(run), began)

    @contextmanager
    def call_span(
        self, name: str, attributes: Mapping[str, AttributeValue], within: Context
    ) -> Generator[Span]:
        """Make the span of a call the current span while the context is open."""
        with self._tracer.start_as_current_span(
            name,
            within,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    def above(self, run: ObservedRun) -> Context:
        """Return the context above a run: for a room, that of its run; otherwise, that of the
        request that started the run.
        """
        if run.parent is not None:
            return self.within(run.parent)
        parent = run.machine.traceparent
        if parent is None:
            return Context()
        return _WRITER.extract({_TRACEPARENT: parent}, Context())

    def within(self, run: ObservedRun) -> Context:
        """Return the context for everything inside a run.

        It is the same in every process, so that a sampler makes the same decision everywhere.
        """
        trace_id, span_id = _ids_of(run)
        above = trace.get_current_span(self.above(run)).get_span_context()
        if above.is_valid:
            sampled = above.trace_flags.sampled
        else:
            sampled = self._provider.sampler.should_sample(
                Context(), trace_id, ""
            ).decision.is_sampled()

        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        own = SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
        return trace.set_span_in_context(NonRecordingSpan(own), Context())


class _Ids(RandomIdGenerator):
    """Generates the ids of traces and spans, or uses ids that were set in advance."""

    def __init__(self) -> None:
        self._forced: tuple[int, int] | None = None

    @contextmanager
    def forced(self, trace_id: int, span_id: int) -> Generator[None]:
        self._forced = trace_id, span_id
        try:
            yield
        finally:
            self._forced = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self._forced is None else self._forced[0]

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self._forced is None else self._forced[1]


def _ids_of(run: ObservedRun) -> tuple[int, int]:
    """Return the (trace id, span id) of a run, derived from its id.

    A room shares the trace of its run, and a run started by a traced request shares the caller's
    trace.
    """
    root = run
    while root.parent is not None:
        root = root.parent

    if root.machine.traceparent is None:
        caller = None
    else:
        caller = _parsed(root.machine.traceparent)

    if caller is not None:
        trace_id = caller.trace_id
    else:
        trace_id = int.from_bytes(_hash(root.id)[:16])

    return trace_id, int.from_bytes(_hash(run.id)[16:24])


def _hash(run_id: str) -> bytes:
    return hashlib.sha256(f"ideabridge {run_id}".encode()).digest()


def _parsed(traceparent: str) -> SpanContext | None:
    context = trace.get_current_span(
        _WRITER.extract({_TRACEPARENT: traceparent}, Context())
    ).get_span_context()
    return context if context.is_valid else None


def _traceparent() -> str | None:
    """Return the traceparent of the current request, or None if it has none."""
    carrier: dict[str, str] = {}
    _WRITER.inject(carrier)
    return carrier.get(_TRACEPARENT)


def _of_tool(module: str | None, name: str) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
    }
    attributes["gen_ai.tool.type"] = "extension" if module else "function"
    if module:
        attributes["ideabridge.module"] = module
    return attributes


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


class _RunSpans:
    """The `RunObserver` of one run."""

    def __init__(self, telemetry: Telemetry, run: ObservedRun) -> None:
        self._telemetry = telemetry
        self._run = run
        self._began: int | None = None
        self._asked_at: int | None = None
        self._usage: dict[str, JSON] = {}

    def see(self, events: Sequence[Event]) -> None:
        """See `RunObserver`."""
        answered: tuple[str | None, str | None, str | None] | None = None
        for event in events:
            match event:
                case RunStarted():
                    self._began = time.time_ns()
                case RequestMade():
                    self._asked_at = time.time_ns()
                    self._usage = {}
                case UsageNoted():
                    self._usage = event.usage
                case SolutionProposed() | ProgramProposed():
                    answered = event.mind or "turns", event.model, None
                case SolutionClosed():
                    answered = None, None, "broken" if event.broken is not None else None
                case RunEnded():
                    if self._asked_at is not None and answered is None:
                        answered = None, None, event.status
                case _:
                    pass

        if answered is not None and self._asked_at is not None:
            self._chat(self._asked_at, *answered)
            self._asked_at = None

        ended = next((event for event in events if isinstance(event, RunEnded)), None)
        if ended is not None:
            self._end(ended.status)

    def _chat(self, asked_at: int, mind: str | None, model: str | None, error: str | None) -> None:
        reported = self._usage.get("model")
        model = model or (reported if isinstance(reported, str) else None)
        provider = self._provider() if mind in (None, "model") else mind
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
        }
        if model is not None:
            attributes["gen_ai.response.model"] = model

        for direction in ("input", "output"):
            number = self._usage.get(f"{direction}_tokens")
            if isinstance(number, int):
                attributes[f"gen_ai.usage.{direction}_tokens"] = number

        name = "chat" if model is None else f"chat {model}"
        within = self._telemetry.within(self._run)
        span = self._telemetry.span(name, SpanKind.CLIENT, attributes, within, asked_at)
        if error is not None:
            _fail(span, error)

        span.end()

    def _provider(self) -> str:
        """Return the provider of the configured model, or the kind of mind for any other mind."""
        model = self._telemetry.bridge.configuration.model
        if model is None:
            mind = self._telemetry.bridge.mind
            return "turns" if mind is None else mind.name
        name = model if isinstance(model, str) else model.name
        return name.partition(":")[0]

    def _end(self, status: str) -> None:
        run = self._run
        machine = self._run.machine
        attributes: dict[str, AttributeValue] = {
            "ideabridge.run.id": run.id,
            "ideabridge.run.status": status,
        }
        if machine.mode == "solve":
            name = "invoke_agent solve"
            attributes |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "solve"}
        else:
            name = "invoke_workflow plan"
            attributes |= {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": "plan",
            }

        span = self._telemetry.span_of_run(name, attributes, run, self._began or self._created())
        if status != "done":
            _fail(span, status)

        span.end()

    def _created(self) -> int:
        """Return when another process created the run."""
        try:
            record = self._telemetry.bridge.store.runs.get(self._run.id)
        except StoreError:
            record = None
        if record is None:
            return time.time_ns()
        return int(datetime.fromisoformat(record.created).timestamp() * 1e9)

    @contextmanager
    def around(self, effect: Execute) -> Generator[Callable[[JSON], None]]:
        """See `RunObserver`."""
        tool = effect.tool
        if effect.is_latent:
            module = ""
            name = "latent"
        else:
            called = (tool.remote_name if tool.module else effect.activity) or tool.name
            module, name = known_name(self._telemetry.bridge, tool.module, called)

        attributes = {**_of_tool(module, name), "ideabridge.run.id": self._run.id}
        within = self._telemetry.within(self._run)
        with self._telemetry.call_span(f"execute_tool {name}", attributes, within) as span:
            try:
                yield _ignore
            except IdeabridgeError as error:
                _fail(span, "unknown" if error.outcome == "unknown" else type(error).__name__)
                raise
            except anyio.get_cancelled_exc_class():
                _fail(span, "cancelled")
                raise
            except Exception as error:
                _fail(span, type(error).__name__)
                raise


def _ignore(_value: JSON) -> None:
    pass
