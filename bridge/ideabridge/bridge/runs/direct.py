"""Store the calls that a client makes one by one, without a plan, and group them into sessions that
can be published.

The calls of one caller, client and connection form a session, which ends after ten minutes without
a call. A session in progress is stored call by call. When it ends, it becomes a run of kind
`session`. Parts of it can be turned into runs at any time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar, cast

from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.runs.recorded import read_run
from ideabridge.bridge.runs.stretch import (
    EndedCall,
    EndedRun,
    calls_of,
    ended_run,
    keep_ended,
    part_id,
    part_origin,
    store_part,
)
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.store.errors import RunExistsError, StoreError
from ideabridge.bridge.store.run_record import RunOrigin
from ideabridge.bridge.store.sessions import SessionRow
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.writer import Writer
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import IDEA, META_PROPERTIES, Tool
from ideabridge.tools.typed import read_as

SESSION_PAUSE: Final = 600.0
"""A session ends this many seconds after the end of its last call."""

_MARGIN: Final = 60.0
"""The minimum time, in seconds, between the end of a session and its conversion into a run, so that
its last calls have been written.
"""

MOST_CALLS: Final = 2000
"""The maximum number of calls in one session. The next call begins a new session."""

RESULT_BYTES: Final = 1_000_000
"""The maximum size, in bytes, of a call's stored parameters. The same limit applies to the call's
stored result.
"""

SESSION_BYTES: Final = 16_000_000
"""The maximum size, in bytes, of the stored calls in one session."""

LISTED_SESSIONS: Final = 5
"""The maximum number of sessions in a list."""

_SEARCHED_SESSIONS: Final = 100
"""The number of latest sessions among which the reference `session` is resolved."""

SESSION: Final = "session"
"""The reference to the latest session."""

_WHY: Final = "calls that a client made one by one"

_META_NAMES: Final = "it has arguments whose names have a different meaning in a plan"

_FAILED: Final = ("failed", "cancelled", "limit", "stalled")
"""The statuses of a run that has ended without a result."""

_OPEN: Final = "unknown"
"""Error kind of a call whose run might still produce a result."""

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session of direct calls.

    Attributes:
        run: the id of the session's run, which exists once the session has ended.
        client: the name and version of the client, or "" if the client sent none.
        session: the hash of the connection, or "" if the transport has no connections. In that
            case, the session might mix several conversations.
        began: when the first call arrived, in seconds since 1970.
        last: when the last call ended, in seconds since 1970.
        calls: the number of calls in the session.
        tools: the names of the tools that the session called, without duplicates.
        in_progress: whether the session is still in progress.
    """

    run: str
    client: str
    session: str
    began: float
    last: float
    calls: int
    tools: tuple[str, ...]
    in_progress: bool

    @property
    def is_ambiguous(self) -> bool:
        """Whether the session might mix calls from several conversations."""
        return not self.session

    def to_json(self) -> JSONObject:
        """Return `{"run", "calls", "tools", "client", "began", "last", "in_progress"?,
        "ambiguous"?}`.
        """
        entry: JSONObject = {
            "run": self.run,
            "calls": self.calls,
            "tools": [*self.tools[:20]],
            "client": self.client,
            "began": _iso(self.began),
            "last": _iso(self.last),
        }
        if self.in_progress:
            entry["in_progress"] = True
        if self.is_ambiguous:
            entry["ambiguous"] = True
        return entry

    def fits(self, words: str) -> bool:
        """Return whether the name of a tool that the session called contains any of the words.
        Without any words, every session fits.
        """
        split = words.lower().split()
        return not split or any(word in tool.lower() for word in split for tool in self.tools)

    @property
    def line(self) -> str:
        """A one-line description of the session for people and models."""
        tools = ", ".join(self.tools)
        line = (
            f"{self.run}: {self.calls} calls of {tools[:200]}, {_iso(self.began)} to "
            f"{_iso(self.last)}"
        )
        if self.client:
            line += f", {self.client}"
        if self.is_ambiguous:
            line += "; perhaps from several conversations"
        return line


