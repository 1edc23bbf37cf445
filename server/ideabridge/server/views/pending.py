"""Find the open decisions of all runs in their journals."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast

from ideabridge.bridge.driving.driver import is_left
from ideabridge.bridge.loop.effect import ExecutionKey, call_of_room
from ideabridge.bridge.loop.event import (
    AskedEvent,
    QuestionAsked,
    RunStarted,
    event_from_json,
    read_decider,
)
from ideabridge.bridge.loop.grant import Grant
from ideabridge.bridge.loop.policy import approval_timeout
from ideabridge.bridge.loop.question import Question
from ideabridge.bridge.loop.standing import StandingTool
from ideabridge.bridge.runs.people import questions
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import Viewer
from ideabridge.server.views.history import RunHistory, read_history
from ideabridge.server.views.shown import Room, ShownQuestion, content_of, show_question, sums_of
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Annotations, Tool

_WAITING: Final = ("needs_approval", "running", "queued", "needs_solution", "interrupted")
"""The statuses of runs that can have open decisions. While a decision is open, other calls can run,
or rooms can need solutions, so the run can have any of these statuses.
"""

_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Pending:
    """An open decision.

    Attributes:
        record: the run that asks or, if a room asks, the run that the room belongs to.
        approval: the id of the question in the run, prefixed with the room's name if a room asks.
        question: the question to decide.
        asked: when the question was asked, in seconds since 1970, or None if the journal does not
            say.
        deadline: when the question is refused if nobody has decided by then, or None if there is no
            time limit.
        at_work: whether a process is executing the run.
        grants: the grants that people have given for later calls of the run that asks.
        instances: the number of instances of the run that asks.
        server: how the server of the question's tool starts, as a start definition (see
            `start_definitions`), or "" if the journal does not contain it.
    """

    record: RunRecord
    approval: str
    question: Question
    asked: float | None
    deadline: float | None
    at_work: bool
    grants: tuple[Grant, ...] = ()
    instances: int = 0
    server: str = ""

    @property
    def key(self) -> str:
        """The key of the decision, in the form `RUN:APPROVAL`."""
        return f"{self.record.id}:{self.approval}"

    def shown(self, room: Room) -> ShownQuestion:
        """Return the question as shown in `room`."""
        content = content_of(self.question)
        sums = sums_of(self.question.kind, content, self.instances)
        return show_question(content, self.question.why, room, sums)

    def to_json(self) -> JSONObject:
        """Return the open decision as `approvals list --json` prints it."""
        asked = None
        if self.asked is not None:
            asked = datetime.fromtimestamp(self.asked, UTC).isoformat(timespec="seconds")

        seconds_left = None
        if self.deadline is not None:
            seconds_left = round(self.deadline - time.time(), 1)

        decision: JSONObject = {
            "run": self.record.id,
            "title": self.record.title,
            "caller": self.record.caller,
            "kind": self.question.kind,
            **self.question.to_json(),
            "approval": self.approval,
            "choices": list(self.question.choices),
            "asked": asked,
            "seconds_left": seconds_left,
            "at_work": self.at_work,
        }
        if self.grants:
            decision["grants"] = [grant.to_json() for grant in self.grants]
        return decision


@dataclass(frozen=True, slots=True)
class OpenQuestions:
    """The open questions of one journal. They contain no results of calls, so they are much smaller
    than the folded journal.

    Attributes:
        asked: each open question with the time at which it was asked; see `Pending.asked`.
        seconds: how long a question waits, in seconds, or None if there is no limit.
        grants, instances: see `Pending`.
        rooms: the executions that rooms are currently answering.
        servers: the start definition of each server, keyed by server; "" stands for the Python
            tools.
    """

    asked: tuple[tuple[Question, float | None], ...] = ()
    seconds: float | None = None
    grants: tuple[Grant, ...] = ()
    instances: int = 0
    rooms: frozenset[ExecutionKey] = frozenset()
    servers: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, history: RunHistory) -> OpenQuestions:
        """Return the open questions of a folded journal. There are none if it cannot be read or its
        run has ended.
        """
        machine = history.machine
        if history.broken or machine.ended:
            return cls()
        times = _asked(history)
        return cls(
            tuple((question, times.get(question.approval)) for question in questions(machine)),
            approval_timeout(machine.settings.approval),
            tuple(machine.grants),
            len(machine.instances),
            frozenset(machine.open_rooms),
            _servers(history),
        )

    def to_json(self) -> JSONObject:
        """Return the questions as JSON that another process can read with `from_json`."""
        asked: list[JSON] = [[_question_to_json(question), at] for question, at in self.asked]
        return {
            "asked": asked,
            "seconds": self.seconds,
            "grants": [_grant_to_json(grant) for grant in self.grants],
            "instances": self.instances,
            "rooms": [list[JSON](room) for room in self.rooms],
            "servers": {**self.servers},
        }

    @classmethod
    def from_json(cls, value: JSON) -> OpenQuestions:
        """Read questions written by `to_json`."""
        stored = cast("dict[str, Any]", value)
        return cls(
            tuple((_question_from_json(question), at) for question, at in stored["asked"]),
            stored["seconds"],
            tuple(_grant_from_json(grant) for grant in stored["grants"]),
            stored["instances"],
            frozenset((call, item) for call, item in stored["rooms"]),
            stored["servers"],
        )

    def pending(self, root: RunRecord, prefix: str) -> Iterator[Pending]:
        """Yield the questions as open decisions of `root`, the run that the journal belongs to. The
        ids of their approvals begin with `prefix`.
        """
        at_work = root.status == "running" and not is_left(root)
        for question, asked_at in self.asked:
            deadline = None
            if self.seconds is not None and asked_at is not None:
                deadline = asked_at + self.seconds
            approval = f"{prefix}{question.approval}"
            server = ""
            if question.tool is not None:
                server = self.servers.get(question.tool.module or "", "")
            yield Pending(
                root,
                approval,
                question,
                asked_at,
                deadline,
                at_work,
                self.grants,
                self.instances,
                server,
            )

    def open_rooms(
        self, store: Store, record: RunRecord, prefix: str
    ) -> Iterator[tuple[RunRecord, str]]:
        """Yield each open room of the run `record`, with the prefix for the ids of its
        approvals.
        """
        if not self.rooms:
            return
        for room in store.runs.rooms(record.id):
            if call_of_room(room.id) in self.rooms:
                yield room, f"{prefix}{room.id.rpartition('.')[2]}/"


def pending(store: Store, chosen: RunRecord | None = None, *, caller: Viewer) -> Iterator[Pending]:
    """Yield the open decisions in the journals, newest run first. Each journal is folded when it is
    read.

    Args:
        store: the store of the journals.
        chosen: the run or room whose decisions to yield, or None for the decisions of all runs.
        caller: the caller who looks up the runs. This function does not check whether the caller is
            allowed to see a chosen run.
    """
    roots = waiting_runs(store, caller) if chosen is None else [root_of(store, chosen)]
    for root in roots:
        yield from _of_run(store, root, root, "")


def waiting_runs(store: Store, caller: Viewer) -> Iterator[RunRecord]:
    """Yield a caller's runs, except rooms, that might have open decisions, newest first."""
    after: str | None = None
    while True:
        page = store.runs.newest(caller, _WAITING, limit=_PAGE, after=after, rooms=False)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].id


