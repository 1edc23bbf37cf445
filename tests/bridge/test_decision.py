"""What becomes of a run is decided by its facts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
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


# Counts around the bound, of the same journal as now (one event) and of a shorter one.
HANDOVERS = (
    Handover(),
    Handover(needs=("office",)),
    Handover(needs=("office",), taken_up=0, events=1),
    *(
        Handover(taken_up=count, events=events, set_aside=is_aside)
        for count in range(MOST_TAKEN_UP + 2)
        for events in (1, 2)
        for is_aside in (False, True)
    ),
)
REASONS = (None, "it was set aside before")
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
ENDS = (None, "done", "failed")
BOTH = (False, True)
# A busy machine generates examples slowly.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def facts_of(
    record: RunRecord,
    root: RunRecord,
    purpose: Purpose,
    *,
    is_held: bool,
    drives: bool,
    is_orphan: bool = False,
    standing: Standing | None = None,
) -> Facts:
    """What is found of a run whose journal can be read, and has not ended."""
    return Facts(
        record=record,
        root=root,
        purpose=purpose,
        has_events=True,
        is_lost=False,
        ended=None,
        is_orphan=is_orphan,
        is_held=is_held,
        drives=drives,
        standing=standing,
    )


def facts_of_runs() -> Iterator[Facts]:
    """Everything that a process can find of a run, and what no process would leave behind."""
    rows = [
        row("run_1", status, handover, reason=reason)
        for status in STATUSES
        for handover in HANDOVERS
        for reason in REASONS
        if reason is None or handover.set_aside
    ]
    for record, purpose, held, drives in product(rows, PURPOSES, BOTH, BOTH):
        facts = facts_of(record, record, purpose, is_held=held, drives=drives)
        for standing in STANDINGS:
            yield replace(facts, standing=standing)


def facts_of_rooms() -> Iterator[Facts]:
    """The same of a room. Its own row has no count."""
    roots = [
        row("run_1", status, Handover(taken_up=2, events=1, set_aside=is_aside), reason=reason)
        for status in ("running", "queued", "interrupted", "done")
        for is_aside in BOTH
        for reason in REASONS
    ]
    rooms = [row("run_1.0", status, Handover(), parent="run_1") for status in STATUSES]
    for root, record, purpose in product(roots, rooms, PURPOSES):
        for orphan, held, drives in product(BOTH, BOTH, BOTH):
            facts = facts_of(record, root, purpose, is_held=held, drives=drives, is_orphan=orphan)
            # A room does not count the events of its run.
            for standing in STANDINGS:
                if standing is None or standing.events == 1:
                    yield replace(facts, standing=standing and replace(standing, events=None))


def facts_of_journals() -> Iterator[Facts]:
    """Runs and rooms whose journal has ended, is empty, or cannot be composed here."""
    root = row("run_1", "running", Handover())
    for status, is_room, purpose in product(STATUSES, BOTH, PURPOSES):
        record = row("run_1.0" if is_room else "run_1", status, Handover())
        if is_room:
            record = replace(record, parent="run_1")
        for has_events, lost, ended in product(BOTH, BOTH, ENDS):
            for orphan, held, drives in product({False, is_room}, BOTH, BOTH):
                yield Facts(
                    record=record,
                    root=root if is_room else record,
                    purpose=purpose,
                    has_events=has_events,
                    is_lost=lost,
                    ended=ended,
                    is_orphan=orphan,
                    is_held=held,
                    drives=drives,
                    standing=Standing("running", waits=False, fault=None, events=1),
                )


@pytest.fixture(scope="module")
def all_facts() -> list[Facts]:
    return [*facts_of_runs(), *facts_of_rooms(), *facts_of_journals()]


def steps_that_fit(facts: Facts) -> list[NextStep]:
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
    fault = None if standing is None else standing.fault
    events = None if standing is None else standing.events
    is_noted = standing is not None and standing.status == record.status
    queued = record.status == "queued" or root.status == "queued"
    comes_with_its_run = is_room and not facts.drives
    mine = works and not queued and not comes_with_its_run and fault is None and facts.drives
    handover = record.summary.handover
    times = handover.taken_up or 0
    is_extra = aside and insists
    hopeless = handover.events == events and times >= MOST_TAKEN_UP and not is_extra and not is_room
    conditions = (
        (
            Serve(),
            (at_end and (record.status == facts.ended or facts.is_held))
            or (not at_end and not can_be_read)
            or (must_end and facts.is_held)
            or (waits and fault is None and not is_noted and queued)
            or (works and (queued or comes_with_its_run)),
        ),
        (
            NoteStatus(),
            (at_end and record.status != facts.ended and not facts.is_held)
            or (waits and fault is None and not is_noted and not queued),
        ),
        (EndRun(ORPHANED), must_end and not facts.is_held and facts.is_orphan),
        (EndRun("somebody ends it"), must_end and not facts.is_held and not facts.is_orphan),
        (StayAside("it was set aside before"), stays_aside and root.summary.reason is not None),
        (StayAside("it is set aside"), stays_aside and root.summary.reason is None),
        (Follow(), lives and facts.is_held),
        (OpenRooms(), free and standing is None),
        (Block("a tool has changed"), waits and fault is not None),
        (KeepWaiting(), waits and fault is None and is_noted),
        (
            Interrupt("a tool has changed"),
            works and fault is not None and not queued and not comes_with_its_run,
        ),
        (
            Enqueue(Handover(taken_up=MOST_TAKEN_UP - 1, events=events) if is_extra else handover),
            works and fault is None and not queued and not facts.drives and not is_room,
        ),
        (
            SetAside(Handover(taken_up=times, events=events, set_aside=True), times),
            mine and hopeless,
        ),
        (TakeUp(None), mine and is_room),
        (
            TakeUp(Handover(taken_up=attempts_of(handover, events, is_extra), events=events)),
            mine and not hopeless and not is_room,
        ),
    )
    return [step for step, fits in conditions if fits]


def attempts_of(handover: Handover, events: int | None, is_extra: bool) -> int:
    """How often a run has been taken up without progress, once it is taken up again."""
    if is_extra:
        return MOST_TAKEN_UP
    if handover.needs is not None and handover.taken_up is None:
        return 0
    if handover.events != events:
        return 1
    return (handover.taken_up or 0) + 1


def test_each_outcome_has_a_condition_and_exactly_one_fits(all_facts: list[Facts]) -> None:
    outcomes: Counter[type] = Counter()
    for facts in all_facts:
        step = decide_next(facts)
        assert [step] == steps_that_fit(facts), facts
        outcomes[type(step)] += 1

    assert set(outcomes) == set(get_args(NextStep))


def test_the_model_knows_every_outcome() -> None:
    steps = set(get_args(NextStep))
    assert steps >= set(get_args(WrittenStep))
    assert {Serve, NoteStatus, EndRun, StayAside, Follow, OpenRooms, KeepWaiting, Block} <= steps
    assert steps == {
        *(Serve, StayAside, Follow, OpenRooms, KeepWaiting, Block),
        *(NoteStatus, EndRun, Interrupt, Enqueue, SetAside, TakeUp),
    }


def test_nothing_is_written_of_a_run_that_another_process_drives(all_facts: list[Facts]) -> None:
    for facts in all_facts:
        if facts.is_held:
            assert not isinstance(decide_next(facts), get_args(WrittenStep)), facts


def test_a_process_takes_up_only_what_it_drives_and_what_can_continue(
    all_facts: list[Facts],
) -> None:
    for facts in all_facts:
        if isinstance(decide_next(facts), TakeUp):
            assert facts.drives
            assert facts.ended is None
            assert not isinstance(facts.purpose, ToEnd)
            assert not facts.is_orphan
            assert facts.standing is not None
            assert not facts.standing.waits
            assert facts.standing.fault is None


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


def test_a_room_is_counted_and_queued_with_its_run_only(all_facts: list[Facts]) -> None:
    for facts in all_facts:
        if facts.record.parent is not None:
            step = decide_next(facts)
            assert not isinstance(step, Enqueue | SetAside)
            assert not isinstance(step, TakeUp) or step.handover is None


def left_at_work(record: RunRecord, events: int, purpose: Purpose) -> Facts:
    """A run that was at work when its process died, as the next process finds it."""
    standing = Standing("running", waits=False, fault=None, events=events)
    return facts_of(record, record, purpose, is_held=False, drives=True, standing=standing)


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
