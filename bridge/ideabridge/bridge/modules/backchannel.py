"""Back-channel: which call a question belongs to that a module of 2025 or before asks while it answers calls.

Such a question does not say so (SDK-NOTES). It is put only where one single call is unanswered; else it is left, and
every call in flight is told: a question must never reach another person than the one whose call it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp_types import JSONRPCRequest

from ideabridge.bridge.modules.asking import Asking

_CALLING: ContextVar[Asking | None] = ContextVar("calling", default=None)
_META = "io.modelcontextprotocol/clientCapabilities"


class Backchannel:
    """The calls of one connection that are unanswered, and the questions that come meanwhile.

    Args:
        on_ask: told that the module has asked: its calls go one at a time from then on.
    """

    def __init__(self, on_ask: Callable[[], None]) -> None:
        self._asked = False
        self._on_ask = on_ask
        # None: the call was given up.
        self._unanswered: dict[str | int, Asking | None] = {}
        self._live: list[Asking] = []
        # By the id of a question, as text: the calls that were unanswered when it came.
        self._asking: dict[str, list[Asking | None]] = {}

    @contextmanager
    def calling(self, asking: Asking) -> Generator[None]:
        """While a call is made: what is sent by this task is that call. Where it is cancelled its module may not hear
        of it, and may still ask.
        """
        self._live.append(asking)
        token = _CALLING.set(asking)
        given_up = False
        try:
            yield
        except anyio.get_cancelled_exc_class():
            given_up = True
            raise
        finally:
            _CALLING.reset(token)
            self._live.remove(asking)
            asking.end()
            for request in [key for key, one in self._unanswered.items() if one is asking]:
                if given_up:
                    self._unanswered[request] = None
                else:
                    del self._unanswered[request]

    def sent(self, message: JSONRPCRequest) -> None:
        """A request goes out."""
        if message.method == "tools/call":
            self._unanswered[message.id] = _CALLING.get()
        _without_addresses(message)

    def answered(self, request: str | int) -> None:
        """The module has answered a request: nothing more comes of it, no question either."""
        self._unanswered.pop(request, None)

    def asked(self, request: JSONRPCRequest) -> None:
        """The module asks. The calls that are unanswered now are noted here, where messages are read in their order:
        `elicit` runs in a task of its own, and the call that asks may have been answered before that begins.
        """
        if request.method == "elicitation/create":
            self._asking[str(request.id)] = list(self._unanswered.values())

    def settled(self, request: str) -> None:
        """A question has its answer, or the module took it back."""
        self._asking.pop(request, None)

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        """The module asks."""
        self._asked = True
        self._on_ask()
        unanswered = self._asking.get(str(context.request_id), [])
        if len(unanswered) == 1 and unanswered[0] is not None and unanswered[0] in self._live:
            return await unanswered[0].put(params, apart=True)
        live = [asking for asking in self._live if asking in unanswered]
        mixed = any(one not in live for one in unanswered)
        why = f"{len(live)} calls of it were at work, and it does not say which of them asks"
        if mixed:
            why = "an earlier call of it was given up, and may be the one that asks"
        for asking in live:
            asking.refuse(params.message, f"{why}. Its calls go one at a time from now on: run the call again")
        return types.ElicitResult(action="cancel")

    @property
    def is_spent(self) -> bool:
        """Whether a call that was given up may still ask, so that a later one could not be told from it, and no call is
        made now.
        """
        return self._asked and not self._live and bool(self._unanswered)


def _without_addresses(message: JSONRPCRequest) -> None:
    """Declare forms alone: the SDK says that it opens addresses too (url mode), wherever it says that it asks."""
    params: dict[str, Any] = message.params or {}
    for told in (_object(params, "capabilities"), _object(_object(params, "_meta"), _META)):
        _object(told, "elicitation").pop("url", None)


def _object(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
