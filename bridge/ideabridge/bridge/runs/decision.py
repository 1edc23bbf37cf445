"""Choose what happens to a run that someone requests or that a process finds in the store.

A caller looks a run up, a person resumes or ends it, a worker claims it, or a sweep of `Recovery`
finds it. Each time, `Registry.hand_off` collects the `Facts` from the run's journal, calls
`decide_next`, and performs the outcome. The rooms of the run follow in the same way. `decide_next`
is pure: it has no store, no clock and no task. A new run needs no decision: its process drives it
(`Runs.create`) or queues it for a worker (`Run.hand_over`).

The facts can be out of date by the time the outcome is performed. So each outcome that writes takes
the lease of the run in the same transaction. If another process has already taken the lease, the
run is served as it is. If the journal has grown, it is read again, and a new decision is made.

The first matching row is the decision:

    | what is found                                              | outcome                       |
    |------------------------------------------------------------|-------------------------------|
    | the journal has no event, or cannot be composed here       | `Serve`                       |
    | the run has ended:                                         |                               |
    |   and its row says so, or another process still drives it  | `Serve`                       |
    |   otherwise                                                | `NoteStatus`                  |
    | its call ended without it, or someone wants it to end:     |                               |
    |   and another process drives it                            | `Serve`: that process ends it |
    |   otherwise                                                | `EndRun`                      |
    | it was set aside, and no person wants another attempt      | `StayAside`                   |
    | another process drives it                                  | `Follow`                      |
    | its rooms have not been opened                             | `OpenRooms`, and decide again |
    | it waits for someone:                                      |                               |
    |   and could not continue here                              | `Block`                       |
    |   and its row says so                                      | `KeepWaiting`                 |
    |   and it is queued                                         | `Serve`: a worker takes it    |
    |   otherwise                                                | `NoteStatus`                  |
    | it was active:                                             |                               |
    |   and it is queued                                         | `Serve`: a worker takes it    |
    |   and it is a room of a run that a worker should drive     | `Serve`: that worker takes it |
    |   and it cannot continue here                              | `Interrupt`                   |
    |   and this process leaves it to workers                    | `Enqueue`                     |
    |   and its last attempts made no progress                   | `SetAside`                    |
    |   otherwise                                                | `TakeUp`                      |

A run is active until its journal says that it has ended or is waiting. A run whose process died
therefore still counts as active: nobody holds its lease, and the first process that asks for the
run decides as above.

`MOST_TAKEN_UP` limits how often a run that crashes its processes is taken up. The row counts how
often it was taken up since the journals of the run and its rooms last grew. A process that shuts
down resets the counts of its runs to 0 (`Runs.release`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from ideabridge.bridge.store.queue import QUEUED
from ideabridge.bridge.store.run_record import Handover, RunRecord

MOST_TAKEN_UP: Final = 2
"""The maximum number of times that a run is taken up without progress. After that, the run is set
aside until a person asks for it.
"""

ORPHANED: Final = "the run of this room has ended, or the call that this room answers was cancelled"
"""The recorded reason for ending a room whose call has ended."""


def is_set_aside(record: RunRecord) -> bool:
    """Return whether a run has been set aside after repeated attempts without progress. Such a run
    is taken up only when a person asks for it.
    """
    return record.status == "interrupted" and record.summary.handover.set_aside


# -- requests about a run --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToGoOn:
    """The usual purpose: the run should be returned to the caller who asks for it, and continue if
    it can.
    """


@dataclass(frozen=True, slots=True)
class ToTryAgain:
    """A person wants another attempt at the run, or at the run that a room belongs to, even if it
    was set aside.
    """


@dataclass(frozen=True, slots=True)
class ToEnd:
    """The run should end without being continued first.

    Attributes:
        reason: why the run should end.
    """

    reason: str


Purpose: TypeAlias = ToGoOn | ToTryAgain | ToEnd
"""What someone wants to happen to a run."""

GO_ON: Final = ToGoOn()
"""The usual purpose."""


# -- facts about a run -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a run that has not ended, known once its rooms are open.

    Attributes:
        status: the status of the run with its rooms; see `RunStatus`.
        waits: True if the run is waiting for someone and nothing was active at the end of its
            journal.
        fault: why the run cannot continue in this process, or None if it can.
        events: the number of events in the journals of the run and its rooms, or None for a room.
    """

    status: str
    waits: bool
    fault: str | None
    events: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a process knows about a run after reading its journal.

    Attributes:
        record: the run's row in the store.
        root: the row of the outermost run that the room belongs to, or the run's own row if it is
            not a room.
        purpose: what someone wants to happen to the run.
        has_events: True if the run's journal contains an event.
        is_lost: True if the run's Request cannot be composed because a message handler fails in
            this process.
        ended: the final status in the run's journal, or None if the run has not ended.
        is_orphan: True for a room whose call ended before the room did.
        is_held: True if a different process, which might be alive, holds the run's lease.
        drives: True if this process performs the effects of the run, because it has the role
            `alone` or is a worker that has claimed the run.
        standing: the state of the run, or None until its rooms are opened.
    """

    record: RunRecord
    root: RunRecord
    purpose: Purpose
    has_events: bool
    is_lost: bool
    ended: str | None
    is_orphan: bool
    is_held: bool
    drives: bool
    standing: Standing | None = None

    @property
    def is_room(self) -> bool:
        """Whether the run answers a call from another run."""
        return self.record.parent is not None

    @property
    def is_queued(self) -> bool:
        """Whether the run, or the run that it belongs to, is waiting for a worker."""
        return QUEUED in (self.record.status, self.root.status)

    @property
    def is_tried_again(self) -> bool:
        """Whether a person wants another attempt at a run that was set aside. Rooms are set aside
        and tried again together with their run.
        """
        return isinstance(self.purpose, ToTryAgain) and is_set_aside(self.root)


# -- the next step of a run ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Serve:
    """Return the run as its journal describes it."""


@dataclass(frozen=True, slots=True)
class NoteStatus:
    """Copy the status from the journal to the row, because the process that should have done so has
    died.
    """


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run without continuing it first.

    Attributes:
        reason: why the run ends.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class StayAside:
    """Leave a run as it is, because it is set aside, and report why it does not continue.

    Attributes:
        reason: why the run was set aside.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Return the run and its open rooms as their journals describe them, because another process
    drives them.
    """


@dataclass(frozen=True, slots=True)
class OpenRooms:
    """Open the rooms of the run, and decide again."""


@dataclass(frozen=True, slots=True)
class KeepWaiting:
    """Return a waiting run, after refusing its expired questions."""


@dataclass(frozen=True, slots=True)
class Block:
    """Return a waiting run that could not continue in this process.

    Nothing is written to the store, because a different process might be able to continue the run.

    Attributes:
        fault: why the run cannot continue.
    """

    fault: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Write into the row that the run cannot continue in this process, and journal the unknown
    outcomes.

    Attributes:
        fault: why the run cannot continue.
    """

    fault: str


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Queue a run that its process left behind, so that a worker continues it.

    Attributes:
        handover: the handover for the run's row. The needs of the run are added later.
    """

    handover: Handover


@dataclass(frozen=True, slots=True)
class SetAside:
    """Do not take up the run until a person asks for it.

    Attributes:
        handover: the handover for the run's row.
        times: how often the run was taken up without progress.
    """

    handover: Handover
    times: int


@dataclass(frozen=True, slots=True)
class TakeUp:
    """Continue the run in this process.

    Attributes:
        handover: the handover for the run's row, which counts how often the run was taken up. None
            for a room.
    """

    handover: Handover | None


WrittenStep: TypeAlias = NoteStatus | EndRun | Interrupt | Enqueue | SetAside | TakeUp
"""The outcomes that write, under the lease of the run."""

NextStep: TypeAlias = Serve | StayAside | Follow | OpenRooms | KeepWaiting | Block | WrittenStep
"""The next step of a run; see the table above."""


def decide_next(facts: Facts) -> NextStep:
    """Decide what happens to a run; see the table above."""
    if facts.ended is not None:
        is_noted = facts.record.status == facts.ended
        return Serve() if is_noted or facts.is_held else NoteStatus()
    if facts.is_lost or not facts.has_events:
        return Serve()

    end = _reason_to_end(facts)
    if end is not None:
        return Serve() if facts.is_held else EndRun(end)

    if is_set_aside(facts.root) and not facts.is_tried_again:
        return StayAside(facts.root.summary.reason or "it is set aside")
    if facts.is_held:
        return Follow()
    if facts.standing is None:
        return OpenRooms()
    if facts.standing.waits:
        return _decide_waiting(facts, facts.standing)
    return _decide_at_work(facts, facts.standing)


def _reason_to_end(facts: Facts) -> str | None:
    if facts.is_orphan:
        return ORPHANED
    if isinstance(facts.purpose, ToEnd):
        return facts.purpose.reason
    return None


def _decide_waiting(facts: Facts, standing: Standing) -> NextStep:
    if standing.fault is not None:
        return Block(standing.fault)
    if standing.status == facts.record.status:
        return KeepWaiting()
    if facts.is_queued:
        return Serve()
    return NoteStatus()


def _decide_at_work(facts: Facts, standing: Standing) -> NextStep:
    if facts.is_queued or (facts.is_room and not facts.drives):
        return Serve()
    if standing.fault is not None:
        return Interrupt(standing.fault)

    before = facts.record.summary.handover
    if facts.is_tried_again:
        # Set the count so that the run gets one more attempt.
        before = Handover(taken_up=MOST_TAKEN_UP - 1, events=standing.events)

    if not facts.drives:
        return Enqueue(before)
    if facts.is_room:
        return TakeUp(None)
    return _counted(before, standing)


def _counted(before: Handover, standing: Standing) -> TakeUp | SetAside:
    """Take up a run and count the attempt, or set the run aside. `before` is the run's current
    handover.
    """
    times = 0
    if before.events == standing.events:
        times = before.taken_up or 0

    if times >= MOST_TAKEN_UP:
        return SetAside(Handover(taken_up=times, events=standing.events, set_aside=True), times)

    # The process that queued the run handed it over on purpose, so do not count this as a failed
    # attempt.
    was_handed_over = before.needs is not None and before.taken_up is None
    taken_up = 0 if was_handed_over else times + 1
    return TakeUp(Handover(taken_up=taken_up, events=standing.events))
