"""What becomes of a run is decided by its facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ideabridge.bridge.runs.decision import (
    MOST_TAKEN_UP,
    ORPHANED,
    Block,
    EndRun,
    Enqueue,
    Facts,
    Follow,
    Interrupt,
    KeepWaiting,
    NextStep,
    NoteStatus,
    OpenRooms,
    Purpose,
    Serve,
    SetAside,
    Standing,
    StayAside,
    TakeUp,
    ToEnd,
    ToGoOn,
    ToTryAgain,
    WrittenStep,
    decide_next,
    is_set_aside,
)
from ideabridge.bridge.store.run_record import ENDED, Handover, RunRecord, StoredSummary

WAITING = ("needs_solution", "needs_approval")
STATUSES = ("running", "queued", "interrupted", *WAITING, *ENDED)
PURPOSES: tuple[Purpose, ...] = (ToGoOn(), ToTryAgain(), ToEnd("somebody ends it"))


def row(
    run_id: str,
    status: str,
    handover: Handover,
    parent: str | None = None,
    reason: str | None = None,
) -> RunRecord:
    return RunRecord(
        id=run_id,
        kind="plan",
        caller="local",
        title="",
        fingerprint="",
        parent=parent,
        status=status,
        summary=StoredSummary(reason=reason, handover=handover),
        driver=None,
        epoch=1,
        lease_until=0.0,
        created="",
        updated="",
        last_event=1,
    )


HANDOVERS = st.builds(
    Handover,
    needs=st.sampled_from((None, ("office",))),
    taken_up=st.sampled_from((None, *range(MOST_TAKEN_UP + 2))),
    events=st.sampled_from((None, 1, 2)),
    set_aside=st.booleans(),
)
REASONS = st.sampled_from((None, "it was set aside before"))
FAULTS = (None, "a tool has changed")
STANDINGS: tuple[Standing | None, ...] = (
    None,
    *(Standing("running", waits=False, fault=fault, events=n) for fault in FAULTS for n in (1, 2)),
    *(
        Standing(status, waits=True, fault=fault, events=1)
        for fault in FAULTS
        for status in WAITING
    ),
)
# A busy machine generates examples slowly.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
MOSTLY = st.sampled_from((True, True, True, False))


@st.composite
def found(draw: st.DrawFn) -> Facts:
    """Everything that can be found, also what no process would leave behind."""
    is_room = draw(st.booleans())
    root = row("run_1", draw(st.sampled_from(STATUSES)), draw(HANDOVERS), reason=draw(REASONS))
    record = root
    standing = draw(st.sampled_from(STANDINGS))
    if is_room:
        record = row("run_1.0", draw(st.sampled_from(STATUSES)), draw(HANDOVERS), parent="run_1")
        standing = standing and replace(standing, events=None)

    return Facts(
        record=record,
        root=root,
        purpose=draw(st.sampled_from(PURPOSES)),
        has_events=draw(MOSTLY),
        is_lost=not draw(MOSTLY),
        ended=draw(st.sampled_from((None, None, *ENDED))),
        is_orphan=is_room and not draw(MOSTLY),
        is_held=not draw(MOSTLY),
        drives=draw(st.booleans()),
        standing=standing,
    )


def kinds_that_fit(facts: Facts) -> list[type]:
    """The naive model: the whole condition of each outcome, in any order."""
    record = facts.record
    root = facts.root
    standing = facts.standing
    is_room = record.parent is not None
    at_end = facts.ended is not None
    can_be_read = not at_end and facts.has_events and not facts.is_lost
    must_end = can_be_read and (facts.is_orphan or isinstance(facts.purpose, ToEnd))
    insists = isinstance(facts.purpose, ToTryAgain)
    aside = root.status == "interrupted" and root.summary.handover.set_aside
    stays_aside = can_be_read and not must_end and aside and not insists
    lives = can_be_read and not must_end and not stays_aside
    free = lives and not facts.is_held
    waits = free and standing is not None and standing.waits
    works = free and standing is not None and not standing.waits
    fault = standing is not None and standing.fault is not None
    is_noted = standing is not None and standing.status == record.status
    queued = record.status == "queued" or root.status == "queued"
    comes_with_its_run = is_room and not facts.drives
    mine = works and not queued and not comes_with_its_run and not fault and facts.drives
    unchanged = standing is not None and record.summary.handover.events == standing.events
    hopeless = (
        unchanged
        and (record.summary.handover.taken_up or 0) >= MOST_TAKEN_UP
        and not (aside and insists)
        and not is_room
    )
    conditions = {
        Serve: (
            (at_end and (record.status == facts.ended or facts.is_held))
            or (not at_end and not can_be_read)
            or (must_end and facts.is_held)
            or (waits and not fault and not is_noted and queued)
            or (works and (queued or comes_with_its_run))
        ),
        NoteStatus: (
            (at_end and record.status != facts.ended and not facts.is_held)
            or (waits and not fault and not is_noted and not queued)
        ),
        EndRun: must_end and not facts.is_held,
        StayAside: stays_aside,
        Follow: lives and facts.is_held,
        OpenRooms: free and standing is None,
        Block: waits and fault,
        KeepWaiting: waits and not fault and is_noted,
        Interrupt: works and fault and not queued and not comes_with_its_run,
        Enqueue: works and not fault and not queued and not facts.drives and not is_room,
        SetAside: mine and hopeless,
        TakeUp: mine and not hopeless,
    }
    return [kind for kind, fits in conditions.items() if fits]


@PATIENT
@given(facts=found())
def test_each_outcome_has_a_condition_and_exactly_one_fits(facts: Facts) -> None:
    assert kinds_that_fit(facts) == [type(decide_next(facts))]
    assert decide_next(facts) == decide_next(replace(facts))


def test_the_model_knows_every_outcome() -> None:
    steps = set(get_args(NextStep))
    assert steps >= set(get_args(WrittenStep))
    assert {Serve, NoteStatus, EndRun, StayAside, Follow, OpenRooms, KeepWaiting, Block} <= steps
    assert steps == {
        *(Serve, StayAside, Follow, OpenRooms, KeepWaiting, Block),
        *(NoteStatus, EndRun, Interrupt, Enqueue, SetAside, TakeUp),
    }


@PATIENT
@given(facts=found())
def test_nothing_is_written_of_a_run_that_another_process_drives(facts: Facts) -> None:
    assert not isinstance(decide_next(replace(facts, is_held=True)), get_args(WrittenStep))


@PATIENT
@given(facts=found())
def test_nothing_goes_on_that_waits_has_ended_or_is_to_end(facts: Facts) -> None:
    step = decide_next(facts)
    if isinstance(step, TakeUp):
        assert facts.ended is None
        assert not isinstance(facts.purpose, ToEnd)
        assert not facts.is_orphan
        assert facts.standing is not None
        assert not facts.standing.waits
        assert facts.standing.fault is None


@PATIENT
@given(facts=found())
def test_a_process_takes_up_only_what_it_drives(facts: Facts) -> None:
    assert facts.drives or not isinstance(decide_next(facts), TakeUp)


def test_a_worker_has_one_attempt_at_a_run_that_a_person_wants_to_be_tried_again() -> None:
    spent = Handover(taken_up=MOST_TAKEN_UP, events=5, set_aside=True)
    aside = row("run_1", "interrupted", spent)
    queued = decide_next(replace(left_at_work(aside, 5, ToTryAgain()), drives=False))
    assert isinstance(queued, Enqueue)
    assert not queued.handover.set_aside

    handover = replace(queued.handover, needs=("office",))
    claimed = decide_next(left_at_work(row("run_1", "running", handover), 5, ToGoOn()))
    assert claimed == TakeUp(Handover(taken_up=MOST_TAKEN_UP, events=5))
    assert claimed == decide_next(left_at_work(aside, 5, ToTryAgain()))


@PATIENT
@given(facts=found())
def test_a_room_is_counted_and_queued_with_its_run_only(facts: Facts) -> None:
    step = decide_next(facts)
    if facts.record.parent is not None:
        assert not isinstance(step, Enqueue | SetAside)
        assert not isinstance(step, TakeUp) or step.handover is None


@PATIENT
@given(facts=found())
def test_what_ends_says_why(facts: Facts) -> None:
    step = decide_next(facts)
    if isinstance(step, EndRun):
        expected = ORPHANED if facts.is_orphan else "somebody ends it"
        assert step.reason == expected


def left_at_work(record: RunRecord, events: int, purpose: Purpose) -> Facts:
    """A run that was at work when its process died, as the next process finds it."""
    return Facts(
        record=record,
        root=record,
        purpose=purpose,
        has_events=True,
        is_lost=False,
        ended=None,
        is_orphan=False,
        is_held=False,
        drives=True,
        standing=Standing("running", waits=False, fault=None, events=events),
    )


@PATIENT
@given(
    lives=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from((ToGoOn(), ToGoOn(), ToTryAgain())),
            st.sampled_from((False, False, False, True)),
        ),
        max_size=30,
    )
)
def test_a_run_without_progress_is_taken_up_as_often_as_the_bound_says(
    lives: list[tuple[int, Purpose, bool]],
) -> None:
    """A process takes up the run, journals this many more events, and dies or is shut down."""
    record = row("run_1", "running", Handover())
    events = 1
    in_vain = 0
    for progress, purpose, is_shut_down in lives:
        was_aside = is_set_aside(record)
        step = decide_next(left_at_work(record, events, purpose))
        insists = isinstance(purpose, ToTryAgain)
        if was_aside and not insists:
            assert isinstance(step, StayAside)
            continue
        if in_vain == MOST_TAKEN_UP and not was_aside:
            assert isinstance(step, SetAside)
            assert step.times == MOST_TAKEN_UP
            assert step.handover == Handover(taken_up=MOST_TAKEN_UP, events=events, set_aside=True)
            summary = StoredSummary(reason="it is set aside", handover=step.handover)
            record = replace(record, status="interrupted", summary=summary)
            continue

        assert isinstance(step, TakeUp)
        assert step.handover is not None
        summary = StoredSummary(handover=step.handover)
        record = replace(record, status="running", summary=summary)
        # A person allows one more attempt.
        in_vain = MOST_TAKEN_UP if was_aside else in_vain + 1
        if progress:
            events += progress
            in_vain = 0

        if is_shut_down:
            # This is how `Runs.release` leaves the row.
            record = replace(record, summary=StoredSummary())
            in_vain = 0


@PATIENT
@given(events=st.integers(1, 3))
def test_a_run_that_was_handed_over_counts_as_taken_up_only_after_a_death(events: int) -> None:
    record = row("run_1", "running", Handover(needs=("office",)))
    step = decide_next(left_at_work(record, events, ToGoOn()))
    assert step == TakeUp(Handover(taken_up=0, events=events))
    assert isinstance(step, TakeUp)
    assert step.handover is not None
    died = replace(record, summary=StoredSummary(handover=step.handover))
    assert decide_next(left_at_work(died, events, ToGoOn())) == TakeUp(
        Handover(taken_up=1, events=events)
    )
