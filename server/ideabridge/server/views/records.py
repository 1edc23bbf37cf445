"""Records: what the table of runs says about a run, without its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ideabridge.tools.encoding import JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.store.idea import RunRecord
    from ideabridge.bridge.store.store import Store

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
"""What `run_status` says: `RunStatus`, and `queued` for a run that waits for a worker."""


def run_status(record: RunRecord) -> tuple[str, str | None]:
    """(status, its reason if that is stored) of a run."""
    from ideabridge.bridge.driving.driver import LEFT, is_left

    if is_left(record):
        return "interrupted", LEFT
    reason = (record.summary or {}).get("reason")
    return record.status, reason if isinstance(reason, str) else None


def errors_of(record: RunRecord) -> int:
    """The number of failed calls and outputs of a run that has ended."""
    errors = (record.summary or {}).get("errors")
    return errors if isinstance(errors, int) else 0


def lineage_of(store: Store, record: RunRecord) -> JSONObject:
    """The runs and ideas that the run comes from or led to."""
    lineage: JSONObject = {}
    if record.parent is not None:
        lineage["part_of"] = record.parent

    if record.forked_from is not None:
        lineage["forked_from"] = {"run": record.forked_from, "at": record.forked_at}

    lineage["forks"] = [{"run": run, "at": at} for run, at in store.runs.forks(record.id)]
    lineage["rooms"] = [
        {"run": one.id, "status": one.status, "title": one.title}
        for one in store.runs.rooms(record.id)
    ]
    lineage["ideas"] = [one.id for one in store.ideas.of_run(record.id)]
    return {key: value for key, value in lineage.items() if value}


def input_of(store: Store, run_id: str) -> JSONObject:
    """The input of a run, without those of instances."""
    from ideabridge.bridge.context.messages import read_context
    from ideabridge.bridge.loop.event import RunStarted, event_from_json

    first = next(store.runs.events(run_id), None)
    started = event_from_json(first[1]) if first is not None else None
    if isinstance(started, RunStarted):
        for message in read_context(started.context):
            if message.type == "input" and not message.instance and isinstance(message.value, dict):
                return message.value

    return {}
