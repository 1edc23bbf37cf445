"""Record the method, tool, user, outcome and duration of each request, for the server's operators.

`RequestWatch` creates a record of each request and passes it to observers, such as the one from
`request_log`, which writes a line for each request. Neither records nor lines contain parameters,
results, error messages or names made up by a client.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.store.users import person_of
from ideabridge.server.callers import Context, caller_of
from ideabridge.tools.names import visible

RequestStatus = Literal["ok", "asked", "error", "failed", "cancelled", "refused", "disconnected"]
"""How a request ended. `asked`: the client was asked for something, and repeats the request.
`error`: the response is an error. `failed`: an internal error of ideabridge ended the request.
`refused`: it was rejected before it was read. `disconnected`: the client disconnected.
"""

ToolKind = Literal["own", "exposed", "idea"]
LogLevel = Literal["error", "warning", "info", "debug"]
Observer = Callable[["ServedRequest"], None]

PROBES: Final = ("/healthz", "/readyz", "/metrics")
"""Paths that are requested every few seconds. They are logged only at the `debug` level."""

_PATHS: Final = ("/mcp", "/ui", *PROBES)
_HTTP_METHODS: Final = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
_SDK_METHODS: Final = ("initialize", "notifications/cancelled", "notifications/progress")
"""Methods that the SDK handles itself."""

_KEY: Final = "ideabridge.request"
_REFUSED: Final = 400
_DEFECT: Final = 500
_PLAIN: Final = re.compile(r"[\w.@/:+-]+")


@dataclass(slots=True)
class ServedRequest:
    """A request that has ended.

    Attributes:
        method: the MCP method or, for any other request, the HTTP method and path; `unknown` if
            there is no such method.
        tool: the name of the called tool; "" if no tool was called or the tool does not exist.
        kind: the kind of the called tool, which says whose it is.
        workspace: the name of the workspace that the request was sent to, or "".
        user: the name of the user or other caller; "" if the sender is not identified.
        status: how the request ended.
        seconds: the time from the arrival of the request to its response, or to the end of its
            stream.
        http: the HTTP status; None on stdio.
        is_call: whether it is an MCP request.
    """

    method: str
    user: str = ""
    tool: str = ""
    kind: ToolKind | None = None
    workspace: str = ""
    status: RequestStatus | None = None
    seconds: float = 0.0
    http: int | None = None
    is_call: bool = False
    began: float = field(default_factory=time.perf_counter)

    def end(self, otherwise: RequestStatus) -> None:
        """Record the end of the request. If it has no status yet, the status becomes
        `otherwise`.
        """
        self.status = self.status or otherwise
        self.seconds = time.perf_counter() - self.began


def known_name(bridge: Bridge, module: str | None, name: str) -> tuple[str, str]:
    """Return the (server, name) of a tool as shown to operators.

    A name that does not come from a server or a tool file becomes `other`, because a model can
    define tools with made-up names.
    """
    if module is None:
        return "", name if name in bridge.toolbox.tools else "other"
    if module not in bridge.modules:
        return "other", "other"
    listed = any(name == tool.name_in_module for tool in bridge.modules[module].known_tools)
    return module, name if listed else "other"


_now: ContextVar[ServedRequest | None] = ContextVar("_now", default=None)


def note_user(scope: Scope, caller: str) -> None:
    """Record who sent the current HTTP request."""
    served: ServedRequest | None = scope.get(_KEY)
    if served is not None:
        served.user = person_of(caller)


def note_tool(name: str, kind: ToolKind) -> None:
    """Record which tool the current request calls. The name comes from this server, not from the
    client.
    """
    served = _now.get()
    if served is not None:
        served.tool = name
        served.kind = kind


def note_failure() -> None:
    """Record that the current request failed because of an internal error of ideabridge."""
    served = _now.get()
    if served is not None:
        served.status = "failed"


class RequestWatch:
    """Records each request to a server, and calls the observers when it has ended.

    Over HTTP, a request ends with its HTTP response (`over`). On stdio, it ends when the server has
    responded.

    Args:
        server: the server.
        observers: called with the record of each request.
        workspace: the name of the workspace that the server serves, or "".
    """

    def __init__(
        self, server: Server[Any], observers: Sequence[Observer], workspace: str = ""
    ) -> None:
        self._server = server
        self._workspace = workspace
        self._observers = observers
        # Put this middleware outermost, so that it also sees the answers that other middleware
        # makes of errors.
        server.middleware.insert(0, self._watched)

    def over(self, app: ASGIApp) -> ASGIApp:
        """Return ASGI middleware around everything that handles HTTP requests."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return

            method = scope["method"]
            path = f"/{scope['path'].strip('/').partition('/')[0]}"
            method = method if method in _HTTP_METHODS else "unknown"
            path = path if path in _PATHS else "elsewhere"
            served = scope[_KEY] = ServedRequest(f"{method} {path}")
            done = False

            async def watched_send(message: Message) -> None:
                nonlocal done
                if message["type"] == "http.response.start":
                    served.http = message["status"]
                elif message["type"] == "http.response.body":
                    done = not message.get("more_body", False)
                await send(message)

            try:
                await app(scope, receive, watched_send)
            finally:
                if served.http is not None and served.http >= _REFUSED:
                    served.end("failed" if served.http >= _DEFECT else "refused")
                else:
                    served.end("ok" if done else "disconnected")
                self._report(served)

        return watched

    async def _watched(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        request: object = ctx.request
        if isinstance(request, Request):
            http: ServedRequest | None = request.scope.get(_KEY)
        else:
            http = None

        served = http or ServedRequest("", person_of(caller_of(ctx)))
        served.workspace = self._workspace
        served.method = self._method_label(ctx.method)
        served.is_call = ctx.request_id is not None
        token = _now.set(served)
        status: RequestStatus = "error"
        try:
            result = await call_next(ctx)
            status = _status_of(result)
            return result
        except anyio.get_cancelled_exc_class():
            status = "cancelled"
            raise
        finally:
            _now.reset(token)
            served.end(status)
            if http is None and served.is_call:
                self._report(served)

    def _method_label(self, method: str) -> str:
        """Return the method, or "unknown" if nothing handles it, because clients can send any
        name.
        """
        server = self._server
        is_known = (
            method in _SDK_METHODS
            or server.get_request_handler(method)
            or server.get_notification_handler(method)
        )
        return method if is_known else "unknown"

    def _report(self, served: ServedRequest) -> None:
        for observer in self._observers:
            observer(served)


def _status_of(result: HandlerResult) -> RequestStatus:
    if isinstance(result, dict):
        if result.get("isError") is True:
            return "error"
        return "asked" if result.get("resultType") == "input_required" else "ok"
    return "error" if getattr(result, "is_error", False) is True else "ok"


# -- the log of requests ---------------------------------------------------------------------------

requests_logger: Final = logging.getLogger("ideabridge.requests")


def log_request(served: ServedRequest) -> None:
    """Write the log line of a request as KEY=VALUE pairs."""
    is_probe = served.method.partition(" ")[2] in PROBES
    if served.status == "failed":
        level = logging.ERROR
    elif is_probe:
        level = logging.DEBUG
    else:
        level = logging.INFO

    if not requests_logger.isEnabledFor(level):
        return

    pairs = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": logging.getLevelName(level).lower(),
        "method": served.method,
        "tool": served.tool,
        "workspace": served.workspace,
        "user": served.user,
        "status": served.status or "",
        "http": "" if served.http is None else str(served.http),
        "seconds": f"{served.seconds:.4f}",
    }
    requests_logger.log(
        level, "%s", " ".join(f"{key}={_value(text)}" for key, text in pairs.items() if text)
    )


def _value(text: str) -> str:
    """Return a value on one line, in quotes unless it is a single word."""
    if _PLAIN.fullmatch(text) and text.isascii():
        return text
    return '"{}"'.format(visible(text).replace("\\", "\\\\").replace('"', '\\"'))


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


@contextmanager
def request_log(level: LogLevel) -> Generator[list[Observer]]:
    """Log each request at the given level while the context is open.

    Yield the observers to pass requests to; the list is empty if no request would be logged.

    The lines go to standard error, unless the program that embeds ideabridge has set up logging.
    """
    if level not in ("info", "debug"):
        yield []
        return

    before = (requests_logger.level, requests_logger.propagate)
    handler = _Lines()
    adds_handler = not logging.getLogger().handlers
    requests_logger.setLevel(level.upper())
    if adds_handler:
        # Bypass the error log, because it leaves out lines that are similar to others.
        requests_logger.addHandler(handler)
        requests_logger.propagate = False

    try:
        yield [log_request]
    finally:
        requests_logger.removeHandler(handler)
        requests_logger.level, requests_logger.propagate = before
