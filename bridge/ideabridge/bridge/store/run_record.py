"""The row of a run in the store, without its journal."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from ideabridge.bridge.store.leases import LEASE_SECONDS, Lease
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.typed import member, read_as, whole_document

CLIENT: Final[ContextVar[str]] = ContextVar("client", default="")
"""The program on whose behalf the current task creates runs; see `RunRecord.client`. Requests set
it.
"""

ENDED: Final = ("done", "stalled", "limit", "cancelled", "failed")
"""The statuses that mean a run has ended."""


@dataclass(frozen=True, slots=True)
class Handover:
    """Information about an unfinished run that one process leaves for the next.

    A process that takes up the run replaces all of this information. A process that shuts down
    removes it.

    Attributes:
        needs: the servers that the run needs while it is waiting for a worker.
        taken_up: how often a process has taken up the run since `events` last changed.
        events: the number of events in the journals of the run and its rooms when it was last taken
            up.
        set_aside: True if the run is taken up only at a person's request, because it made no
            progress the last few times.
    """

    needs: tuple[str, ...] | None = None
    taken_up: int | None = None
    events: int | None = None
    set_aside: bool = False


@dataclass(frozen=True, slots=True)
class MarkedCall:
    """A call, with the reason for which the origin of a run lists it.

    Attributes:
        call: the number of the call.
        why: the reason.
    """

    call: int
    why: str


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """Where a run's calls come from, if the run was stored after these calls had ended. Empty for
    other runs.

    Attributes:
        document: the whole document, which the row of the run stores.
        host: the host from whose logs the run was imported.
        conversation: the id of the conversation in these logs.
        ended: the time of the last imported call, as ISO 8601 in UTC, or "" if it is not known.
        imported: the time of the import, as ISO 8601 in UTC.
        digests: the digests of the calls that the import read.
        incomplete: the imported calls whose results are incomplete.
        client: the name and version of the client that made the direct calls of a session.
        session: the hash of the session's connection, or "" if the transport has no connections.
        began: when the first call of the session arrived, in seconds since 1970.
        last: when the last call of the session ended, in seconds since 1970.
        count: the number of calls in the session.
        tools: the names of the tools that the session called, without duplicates.
        unkept: the calls of the session that cannot be published.
        run: the run that this run is a part of.
    """

    document: JSONObject = field(metadata=whole_document())
    host: str | None = None
    conversation: str = ""
    ended: str = ""
    imported: str = ""
    digests: tuple[str, ...] = field(default=(), metadata=member("calls"))
    incomplete: tuple[MarkedCall, ...] = ()
    client: str = ""
    session: str = ""
    began: float = 0.0
    last: float = 0.0
    count: int = 0
    tools: tuple[str, ...] = ()
    unkept: tuple[MarkedCall, ...] = ()
    run: str | None = None


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """The summary in the row of a run, which is replaced whenever the status is written.

    Attributes:
        idea: the id of the last idea of an ended run.
        errors: the number of errors in the last Solution of an ended run: the failed calls that
            nothing caught, and an output or a Solution that is malformed.
        denied: how many of these errors were caused by denied calls.
        not_run: how many of these errors belong to calls that never started, because a call that
            they read has no result.
        reason: why the run ended or was interrupted.
        origin: for a run that was stored after it had ended, where its calls come from: imported
            calls, a session of direct calls, or a part of either. Otherwise empty.
        handover: what the next process needs to know about a run that has not ended.
    """

    idea: str | None = None
    errors: int = 0
    denied: int = 0
    not_run: int = 0
    reason: str | None = None
    origin: RunOrigin = RunOrigin({})
    # The members of the handover are stored alongside the others.
    handover: Handover = field(default=Handover(), metadata=whole_document())

    @classmethod
    def from_json(cls, stored: JSONObject) -> StoredSummary:
        """Read the JSON of a row. Members of the wrong type are treated as missing."""
        return read_as(cls, stored)

    def to_json(self) -> JSONObject:
        """Return the JSON for the row, without empty members."""
        handover = self.handover
        needs = None if handover.needs is None else list[JSON](handover.needs)
        members: JSONObject = {
            "idea": self.idea,
            "errors": self.errors or None,
            "denied": self.denied or None,
            "not_run": self.not_run or None,
            "origin": self.origin.document or None,
            "needs": needs,
            "taken_up": handover.taken_up,
            "events": handover.events,
            "reason": self.reason,
            "set_aside": handover.set_aside or None,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run. Times are ISO 8601 in UTC, except `lease_until`.

    Attributes:
        id: the id of the run.
        kind: `plan`, `solve` or `session`.
        caller: the owner of the run.
        title: a human-readable title of one line.
        fingerprint: the fingerprint of the configuration under which the run was last driven.
        parent: if the run is a room, the run whose call it answers.
        status: `running`, or the status that `set_status` stored last.
        summary: the summary that `set_status` stored last. All members are empty if none was
            stored.
        driver: the holder of the lease, or None if nobody holds it.
        epoch: the current fencing epoch, or 0 if the lease was never acquired.
        lease_s: the number of seconds that the lease lasts without a heartbeat.
        lease_until: when the lease ends, in seconds since 1970 by the driver's clock. Because
            clocks differ, this time is shown, and compared for equality, but never compared with
            another clock.
        created: when the run was created.
        updated: when the status last changed.
        last_event: the sequence number of the run's last event, or 0 if the run has no events.
        forked_from: the run that this run was forked from.
        forked_at: the number of the last event of `forked_from` before the fork.
        client: the name and version of the program that asked for the run, as stated by the
            program, or "" if they are not known.
    """

    id: str
    kind: str
    caller: str
    title: str
    fingerprint: str
    parent: str | None
    status: str
    summary: StoredSummary
    driver: str | None
    epoch: int
    lease_until: float
    created: str
    updated: str
    last_event: int
    forked_from: str | None = None
    forked_at: int | None = None
    client: str = ""
    lease_s: float = LEASE_SECONDS

    @property
    def lease(self) -> Lease:
        """The lease of the run."""
        return Lease(self.id, self.driver, self.epoch, self.lease_until, self.lease_s)
