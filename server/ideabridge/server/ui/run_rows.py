"""Collect the data that a list shows about each run, without reading the values in the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ideabridge.bridge import Bridge
from ideabridge.bridge.context.failure import CallFailure, graver
from ideabridge.bridge.store.journal import OUTLINED, CallMark
from ideabridge.bridge.store.run_record import ENDED, RunRecord
from ideabridge.server.ui.access import Visitor
from ideabridge.server.ui.askers import AskingProgram
from ideabridge.server.ui.call_dots import CallDots, call_dots
from ideabridge.server.ui.distinctions import Distinction, Distinctions
from ideabridge.server.views.records import CallOutcomes, shown_outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """A row in the list of runs.

    Attributes:
        seconds: the duration of the run, or None if the run has not ended.
        asker: the program that asked for the run, or the host that the run was imported from, or
            None if both are unknown.
        dots: the outcomes of the run's first calls, or None if no call has begun.
        distinction: the value that distinguishes the run from others with the same title, or None.
        calls: how many of the run's calls ended and how many have no result, or None if the run has
            too many events to count them.
    """

    record: RunRecord
    status: str
    reason: str | None
    errors: int
    seconds: float | None
    asker: AskingProgram | None
    dots: CallDots | None
    distinction: Distinction | None
    calls: CallOutcomes | None


class RunRows:
    """Creates the rows for a list of runs.

    Attributes:
        distinctions: finds the values that distinguish runs with the same title, and caches the
            values that it has read.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.distinctions = Distinctions(bridge.store)

    def of(self, records: Sequence[RunRecord], others: Sequence[RunRecord] = ()) -> list[RunRow]:
        """Return the rows for runs, in the same order. Call this method in a thread, because it
        reads the store.

        Args:
            records: the runs.
            others: runs that the visitor sees in another list. A run is also distinguished from
                these, so that it has the same name in both lists.
        """
        outlines = self._bridge.store.runs.outlines([record.id for record in records])
        seen = {record.id: record for record in (*records, *others)}
        distinctions = self.distinctions.of(seen.values())
        rows: list[RunRow] = []
        for record in records:
            distinction = distinctions.get(record.id)
            rows.append(_row(record, outlines[record.id], distinction))
        return rows

    def tool_of(self, record: RunRecord, visitor: Visitor) -> str:
        """Return the published tool that a run is a call of, or "" if the run's title names no tool
        that the visitor can see.
        """
        title = record.title
        if not title.isidentifier():
            return ""
        is_published = self._bridge.store.publications.find(title, None, visitor.scope) is not None
        return title if is_published else ""


def _row(record: RunRecord, marks: list[CallMark], distinction: Distinction | None) -> RunRow:
    status, reason = shown_outcome(record)
    has_ended = status in ENDED or status == "interrupted"
    # The marks do not cover all events of a long run, so its calls cannot be counted.
    is_cut = record.last_event > OUTLINED
    not_run = record.summary.not_run
    return RunRow(
        record=record,
        status=status,
        reason=reason,
        errors=record.summary.errors,
        seconds=run_seconds(record),
        asker=AskingProgram.of_run(record),
        dots=call_dots(marks, not_run, has_ended=has_ended, is_cut=is_cut),
        distinction=distinction,
        calls=None if is_cut else _outcomes(marks, not_run),
    )


def run_seconds(record: RunRecord) -> float | None:
    """Return the duration of a run, or None if the run has not ended."""
    if shown_outcome(record)[0] not in ENDED:
        return None
    end = _seconds(record.summary.origin.ended or record.updated)
    return end - _seconds(record.created)


def _seconds(moment: str) -> float:
    """Convert an ISO 8601 time to seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp()


def _outcomes(marks: list[CallMark], not_run: int) -> CallOutcomes:
    """Return how many of a run's calls ended and how many have no result."""
    failures: dict[int, CallFailure | None] = {}
    for mark in marks:
        if mark.event == "call_finished" or mark.failure is not None:
            failures[mark.call] = graver(failures.get(mark.call), mark.failure)

    return CallOutcomes.of(failures.values(), not_run)
