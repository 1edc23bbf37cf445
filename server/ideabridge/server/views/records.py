"""Describe a run from its row in the table of runs. Only the functions for its input, its task and
its plan read the journal, of which they read the first events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ideabridge.tools.encoding import JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.context.failure import CallFailure
    from ideabridge.bridge.context.messages import Message
    from ideabridge.bridge.store.run_filter import RunFilter
    from ideabridge.bridge.store.run_record import RunRecord
    from ideabridge.bridge.store.store import Store
    from ideabridge.bridge.store.users import Viewer

ListedStatus: TypeAlias = Literal[
    "running",
    "queued",
    "needs_solution",
    "needs_approval",
    "interrupted",
    "done",
    "stalled",
    "limit",
    "cancelled",
    "failed",
]
"""The values of `run_status`: `RunStatus`, and `queued` for a run that is waiting for a worker."""

_MOST_READ: Final = 200
"""Maximum number of rows read by one query of the list of runs."""


@dataclass(frozen=True, slots=True)
class CallOutcomes:
    """How many calls of a run have ended, and how many of these have no result.

    Attributes:
        ended: the number of calls that have ended, including those that never started.
        failed: the number of these calls that failed, even if something caught the error.
        denied: the number of these calls that a person or a rule denied.
        cancelled: the number of these calls that were cancelled.
        not_run: the number of these calls that never started, because a call that they read has no
            result.
    """

    ended: int
    failed: int
    denied: int
    cancelled: int
    not_run: int = 0

    @classmethod
    def of(cls, failures: Iterable[CallFailure | None], not_run: int = 0) -> CallOutcomes:
        """Count calls that have ended.

        Args:
            failures: for each call that started or was denied, why it has no result, or None if it
                has one.
            not_run: see the attribute with this name.
        """
        counts = Counter(failures)
        return cls(
            counts.total() + not_run,
            counts["failed"],
            counts["denied"],
            counts["cancelled"],
            not_run,
        )

    @property
    def none_succeeded(self) -> bool:
        """True if no call has succeeded, even if no call has ended."""
        return self.failed + self.denied + self.cancelled + self.not_run == self.ended


def run_status(record: RunRecord) -> tuple[str, str | None]:
    """Return the (status, reason) of a run. The reason is None if unknown."""
    from ideabridge.bridge.driving.driver import LEFT_REASON, is_left

    if is_left(record):
        return "interrupted", LEFT_REASON
    return record.status, record.summary.reason


def shown_outcome(record: RunRecord) -> tuple[str, str | None]:
    """Return the (status, reason) of a run for display on pages. A run whose output is missing only
    because calls were denied has not failed: its denied calls are its outcome.
    """
    from ideabridge.bridge.context.failure import NO_OUTPUT

    status, reason = run_status(record)
    summary = record.summary
    is_denied = summary.denied > 0 and summary.denied == summary.errors
    if status == "failed" and reason == NO_OUTPUT and is_denied:
        return "done", None
    return status, reason


def listed_runs(
    store: Store,
    caller: Viewer,
    limit: int,
    *,
    status: ListedStatus | None = None,
    after: str | None = None,
    chosen: RunFilter | None = None,
) -> list[RunRecord]:
    """Return the runs to show in a list, newest first, without rooms.

    Args:
        store: the store of the runs.
        caller: the caller who looks up the runs. Only `SEES_ALL` sees all runs.
        limit: the maximum number of runs.
        status: the `run_status` of the runs to return, or None for all.
        after: the id of a run; only the runs after it in the list are returned.
        chosen: additional conditions.
    """
    # No query can select interrupted runs, because whether a run that is stored as running has been
    # interrupted depends on its process.
    if status is None:
        stored = []
    elif status == "interrupted":
        stored = ["running", "interrupted"]
    else:
        stored = [status]

    if chosen is not None and chosen.tool is not None:
        store.ideas.index_all()

    most_read = min(limit, _MOST_READ) if status is None else _MOST_READ
    records: list[RunRecord] = []
    while True:
        page = store.runs.newest(
            caller, stored, limit=most_read, after=after, rooms=False, chosen=chosen
        )
        records += [run for run in page if status is None or run_status(run)[0] == status]
        if len(records) >= limit or len(page) < most_read:
            return records[:limit]

        after = page[-1].id


def lineage_of(store: Store, record: RunRecord) -> JSONObject:
    """Return a run's parent, the run that it was forked from, its forks, its rooms and its
    ideas.
    """
    lineage: JSONObject = {}
    if record.parent is not None:
        lineage["part_of"] = record.parent

    if record.forked_from is not None:
        lineage["forked_from"] = {"run": record.forked_from, "at": record.forked_at}

    lineage["forks"] = [{"run": run, "at": at} for run, at in store.runs.forks(record.id)]
    lineage["rooms"] = [
        {"run": room.id, "status": room.status, "title": room.title}
        for room in store.runs.rooms(record.id)
    ]
    lineage["ideas"] = [idea.id for idea in store.ideas.of_run(record.id)]
    return {key: value for key, value in lineage.items() if value}


def solution_of_plan(store: Store, run_id: str) -> JSONObject:
    """Return the Solution that a plan's run carries out: `{"calls", "output"}` or `{"program"}`.
    The result is an empty object if the run has not begun.
    """
    from ideabridge.bridge.loop.event import ProgramProposed, SolutionProposed, event_from_json

    for _, content in store.runs.events(run_id):
        event = event_from_json(content)
        if isinstance(event, SolutionProposed):
            return {"calls": event.calls, "output": event.output}
        if isinstance(event, ProgramProposed):
            return {"program": event.program}

    return {}


def input_of(store: Store, run_id: str) -> JSONObject:
    """Return the input of a run, without the inputs of instances."""
    for message in _context_of(store, run_id):
        if message.type == "input" and not message.instance:
            return message.members

    return {}


def task_of(store: Store, run_id: str) -> str:
    """Return the task of a run, which is the first user text in its context, or "" if there is
    none.
    """
    for message in _context_of(store, run_id):
        if message.type == "text" and message.role == "user" and isinstance(message.value, str):
            return message.value

    return ""


def _context_of(store: Store, run_id: str) -> list[Message]:
    """Return the context that a run began with, or an empty list if the run has not begun."""
    from ideabridge.bridge.context.messages import read_context
    from ideabridge.bridge.loop.event import RunStarted, event_from_json

    first = next(store.runs.events(run_id), None)
    started = event_from_json(first[1]) if first is not None else None
    return read_context(started.context) if isinstance(started, RunStarted) else []
