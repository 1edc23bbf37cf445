"""Record a line for each call to an exposed tool, and sessions of calls with their results.

Lines and sessions are written to the store together, a fraction of a second after a call ends and
when the server shuts down. If the process crashes, the calls that ended in the last fraction of a
second are lost. With `sessions: false` in the configuration, or `record: false` for a server, only
the lines are written, which contain neither arguments nor results.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import anyio
from starlette.requests import Request

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.runs.direct import (
    MOST_CALLS,
    RESULT_BYTES,
    SESSION_BYTES,
    SESSION_PAUSE,
    SessionInfo,
)
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.direct_calls import DirectCall, DirectOutcome
from ideabridge.bridge.store.errors import StoreError
from ideabridge.bridge.store.sessions import SessionRow
from ideabridge.server.answers import ToolAnswer, size_of
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.callers import client_text, session_id
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.tool import Tool

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.25
"""Delay, in seconds, between the end of a call and writing the call."""

_WRITTEN_AT_ONCE: Final = 500
"""Maximum number of calls written at a time."""

_MOST_KEPT: Final = 20_000
"""Maximum number of calls kept in memory while the store cannot be written to. If there are more,
the oldest are dropped.
"""

_BYTES_AT_ONCE: Final = 262_144
"""Size of results, in bytes, above which a thread writes them."""

_MOST_BYTES: Final = 64_000_000
"""Limit, in bytes, on the results kept in memory while the store cannot be written to. Beyond this
limit, the sessions of the calls end.
"""

_MOST_SESSIONS: Final = 10_000
"""Maximum number of sessions in memory. If there are more, the least recently used session is
dropped, and its next call begins a new session."""

_SWEEP_SECONDS: Final = 60.0
"""Interval, in seconds, between two searches for sessions that have ended."""

_ERROR_CHARACTERS: Final = 4096
_DIGITS: Final = 32

_WAITING: Final = "direct."
"""The prefix of the settings for direct calls whose results have not been returned yet; the run's
id follows it. The settings are deleted with the run."""

_RESULT_SECONDS: Final = 3600.0
"""Time, in seconds after the end of a run that answers a direct call, during which an identical
call still gets its result. A later call asks again.
"""


@dataclass(slots=True)
class Entry:
    """A direct call in progress. `outcome` applies unless the call returns a result.

    Attributes:
        tool: the called tool, or the name of a published idea.
        arguments: the arguments with secrets removed.
        is_secret: whether the arguments contained a secret.
        value: the value that the call returned, once `has_value` is true.
        error: why the call failed.
        run: the run that the call became.
        ends: functions to call when the call has ended.
    """

    started: float
    at: float
    request: ToolRequest
    name: str
    tool: Tool | str
    arguments: JSONObject
    bytes_in: int
    parameters: str
    is_secret: bool
    outcome: DirectOutcome = "cancelled"
    value: JSON = None
    has_value: bool = False
    error: Exception | None = None
    run: str | None = None
    ends: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def give(self, tool: Tool | str, value: JSON) -> None:
        """Record the value that the call returned, and the tool as it was called."""
        if isinstance(tool, Tool) and isinstance(self.tool, Tool) and tool.name != self.tool.name:
            # Use the name that plans use for the tool, because a session can become a plan.
            tool = dataclasses.replace(tool, name=self.tool.name, remote_name=self.tool.remote_name)
        self.tool = tool
        self.value = value
        self.has_value = True


@dataclass(slots=True)
class _Session:
    """A session in memory: its row in the store, and the calls that have not been written to the
    store yet.

    Attributes:
        defined: the place of the first call to each tool. Only that call is stored with the
            definition of the tool.
        runs: the runs that calls in the session became.
        size: the total size of the calls, in bytes.
        waiting: the calls that have not been written to the store yet.
    """

    row: SessionRow
    defined: dict[str, int] = field(default_factory=dict[str, int])
    runs: set[str] = field(default_factory=set[str])
    size: int = 0
    waiting: list[str] = field(default_factory=list[str])


class WaitingCalls:
    """The direct calls that became runs and whose results have not been returned yet.

    Each call is stored as the setting `direct.RUN`, which holds the digest of the call, so that a
    repeated call finds its run even in another process.

    Two calls are identical if their caller, client, HTTP session, tool and arguments are the same.
    A stdio session does not count: it ends when the host restarts, and the same call must not run a
    second time after that.
    """

    def __init__(self, bridge: Bridge, record: DirectCalls) -> None:
        self._bridge = bridge
        self._record = record
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    def digest(self, tool: Tool, arguments: JSONObject, request: ToolRequest) -> str:
        """Return the digest of the properties that identical calls share."""
        client = self._record.client(request)
        if isinstance(request.context.request, Request):
            session = self._record.session(request)
        else:
            session = ""
        call: list[JSON] = [request.caller, client, session, *tool.origin, arguments]
        return hashlib.sha256(encode(call)).hexdigest()

    async def run_of(self, digest: str, caller: str, start: Callable[[], Awaitable[Run]]) -> Run:
        """Return the run that this call became if its result has not been returned yet. Otherwise,
        start a run with `start`.
        """
        lock = self._locks.setdefault(digest, anyio.Lock())
        async with lock:
            run = await self.find(digest, caller)
            if run is None:
                run = await start()
                key = f"{_WAITING}{run.id}"
                await self._bridge.patiently(
                    lambda: self._bridge.store.settings.set(key, digest.encode())
                )
            return run

    async def find(self, digest: str, caller: str, *, refused: bool = False) -> Run | None:
        """Return the run that this call became if its result has not been returned yet, and None
        otherwise.

        Args:
            digest: see `digest`.
            caller: the owner of the run.
            refused: whether to return the run even if it was cancelled and has no result.
        """
        for key, value in self._bridge.store.settings.under(_WAITING).items():
            if value == digest.encode():
                run = await self._waiting(key.removeprefix(_WAITING), caller, refused=refused)
                if run is not None:
                    return run
        return None

    async def _waiting(self, run_id: str, caller: str, *, refused: bool) -> Run | None:
        """Return a run if it is still waiting or its result can still be fetched, and None
        otherwise.
        """
        record = self._bridge.store.runs.get(run_id)
        if record is None:
            return None

        run = await self._bridge.run(run_id, caller=caller)
        age = datetime.now(UTC) - datetime.fromisoformat(record.updated)
        if run.machine.ended and age.total_seconds() > _RESULT_SECONDS:
            await self.give(run)
            return None

        # A run that was cancelled or cannot continue will never have a result.
        is_lost = run.status == "interrupted" or (run.status == "cancelled" and not refused)
        return None if is_lost else run

    async def give(self, run: Run) -> None:
        """Record that the result of a call is being returned. From then on, an identical call is a
        new call.
        """
        key = f"{_WAITING}{run.id}"
        settings = self._bridge.store.settings
        if settings.get(key) is not None:
            await self._bridge.patiently(lambda: settings.delete(key))


class DirectCalls:
    """The record of direct calls.

    Attributes:
        waiting: the calls that became runs and whose results have not been returned yet.
        observers: functions that receive each call that has ended.
        watchers: functions that receive each call when it begins, in the task of the call. Each
            returns a function that is called in the same task when the call has ended.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.observers: list[Callable[[DirectCall], None]] = []
        self.watchers: list[Callable[[Entry], Callable[[], None]]] = []
        self._bridge = bridge
        self.waiting = WaitingCalls(bridge, self)
        self._ended: list[DirectCall] = []
        self._sessions: dict[tuple[str, str, str], _Session] = {}
        self._touched: dict[str, _Session] = {}
        self._bytes = 0
        self._writing = 0
        self._has_waiting = anyio.Event()
        self._lost = 0
        self._failing = False
        # The session on stdio. There is only one, because a process on stdio has only one client.
        self._process = _hashed(secrets.token_hex(16))
        self._unrecorded: set[str] = set()
        self._is_on = True
        self.follow()

    def follow(self) -> None:
        """Switch to the bridge's current configuration."""
        configuration = self._bridge.configuration
        self._unrecorded = {
            name for name, module in configuration.modules.items() if not module.record
        }
        self._is_on = configuration.sessions

    def begin(
        self, name: str, tool: Tool | str, arguments: JSONObject, request: ToolRequest
    ) -> Entry:
        """Begin recording a direct call.

        `name` is the name that the client used. `tool` is a tool, or the name of a published idea.
        """
        data = encode(arguments)
        masked = self._bridge.secrets.redact(arguments)
        is_secret = masked is not arguments
        digest = hashlib.sha256(encode(masked) if is_secret else data).hexdigest()[:_DIGITS]
        masked_call = cast("JSONObject", masked)
        entry = Entry(
            time.perf_counter(),
            time.time(),
            request,
            name,
            tool,
            masked_call,
            len(data),
            digest,
            is_secret,
        )
        entry.ends = [watch(entry) for watch in self.watchers]
        return entry

    def end(self, entry: Entry, result: ToolAnswer | None) -> None:
        """Complete the record of a call to an exposed tool. A call can end without a result."""
        if result is not None and entry.outcome == "cancelled":
            entry.outcome = "error" if result.get("isError") else "ok"

        for end in entry.ends:
            end()

        tool = entry.tool
        if isinstance(tool, str):
            return

        client = self.client(entry.request)
        session = self.session(entry.request)
        size = 0 if result is None else _bytes_of(result)
        call = DirectCall(
            at=entry.at,
            caller=entry.request.caller,
            client=client,
            session=session,
            name=entry.name,
            module=tool.module,
            tool=tool.name_in_module,
            parameters=entry.parameters,
            seconds=round(time.perf_counter() - entry.started, 6),
            outcome=entry.outcome,
            run=entry.run,
            bytes_in=entry.bytes_in,
            bytes_out=size,
        )
        self._ended.append(call)
        for observe in self.observers:
            observe(call)

        if self._is_on and tool.module not in self._unrecorded:
            self._record(entry, client, session, size)

        self._wake()

    def end_idea(self, entry: Entry) -> None:
        """Complete the record of a call to a published idea.

        No line is written for the call, because the run that answered it is recorded.
        """
        if entry.error is not None:
            entry.outcome = "error"
        elif entry.has_value or entry.run is not None:
            entry.outcome = "ok"

        for end in entry.ends:
            end()

        if self._is_on:
            self._record(entry, self.client(entry.request), self.session(entry.request), 0)
            self._wake()

    def _wake(self) -> None:
        if len(self._ended) >= _WRITTEN_AT_ONCE:
            self.flush()
        else:
            self._has_waiting.set()

    def client(self, request: ToolRequest) -> str:
        """Return the name and version of a request's client in the form for records."""
        return client_text(request.context, self._bridge.secrets.mask)

    def session(self, request: ToolRequest) -> str:
        """Return the hash of a request's connection, or "" over HTTP without a session."""
        if not isinstance(request.context.request, Request):
            return self._process
        session = session_id(request.context)
        return _hashed(session) if session else ""

    # -- sessions ----------------------------------------------------------------------------------

    def _record(self, entry: Entry, client: str, session: str, size: int) -> None:
        """Add a finished call to its session."""
        key = (entry.request.caller, client, session)
        now = time.time()
        recorded = self._sessions.pop(key, None)
        if (
            recorded is None
            or now - recorded.row.last >= SESSION_PAUSE
            or recorded.row.calls >= MOST_CALLS
        ):
            row = SessionRow(f"run_{secrets.token_hex(8)}", *key, entry.at, now, 0, ())
            recorded = _Session(row)

        # Add the session at the end, because sessions are ordered by their latest calls.
        self._sessions[key] = recorded
        if len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

        if entry.run is not None and entry.run in recorded.runs:
            # This is the same request as before, repeated with a person's answer.
            return

        place = recorded.row.calls
        body = self._body(entry, recorded, now, size)
        text = encode_text(body)
        if "value" in body and len(text) > RESULT_BYTES + entry.bytes_in:
            # Do not store the value, because all that the client received is an error about its
            # size.
            body["unkept"] = _too_large(len(text))
            del body["value"]
            text = encode_text(body)

        if entry.run is not None:
            recorded.runs.add(entry.run)

        recorded.size += len(text)
        recorded.waiting.append(text)
        name = entry.name if entry.name in recorded.row.tools else None
        tools = recorded.row.tools if name is not None else (*recorded.row.tools, entry.name)
        recorded.row = recorded.row._replace(last=now, calls=place + 1, tools=tools)
        self._touched[recorded.row.id] = recorded
        self._bytes += len(text)
        if self._bytes > _MOST_BYTES:
            self._end([*self._touched], "too many calls are waiting to be written")

    def _body(self, entry: Entry, session: _Session, now: float, size: int) -> JSONObject:
        """Return a call in the form for the store. `size` is the approximate size of its result, in
        bytes.
        """
        tool = entry.tool
        body: JSONObject = {"name": entry.name, "began": entry.at, "ended": now}
        if isinstance(tool, str):
            body["tool"] = tool
        else:
            digest = f"{tool.module}/{tool.name} {tool.prose_digest}"
            first_place = session.defined.setdefault(digest, session.row.calls)
            first_place = None if first_place == session.row.calls else first_place
            body["tool"] = tool.to_json() if first_place is None else first_place

        left = SESSION_BYTES - session.size
        if entry.is_secret:
            body["unkept"] = "its parameters contain a configured secret"
        elif entry.bytes_in > min(RESULT_BYTES, left):
            body["unkept"] = (
                f"its parameters have {entry.bytes_in:,} bytes, more than a session can contain"
            )
        else:
            body["parameters"] = entry.arguments
            left -= entry.bytes_in

        if entry.run is not None:
            body["run"] = entry.run
        elif not entry.has_value:
            body["error"] = self._error_of(entry)
        elif size > min(RESULT_BYTES, left):
            body["unkept"] = _too_large(size)
        else:
            body["value"] = self._bridge.secrets.redact(entry.value)

        return body

    def _error_of(self, entry: Entry) -> JSONObject:
        error = entry.error
        if error is None:
            return {"kind": "unknown", "message": "it was cancelled; it may have run"}

        kind = "runtime"
        if isinstance(error, IdeabridgeError) and error.outcome in ("unknown", "ran"):
            kind = error.outcome
        elif entry.outcome == "denied":
            kind = "denied"

        if isinstance(error, IdeabridgeError):
            text = str(error)
        else:
            text = type(error).__name__

        return {"kind": kind, "message": self._bridge.secrets.mask(text)[:_ERROR_CHARACTERS]}

    async def end_sessions(self) -> None:
        """Turn ended sessions into runs, for every process on the store, until cancelled."""
        while True:
            try:
                await self._bridge.direct_sessions.end_idle()
            except StoreError as error:
                logger.warning("ended sessions cannot become runs yet: %s", error)
            await anyio.sleep(_SWEEP_SECONDS)

    # -- writing -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write calls to the store shortly after they end, until cancelled."""
        while True:
            await self._has_waiting.wait()
            await anyio.sleep(FLUSH_SECONDS)
            self._has_waiting = anyio.Event()
            self.flush()

    def flush(self) -> None:
        """Write the calls that have ended. If the store fails, the lines are kept for the next
        attempt.
        """
        if not self._ended and not self._touched:
            return

        calls = self._ended
        self._ended = []
        sessions = [(session.row, session.waiting) for session in self._touched.values()]
        is_large = self._bytes > _BYTES_AT_ONCE
        for session in self._touched.values():
            session.waiting = []

        self._touched = {}
        self._bytes = 0
        store = self._bridge.store

        def write() -> list[str]:
            with store.transaction():
                if calls:
                    store.direct_calls.add(calls, time.time())
                return [row.id for row, bodies in sessions if not store.sessions.add(row, bodies)]

        def failed(error: Exception) -> None:
            self._failed(error, calls, [row.id for row, _ in sessions])

        self._writing += 1
        try:
            self._bridge.direct_sessions.write(write, self._written, failed, is_large=is_large)
        except StoreError as error:
            failed(error)

    def _written(self, ended: list[str]) -> None:
        """Record that the calls are in the store, except those in the sessions `ended`, which ended
        before the calls were written.
        """
        self._writing -= 1
        if ended:
            self._end(ended, "their sessions have become runs")

        if self._failing:
            logger.warning("direct calls are being recorded again; %d were lost", self._lost)

        self._failing = False
        self._lost = 0

    def _failed(self, error: Exception, calls: list[DirectCall], sessions: list[str]) -> None:
        self._writing -= 1
        waiting = [*calls, *self._ended]
        self._ended = waiting[-_MOST_KEPT:]
        self._lost += len(waiting) - len(self._ended)
        self._has_waiting.set()
        if not self._failing:
            logger.warning("direct calls cannot be recorded, and are waiting in memory: %s", error)

        self._failing = True
        self._end(sessions, "the store cannot be written")

    def _end(self, ids: Sequence[str], reason: str) -> None:
        """End these sessions, because some of their calls are lost and a session must not have
        gaps.
        """
        if ids:
            logger.warning(
                "results of direct calls in %d sessions are not stored: %s", len(ids), reason
            )
        self._sessions = {
            key: session for key, session in self._sessions.items() if session.row.id not in ids
        }
        for identifier in ids:
            self._touched.pop(identifier, None)

        self._bytes = sum(
            len(text) for session in self._touched.values() for text in session.waiting
        )

    async def written(self) -> None:
        """Write the calls that have ended, and wait until they are in the store.

        Raises:
            StoreError: the store cannot be written to.
        """
        self.flush()
        if self._writing:
            await self._bridge.direct_sessions.written()

    async def shown(self, caller: str) -> list[SessionInfo]:
        """Return a caller's latest sessions, with the calls written so far. If the store is busy,
        the last few calls might be missing.
        """
        with suppress(StoreError):
            await self.written()
        return self._bridge.direct_sessions.latest(caller)


def _too_large(size: int) -> str:
    return f"its result has {size:,} bytes, more than a session can contain"


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _bytes_of(result: ToolAnswer) -> int:
    """Return the approximate size of a result's content, in bytes. ASCII text is counted without
    encoding it.
    """
    size = 0
    for block in cast("list[dict[str, Any]]", result.get("content") or []):
        text = block.get("text") or block.get("data")
        if isinstance(text, str):
            size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        else:
            size += size_of(block)

    return size
