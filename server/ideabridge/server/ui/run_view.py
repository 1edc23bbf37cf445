"""Build the answer from `view_run` from a run's journal, in the server or in a worker process."""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.store.store import Store
from ideabridge.server.ui.histories import KeptJournal, read_until
from ideabridge.server.ui.showing import duration, in_one_line
from ideabridge.server.ui.timeline import Row, timeline
from ideabridge.tools.encoding import JSON, JSONObject

MOST_ROWS: Final = 60
"""Maximum number of calls that the view shows."""


def run_view_of(read: KeptJournal) -> JSONObject:
    """Return the timeline of a run and its output."""
    machine = None if read.history is None else read.history.machine
    whole = timeline(read.trace, machine)
    output = None
    if machine is not None and machine.has_output:
        output = in_one_line(without_payloads(machine.output), 2000)

    return {
        "took": duration(whole.seconds),
        "calls": len(read.trace.bars),
        "ticks": list[JSON](whole.ticks),
        "rows": [_row(row) for row in whole.rows[:MOST_ROWS]],
        "more": max(0, whole.total - MOST_ROWS),
        "output": output,
    }


def run_view(store: Store, run_id: str, last: int) -> JSONObject:
    """Return the result of `run_view_of` for a run up to the event `last`. This function runs in a
    worker process.
    """
    return run_view_of(read_until(store, run_id, last))


def _row(row: Row) -> JSONObject:
    return {
        "number": row.number,
        "name": row.name,
        "module": row.module,
        "status": row.status,
        "left": row.left,
        "width": row.width,
        "asked": None if row.asked is None else list(row.asked),
        "waited": None if row.waited is None else list(row.waited),
        "took": duration(row.took),
        "why": in_one_line(row.error or row.why, 160),
    }
