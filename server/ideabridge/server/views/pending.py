"""Pending: the open decisions of all runs, as their journals record them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ideabridge.bridge.driving.driver import is_left
from ideabridge.bridge.loop.effect import call_of_room
from ideabridge.bridge.loop.event import ApprovalAsked, OutcomeAsked, PlanAsked, QuestionAsked
from ideabridge.bridge.loop.grant import Grant
from ideabridge.bridge.loop.policy import approval_timeout
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.runs.people import questions
from ideabridge.bridge.store.idea import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import Viewer
from ideabridge.server.views.history import RunHistory, read_history
from ideabridge.server.views.shown import Room, ShownQuestion, content_of, show_question, sums_of
from ideabridge.tools.encoding import JSONObject

_WAITING: Final = ("needs_approval", "running", "queued", "needs_solution", "interrupted")
"""The statuses of runs that may have open decisions. Beside them, other calls may run, or rooms need solutions."""

_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Pending:
    """One open decision.

    Attributes:
        record: the run; for a room, the run that it belongs to.
        approval: the id in the run; for a room, after the room's name.
        question: the question.
        asked: the time of the question in seconds since 1970; None if the journal has no time.
        deadline: the time of the refusal if nobody has decided; None: never.
        at_work: true while a process executes the run.
        grants: what people have allowed for the rest of the run that asks.
        instances: the instances of the run that asks; 0: it has none.
    """

    record: RunRecord
    approval: str
    question: Question
    asked: float | None
    deadline: float | None
    at_work: bool
    grants: tuple[Grant, ...] = ()
    instances: int = 0

    @property
    def key(self) -> str:
        """`RUN:APPROVAL`."""
        return f"{self.record.id}:{self.approval}"

    def shown(self, room: Room) -> ShownQuestion:
        """The question as a place shows it."""
        content = content_of(self.question)
        sums = sums_of(self.question.kind, content, self.instances)
        return show_question(content, self.question.why, room, sums)

    def to_json(self) -> JSONObject:
        """The decision as `approvals list --json` prints it."""
        when = None if self.asked is None else datetime.fromtimestamp(self.asked, UTC).isoformat(timespec="seconds")
        left = None if self.deadline is None else round(self.deadline - time.time(), 1)
        return {
            "run": self.record.id,
            "title": self.record.title,
            "caller": self.record.caller,
            "kind": self.question.kind,
            **self.question.to_json(),
            "approval": self.approval,
            "choices": list(self.question.choices),
            "asked": when,
            "seconds_left": left,
            "at_work": self.at_work,
            **({"grants": [one.to_json() for one in self.grants]} if self.grants else {}),
        }


def pending(
    store: Store, chosen: RunRecord | None = None, *, caller: Viewer, history: RunHistory | None = None
) -> Iterator[Pending]:
    """The open decisions in the journals, those of the newest run first.

    Args:
        store: has the journals.
        chosen: only the decisions of this run, or of the run that this room belongs to.
        caller: whose runs; of a chosen run, who has found it.
        history: the folded journal of the chosen run, if it is known.
    """
    if chosen is not None:
        while chosen.parent is not None and (parent := store.runs.get(chosen.parent)) is not None:
            chosen = parent
        yield from _of_run(store, chosen, chosen, "", history)
        return
    after: str | None = None
    while True:
        page = store.runs.newest(caller, _WAITING, limit=_PAGE, after=after, rooms=False)
        for record in page:
            yield from _of_run(store, record, record, "")
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _of_run(
    store: Store, record: RunRecord, root: RunRecord, prefix: str, known: RunHistory | None = None
) -> Iterator[Pending]:

    history = known or read_history(list(store.runs.events(record.id)), {})
    machine = history.machine
    if history.broken or machine.ended:
        return
    asked = _asked(history)
    seconds = approval_timeout(machine.settings.approval)
    at_work = root.status == "running" and not is_left(root)
    for question in questions(machine):
        since = asked.get(question.approval)
        deadline = None if seconds is None or since is None else since + seconds
        grants = tuple(machine.grants)
        approval, instances = f"{prefix}{question.approval}", len(machine.instances)
        yield Pending(root, approval, question, since, deadline, at_work, grants, instances)
    for room in store.runs.rooms(record.id):
        if call_of_room(room.id) in machine.open_rooms:
            yield from _of_run(store, room, root, f"{prefix}{room.id.rpartition('.')[2]}/")


def _asked(history: RunHistory) -> dict[str, float]:
    """The time of each question, by its approval id."""
    times: dict[str, float] = {}
    for entry in history.entries:
        event = entry.event
        if isinstance(event, ApprovalAsked | OutcomeAsked | PlanAsked | QuestionAsked) and event.at is not None:
            times[event.approval] = event.at
    return times