@dataclass(frozen=True, slots=True)
class _Calls:
    """A session's calls in the form of a run's calls, and why some of them cannot be published,
    keyed by place.
    """

    calls: list[EndedCall] = field(default_factory=list[EndedCall])
    unkept: dict[int, str] = field(default_factory=dict[int, str])


class DirectSessions:
    """The sessions of direct calls in a store.

    Args:
        store: the store.
        writer: writes into the store, or None to write directly.
        screen: checks data before it is stored.
        settings: the settings of runs.
        fingerprint: the fingerprint of the configuration.
        ideas: returns the tool `idea:NAME` as a caller sees it.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer | None,
        screen: Screen,
        settings: Callable[[], Settings],
        fingerprint: str,
        ideas: Callable[[str, str], Tool | None],
    ) -> None:
        self._store = store
        self._writer = writer
        self._screen = screen
        self._settings = settings
        self._fingerprint = fingerprint
        self._ideas = ideas

    # -- writing -----------------------------------------------------------------------------------

    def write(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
        *,
        is_large: bool,
    ) -> None:
        """Write calls; see `Writer.write`.

        Raises:
            StoreError: the calls cannot be written to the store.
        """
        if self._writer is None:
            done(job())
        else:
            self._writer.write(job, done, failed, key="direct calls", is_large=is_large)

    async def written(self) -> None:
        """Wait until earlier writes are done.

        Raises:
            StoreError: the store cannot be written to.
        """
        await self._write(lambda: None)

    # -- finding sessions --------------------------------------------------------------------------

    def latest(self, caller: str, limit: int = LISTED_SESSIONS) -> list[SessionInfo]:
        """Return a caller's latest sessions, newest first."""
        sessions = {
            run: _ended_info(run, origin)
            for run, origin in self._store.runs.sessions(caller, limit)
        }
        for row in self._store.sessions.of(caller, limit):
            sessions[row.id] = _open_info(row)
        return sorted(sessions.values(), key=lambda session: -session.last)[:limit]

    def find(self, caller: str, client: str | None = None, session: str | None = None) -> str:
        """Return the id of a caller's latest session.

        Args:
            caller: the caller.
            client: the name and version of the client, or None for any client.
            session: the hash of the connection over which the client asks, "" if the client's
                transport has no connections, or None if the caller uses no connection.

        Raises:
            PublicationError: the caller has no session, or it is unclear which session is meant. In
                the second case, the message lists the sessions.
        """
        latest = [
            info
            for info in self.latest(caller, _SEARCHED_SESSIONS)
            if client is None or info.client == client
        ]
        if not latest:
            raise PublicationError(
                "session: nothing was called directly, so there is no session to publish"
            )

        for info in latest:
            if session and info.session == session:
                return info.run

        first = latest[0]
        overlaps = any(info.last >= first.began for info in latest[1:])
        if session != "" and not first.is_ambiguous and not overlaps:
            return first.run

        lines = "\n".join(info.line for info in latest[:LISTED_SESSIONS])
        raise PublicationError(
            "session: more than one conversation may have made these calls. Name one by its id "
            "instead of 'session', and choose its calls, counted from 0, with `calls`; check_run "
            f"shows them:\n{lines}"
        )

    def shown(self, session_id: str, caller: str) -> tuple[SessionInfo, list[JSONObject]] | None:
        """Return a session in progress and its calls, each as `{"call", "tool", "module"?,
        "parameters", "error"?, "unkept"?}`, or None if the caller has no such session.
        """
        row = self._store.sessions.get(session_id)
        if row is None or row.caller != caller:
            return None

        calls: list[JSONObject] = []
        for place, body in enumerate(self._store.sessions.calls(session_id)):
            entry: JSONObject = {
                "call": place,
                "tool": body["name"],
                "parameters": body.get("parameters", {}),
            }
            entry.update({key: body[key] for key in ("error", "unkept", "run") if key in body})
            calls.append(entry)

        return _open_info(row), calls

    # -- publishing --------------------------------------------------------------------------------

    async def part(self, ref: str, calls: Sequence[int] | None, caller: str) -> str:
        """Return the run that consists of the given calls of a session or of another run, creating
        it if it does not exist.

        Args:
            ref: the id of a session or of a run.
            calls: the places of the first and the last call, counted from 0, or None for all calls.
            caller: the owner.

        Raises:
            UnknownRunError: the caller has no such session or run.
            PublicationError: the session or run does not have these calls, or one of them cannot be
                published.
        """
        row = self._store.sessions.get(ref)
        if row is not None and row.caller == caller:
            return await self._part_of(row, calls)
        if calls is None:
            return ref

        first, last = calls
        return await self._write(lambda: store_part(self._store, ref, first, last, caller))

    async def _part_of(self, row: SessionRow, calls: Sequence[int] | None) -> str:
        first, last = (0, row.calls - 1) if calls is None else calls
        if not 0 <= first <= last < row.calls:
            raise PublicationError(
                f"session {row.id} has calls 0 to {row.calls - 1}, not {first} to {last}"
            )

        own = part_id(row.id, first, last)
        if self._store.runs.get(own) is not None:
            return own

        def make() -> EndedRun:
            return self._run_of(self._read(row, first, last)).with_all_calls(first)

        run = await compute_in_thread(make)
        origin = part_origin(row.id, first, last)
        try:
            await self._write(lambda: self._keep(own, row, run, origin))
        except RunExistsError:
            # The same request has been sent a second time.
            pass

        return own

    # -- ending ------------------------------------------------------------------------------------

    async def end_idle(self, now: float | None = None) -> int:
        """Turn the ended sessions of all processes into runs. Return the number of these sessions.

        Args:
            now: the current time in seconds since 1970, or None to read the clock.
        """
        count = 0
        if now is None:
            now = time.time()
        since = now - SESSION_PAUSE - _MARGIN
        while rows := self._store.sessions.idle(since):
            for row in rows:
                await self._end(row)
                count += 1

        return count

    async def _end(self, row: SessionRow) -> None:
        origin: JSONObject = {
            "client": row.client,
            "session": row.session,
            "began": row.began,
            "last": row.last,
            "count": row.calls,
            "tools": [*row.tools],
        }

        def make() -> EndedRun | None:
            session = self._read(row, 0, row.calls - 1)
            return self._run_of(session) if session.calls else None

        run: EndedRun | None = None
        try:
            run = await compute_in_thread(make)
        except StoreError:
            raise
        except IdeabridgeError as error:
            # A session that cannot become a run must not keep other sessions from becoming runs.
            logger.error("session %s is not stored: %s", row.id, error)

        if run is not None and run.unkept:
            origin["unkept"] = [
                {"call": place, "why": reason} for place, reason in run.unkept.items()
            ]

        def keep() -> None:
            # Another process that uses this store might have ended the session since it was read.
            if run is not None and self._store.sessions.get(row.id) is not None:
                self._keep(row.id, row, run, read_as(RunOrigin, origin))
            self._store.sessions.delete(row.id)

        await self._write(keep)

    def _run_of(self, session: _Calls) -> EndedRun:
        run = ended_run(session.calls, self._settings(), "", _WHY)
        run.unkept = {**run.unkept, **session.unkept}
        run.events = self._screen.admit(run.events)
        return run

    def _keep(self, run_id: str, row: SessionRow, run: EndedRun, origin: RunOrigin) -> None:
        keep_ended(
            self._store,
            run_id,
            run,
            caller=row.caller,
            title="",
            fingerprint=self._fingerprint,
            origin=origin,
        )

    async def _write(self, job: Callable[[], T]) -> T:
        if self._writer is None:
            return job()
        return await self._writer.perform(job)

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, row: SessionRow, first: int, last: int) -> _Calls:
        """Return a range of a session's calls in the form of a run's calls."""
        bodies = self._store.sessions.calls(row.id)[: last + 1]
        session = _Calls()
        steps = _steps(bodies[first:])
        for body, step in zip(bodies[first:], steps, strict=True):
            place = len(session.calls)
            tool = self._tool(body, bodies, row.caller)
            reason = body.get("unkept")
            if tool is None:
                reason = f"you no longer have a published idea {body['name']}"
                tool = Tool(str(body["name"]), "", {"type": "object"})

            if isinstance(reason, str):
                session.unkept[place] = reason

            call = self._call(tool, body, step)
            if "run" in body and call.error is not None and call.error.get("kind") == _OPEN:
                session.unkept[place] = str(call.error.get("message"))

            if not call.parameters.keys().isdisjoint(META_PROPERTIES):
                # A plan would treat these parameters as meta-properties, so the call cannot be
                # published.
                session.unkept.setdefault(place, _META_NAMES)
                call = _without_meta(call)

            session.calls.append(call)

        return session

    def _tool(self, body: JSONObject, bodies: Sequence[JSONObject], caller: str) -> Tool | None:
        defined = body["tool"]
        if isinstance(defined, str):
            return self._ideas(f"{IDEA}{defined}", caller)
        if isinstance(defined, int):
            defined = bodies[defined]["tool"]
        return Tool.from_json(cast("JSONObject", defined))

    def _call(self, tool: Tool, body: JSONObject, step: int) -> EndedCall:
        parameters = cast("JSONObject", body.get("parameters", {}))
        run_id = body.get("run")
        if not isinstance(run_id, str):
            error = cast("JSONObject | None", body.get("error"))
            return EndedCall(tool, parameters, step, body.get("value"), error)

        # The call has become a run: either the run of an idea or, because the call was waiting for
        # approval, a run of this single call.
        run = read_run(self._store, run_id)
        if run is None:
            record = self._store.runs.get(run_id)
            status = "gone" if record is None else record.status
            kind = "runtime" if status in _FAILED else _OPEN
            gone: JSONObject = {"kind": kind, "message": f"run {run_id} is {status}"}
            return EndedCall(tool, parameters, step, error=gone)

        if tool.in_room:
            return EndedCall(tool, parameters, step, run.result)

        try:
            (call,) = calls_of(run, [0])
        except PublicationError as error:
            # A person has replaced the call with another kind of call.
            failure: JSONObject = {"kind": "runtime", "message": str(error)}
            return EndedCall(tool, parameters, step, error=failure)

        return EndedCall(call.tool, call.parameters, step, call.value, call.error)


