"""Stopping: why a client gave up a request: because a person stopped it, or because it took too long (DESIGN 6, 7).

A host that ends calls after a minute must not lose the run. It says so in the reason of its `notifications/cancelled`;
a connection that just ends (how calls are cancelled over HTTP in 2026-07-28) gives no reason at all.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import anyio
from mcp.server.context import ServerRequestContext
from starlette.requests import Request

METHOD: Final = "notifications/cancelled"

_TOOK_TOO_LONG: Final = re.compile(r"time[ds]?[ -]?out|deadline|too long", re.IGNORECASE)
_KEPT: Final = 100
_SECONDS: Final = 1.0
"""How long the notification may come after what it cancels has ended: it is told on another way."""

_Key: TypeAlias = tuple[str, str]


class Stops:
    """The requests that clients cancelled lately, with the reasons they gave."""

    def __init__(self) -> None:
        self._reasons: OrderedDict[_Key, str] = OrderedDict()
        self._changed = anyio.Event()

    def note(self, context: ServerRequestContext[Any, Any]) -> None:
        """A client has cancelled a request: take `notifications/cancelled`.

        Some clients cancel a request twice when it takes too long: they say so once, and once that it was aborted. A
        reason that says so is kept.
        """
        params: Mapping[str, Any] = context.params or {}
        key, reason = _key(context, params.get("requestId")), params.get("reason")
        if _TOOK_TOO_LONG.search(self._reasons.get(key, "")) is None:
            self._reasons[key] = reason if isinstance(reason, str) else ""
        while len(self._reasons) > _KEPT:
            self._reasons.popitem(last=False)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def is_meant(self, context: ServerRequestContext[Any, Any]) -> bool:
        """Whether a request that was given up was stopped on purpose: its client said so, and not that it took too
        long.
        """
        key = _key(context, context.request_id)
        with anyio.move_on_after(_SECONDS):
            while key not in self._reasons:
                await self._changed.wait()
        reason = self._reasons.pop(key, None)
        return reason is not None and _TOOK_TOO_LONG.search(reason) is None


def _key(context: ServerRequestContext[Any, Any], request_id: Any) -> _Key:
    """Ids of requests are those of one connection: over HTTP of one session, over stdio there is one."""
    request = context.request
    session = request.headers.get("mcp-session-id", "") if isinstance(request, Request) else ""
    return session, f"{request_id}"
