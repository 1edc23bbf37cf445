"""Direct calls: takes down every direct call of an exposed tool, and writes them to the store in batches.

A call costs a few microseconds: the store is written by a task of its own, at the latest a second after the call has
ended, and once more when the server ends. A crash of the process loses that last second.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
from starlette.requests import Request

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.ideas.direct_calls import DirectCall, Outcome
from ideabridge.bridge.ideas.errors import StoreError
from ideabridge.server.answers import ToolAnswer, size_of
from ideabridge.server.rounds import ToolRequest
from ideabridge.tools.encoding import JSONObject, encode
from ideabridge.tools.tool import Tool

FLUSH_SECONDS: Final = 1.0
_AT_ONCE: Final = 500
"""So many calls are written without waiting for the second to end."""

_MOST_KEPT: Final = 20_000
"""So many calls wait in memory where the store cannot be written; the oldest go first."""

_CLIENT: Final = 120
_CLIENTS: Final = 256
_DIGITS: Final = 32

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Entry:
    """A direct call on its way. `outcome` is what becomes of it unless it is answered."""

    started: float
    at: float
    asked: ToolRequest
    name: str
    tool: Tool
    bytes_in: int
    parameters: str
    outcome: Outcome = "cancelled"
    run: str | None = None


class DirectCalls:
    """The record of direct calls.

    Args:
        bridge: has the store, and knows the secrets.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._ended: list[DirectCall] = []
        self._some = anyio.Event()
        self._lost = 0
        self._failing = False
        self._clients: dict[str, str] = {}
        # Of stdio: one client for as long as the process lives.
        self._process = _hashed(secrets.token_hex(16))

    def begin(self, name: str, tool: Tool, arguments: JSONObject, asked: ToolRequest) -> Entry:
        """A direct call has come.

        Args:
            name: the name it is called by.
            tool: the tool.
            arguments: what it is called with; only their size and digest are kept.
            asked: the request.
        """
        data = encode(arguments)
        masked = self._bridge.secrets.redact(arguments)
        digest = hashlib.sha256(data if masked is arguments else encode(masked)).hexdigest()[:_DIGITS]
        return Entry(time.perf_counter(), time.time(), asked, name, tool, len(data), digest)

    def end(self, entry: Entry, result: ToolAnswer | None) -> None:
        """It was answered, or (None) was not."""
        outcome = entry.outcome
        if result is not None and outcome == "cancelled":
            outcome = "error" if result.get("isError") else "ok"
        tool = entry.tool
        self._ended.append(
            DirectCall(
                at=entry.at,
                caller=entry.asked.caller,
                client=self._client(entry.asked),
                session=self._session(entry.asked),
                name=entry.name,
                module=tool.module,
                tool=tool.remote_name or tool.name,
                parameters=entry.parameters,
                seconds=round(time.perf_counter() - entry.started, 6),
                outcome=outcome,
                run=entry.run,
                bytes_in=entry.bytes_in,
                bytes_out=0 if result is None else _bytes_of(result),
            )
        )
        if len(self._ended) >= _AT_ONCE:
            self.flush()
        elif not self._some.is_set():
            self._some.set()

    def _client(self, asked: ToolRequest) -> str:
        params = asked.context.session.client_params
        if params is None:
            return ""
        given = f"{params.client_info.name} {params.client_info.version}"
        found = self._clients.get(given)
        if found is None:
            if len(self._clients) >= _CLIENTS:
                self._clients.clear()
            # Masked before it is cut: half a secret would not be recognised.
            found = self._clients[given] = self._bridge.secrets.mask(given[: 4 * _CLIENT]).strip()[:_CLIENT]
        return found

    def _session(self, asked: ToolRequest) -> str:
        request = asked.context.request
        if not isinstance(request, Request):
            return self._process
        session = request.headers.get("mcp-session-id")
        return "" if session is None else _hashed(session)

    async def run(self) -> None:
        """Write what has ended to the store, every second, until cancelled."""
        while True:
            await self._some.wait()
            await anyio.sleep(FLUSH_SECONDS)
            self._some = anyio.Event()
            self.flush()

    def flush(self) -> None:
        """Write what has ended. What the store does not take waits for the next time."""
        if not self._ended:
            return
        calls, self._ended = self._ended, []
        try:
            self._bridge.store.note_direct_calls(calls, time.time())
        except StoreError as error:
            waiting = len(calls)
            self._ended = calls[-_MOST_KEPT:]
            self._lost += max(0, waiting - len(self._ended))
            self._some.set()
            if not self._failing:
                logger.warning("direct calls cannot be recorded, and wait in memory: %s", error)
            self._failing = True
            return
        if self._failing:
            logger.warning("direct calls are recorded again; %d are lost", self._lost)
        self._failing, self._lost = False, 0


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _bytes_of(result: ToolAnswer) -> int:
    """Bytes of the content of an answer, without encoding it again."""
    size = 0
    for block in cast("list[dict[str, Any]]", result.get("content") or []):
        text = block.get("text") or block.get("data")
        if isinstance(text, str):
            size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        else:
            size += size_of(block)
    return size