def _without_meta(call: EndedCall) -> EndedCall:
    """Return a call without the parameters named like meta-properties, marked as failed."""
    parameters = {
        name: value for name, value in call.parameters.items() if name not in META_PROPERTIES
    }
    error = call.error or {"kind": "unknown", "message": f"it ran: {_META_NAMES}"}
    return EndedCall(call.tool, parameters, call.step, error=error)


def _steps(bodies: Sequence[Mapping[str, JSON]]) -> list[int]:
    """Return the step number of each call. A step lasts until one of its calls has ended, and
    includes all calls that begin by then.
    """
    steps: list[int] = []
    step = 0
    first_end: float | None = None
    for body in bodies:
        began = cast("float", body["began"])
        ended = cast("float", body["ended"])
        if first_end is None:
            first_end = ended
        elif began >= first_end:
            step += 1
            first_end = ended
        else:
            first_end = min(first_end, ended)

        steps.append(step)

    return steps


def _open_info(row: SessionRow) -> SessionInfo:
    return SessionInfo(
        row.id,
        row.client,
        row.session,
        row.began,
        row.last,
        row.calls,
        row.tools,
        in_progress=True,
    )


def _ended_info(run: str, origin: RunOrigin) -> SessionInfo:
    return SessionInfo(
        run,
        origin.client,
        origin.session,
        origin.began,
        origin.last,
        origin.count,
        origin.tools,
        in_progress=False,
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
