"""Report the health of an HTTP server to supervisors and load balancers.

`/healthz` responds as long as the process works; if it does not, a supervisor restarts the process.
`/readyz` responds with 200 while the server can handle requests, and with 503 and the reasons
otherwise; a load balancer then sends the server no requests. Neither needs a token, and both accept
every Host, because a probe often knows only an address. So the responses contain nothing about
users, the configuration, or errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.store.errors import StoreError
from ideabridge.server.running import Running
from ideabridge.server.transports.gate import ALIVE

_HEADERS: Final = {"Cache-Control": "no-store", "Connection": "close"}
"""The connection is closed after each response. It does not count as a caller's connection, so it
must not be used for further requests.
"""


class Health:
    """An ASGI application for `/healthz` and `/readyz`.

    Args:
        running: the server.
        workspaces: returns the bridges of the server's open workspaces.
    """

    def __init__(self, running: Running, workspaces: Callable[[], Iterable[Bridge]]) -> None:
        self._running = running
        self._workspaces = workspaces
        self._connected = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["method"] not in ("GET", "HEAD"):
            answer = JSONResponse(
                {"error": "expected GET or HEAD"}, 405, {**_HEADERS, "Allow": "GET, HEAD"}
            )
        elif scope["path"] == ALIVE or not (reasons := self.obstacles()):
            answer = JSONResponse({"status": "ok"}, headers=_HEADERS)
        else:
            answer = JSONResponse({"status": "not ready", "reasons": reasons}, 503, _HEADERS)
        await answer(scope, receive, send)

    def obstacles(self) -> list[str]:
        """Return why the server cannot currently handle requests. If the list is empty, it can."""
        bridge = self._running.bridge
        reasons: list[str] = []
        if self._running.closing:
            reasons.append("the server is shutting down")

        reasons += [f"the store {problem}" for problem in _store_problems(bridge)]
        # Leave out the names of workspaces, because whoever sends the request must not learn them.
        of_workspaces = [
            problem for other in self._workspaces() for problem in _store_problems(other)
        ]
        reasons += [
            f"the store of a workspace {problem}" for problem in dict.fromkeys(of_workspaces)
        ]

        # While ideabridge is trying to reach a server that failed, it serves requests without that
        # server. The servers of a workspace connect only after the request that opened it, so they
        # do not make the server unready.
        self._connected = self._connected or all(
            status.state != "connecting" for status in bridge.modules.statuses()
        )
        if not self._connected:
            reasons.append("servers are connecting for the first time")

        return reasons


def _store_problems(bridge: Bridge) -> list[str]:
    """Return the current problems with the store of a bridge, as endings of sentences that begin
    with "the store".
    """
    problems: list[str] = []
    try:
        bridge.store.data_version()
    except StoreError:
        problems.append("cannot be read")

    if bridge.obstacle is not None:
        problems.append("cannot be written")
    return problems