def root_of(store: Store, record: RunRecord) -> RunRecord:
    """Return the run that a room belongs to, or the run itself if it is not a room."""
    while record.parent is not None and (parent := store.runs.get(record.parent)) is not None:
        record = parent
    return record


def _of_run(store: Store, record: RunRecord, root: RunRecord, prefix: str) -> Iterator[Pending]:
    open_questions = OpenQuestions.of(read_history(list(store.runs.events(record.id)), {}))
    yield from open_questions.pending(root, prefix)
    for room, beginning in open_questions.open_rooms(store, record, prefix):
        yield from _of_run(store, room, root, beginning)


def _servers(history: RunHistory) -> dict[str, str]:
    """Return the start definitions that a run began with; see `RunStarted.bound`."""
    begun = history.entries[0].event if history.entries else None
    if not isinstance(begun, RunStarted) or begun.bound is None:
        return {}
    return {name: value for name, value in begun.bound.items() if isinstance(value, str)}


def _asked(history: RunHistory) -> dict[str, float]:
    """Return the time of each question, keyed by approval id."""
    times: dict[str, float] = {}
    for entry in history.entries:
        event = entry.event
        if isinstance(event, AskedEvent) and event.at is not None:
            times[event.approval] = event.at
    return times


def _question_to_json(question: Question) -> JSONObject:
    return {
        "kind": question.kind,
        "approval": question.approval,
        "digest": question.digest,
        "shown": question.shown,
        "why": question.why,
        "call": question.call,
        "item": question.item,
        "tool": _tool_to_json(question.tool),
        "asked": None if question.asked is None else question.asked.to_json(),
        "assumed": list[JSON](question.assumed),
        "hints": question.hints.to_json(),
        "standing": None if question.standing is None else dataclasses.asdict(question.standing),
    }


def _question_from_json(stored: dict[str, Any]) -> Question:
    asked = None if stored["asked"] is None else event_from_json(stored["asked"])
    return Question(
        kind=stored["kind"],
        approval=stored["approval"],
        digest=stored["digest"],
        shown=stored["shown"],
        why=stored["why"],
        call=stored["call"],
        item=stored["item"],
        tool=None if stored["tool"] is None else Tool.from_json(stored["tool"]),
        asked=asked if isinstance(asked, QuestionAsked) else None,
        assumed=tuple(stored["assumed"]),
        hints=Annotations.from_json(stored["hints"]),
        standing=None if stored["standing"] is None else StandingTool(**stored["standing"]),
    )


def _grant_to_json(grant: Grant) -> JSONObject:
    return {
        "call": grant.call,
        "tool": _tool_to_json(grant.tool),
        "activity": grant.activity,
        "by": grant.by.to_json(),
        "most": grant.most,
        "where": None if grant.where is None else grant.where.schema,
        "used": grant.used,
    }


def _grant_from_json(stored: dict[str, Any]) -> Grant:
    where = None
    if stored["where"] is not None:
        where = Validator(stored["where"], what="the parameters")

    return Grant(
        stored["call"],
        Tool.from_json(stored["tool"]),
        stored["activity"],
        read_decider(stored["by"]),
        stored["most"],
        where,
        stored["used"],
    )


def _tool_to_json(tool: Tool | None) -> JSONObject | None:
    if tool is None:
        return None
    definition: JSONObject = {**tool.to_json(), "wire": tool.wire}
    if tool.reaches is not None:
        definition["reaches"] = list[JSON](tool.reaches)
    return definition
