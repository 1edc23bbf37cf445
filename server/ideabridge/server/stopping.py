"""Cancelled requests: whether a person cancelled a request, or the host ended it after a time-out.

A host that ends calls after a minute must not lose the run. It reports the time-out as the reason of
`notifications/cancelled`. A closed connection, which cancels a call over HTTP in 2026-07-28, has no reason.
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
"""Seconds to wait for the notification, which arrives independently of the end of the request."""

_Key: TypeAlias = tuple[str, str]


class Stops:
    """The reasons of recently cancelled requests."""

    def __init__(self) -> None:
        self._reasons: OrderedDict[_Key, str] = OrderedDict()
        self._changed = anyio.Event()

    def note(self, context: ServerRequestContext[Any, Any]) -> None:
        """Handle `notifications/cancelled`.

        Some clients cancel a request twice after a time-out: once because of the time-out, and once as aborted. The
        time-out is kept as the reason.
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
        """Whether a cancelled request was cancelled on purpose: its client sent a reason other than a time-out."""
        key = _key(context, context.request_id)
        with anyio.move_on_after(_SECONDS):
            while key not in self._reasons:
                await self._changed.wait()
        reason = self._reasons.pop(key, None)
        return reason is not None and _TOOK_TOO_LONG.search(reason) is None


def _key(context: ServerRequestContext[Any, Any], request_id: Any) -> _Key:
    """The session and the id: request ids are unique within a session only."""
    request = context.request
    session = request.headers.get("mcp-session-id", "") if isinstance(request, Request) else ""
    return session, f"{request_id}"
