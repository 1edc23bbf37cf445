"""Runs: leases and fencing, the journal, transactions."""

import dataclasses
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.context.failure import NO_OUTPUT
from ideabridge.bridge.store.errors import (
    RunExistsError,
    StaleDriverError,
    UnknownIdeaError,
    UnknownRunError,
)
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.journal import OUTLINED, CallMark, RunSource
from ideabridge.bridge.store.run_filter import Outcome, RunFilter
from ideabridge.bridge.store.run_record import Handover, RunOrigin, StoredSummary
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.tool_memory import ApprovedCall
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.views.records import listed_runs
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import InvalidJSONError
from ideabridge.tools.typed import read_as
from tests.ideas.values import VALUES, idea_of, said

FIELD_VALUES: dict[str, Any] = {
    "bool": True,
    "int": 3,
    "int | None": 3,
    "str | None": "text",
    "tuple[str, ...] | None": ("first", "second"),
    "RunOrigin": read_as(RunOrigin, {"host": "codex", "unknown": [1, None, {"inner": "text"}]}),
}
"""A value of each type that a field of a summary has. None of them is a default."""


SUMMARY_FIELDS = [
    *(field for field in dataclasses.fields(StoredSummary) if field.name != "handover"),
    *dataclasses.fields(Handover),
]


@pytest.mark.parametrize("field", SUMMARY_FIELDS, ids=lambda field: field.name)
def test_each_field_of_a_summary_is_stored(store: Store, field: dataclasses.Field[Any]) -> None:
    members: dict[str, Any] = {field.name: FIELD_VALUES[str(field.type)]}
    if field in dataclasses.fields(Handover):
        summary = StoredSummary(handover=Handover(**members))
    else:
        summary = StoredSummary(**members)

    assert summary != StoredSummary()
    assert list(summary.to_json()) == [field.name]
    assert StoredSummary.from_json(summary.to_json()) == summary

    store.runs.set_status("run", begin(store), "done", summary)
    record = store.runs.get("run")
    assert record is not None
    assert record.summary == summary


def begin(store: Store, run: str = "run", caller: str = "me") -> int:
    store.runs.create(run, kind="plan", caller=caller, title="a run", fingerprint="f")
    epoch = store.leases.acquire(run, "driver", 30, 1000.0)
    assert epoch is not None
    return epoch


def test_events_are_numbered_and_come_back_in_order(store: Store) -> None:
    epoch = begin(store)
    other = begin(store, "other")
    assert store.runs.append("run", epoch, [{"n": 1}]) == 1
    assert store.runs.append("other", other, [{"o": 1}]) == 1
    assert store.runs.append("run", epoch, [{"n": 2}, {"n": 3}]) == 3
    assert store.runs.append("run", epoch, []) == 3
    assert list(store.runs.events("run")) == [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3})]
    assert list(store.runs.events("run", after=2)) == [(3, {"n": 3})]
    assert list(store.runs.events("other")) == [(1, {"o": 1})]
    record = store.runs.get("run")
    assert record is not None
    assert record.last_event == 3


def test_long_journals_are_read_while_they_grow(store: Store) -> None:
    epoch = begin(store)
    events: list[JSONObject] = [{"n": n} for n in range(1000)]
    store.runs.append("run", epoch, events)
    seen: list[int] = []
    for number, _ in store.runs.events("run"):
        seen.append(number)
        if number == 10:
            store.runs.append("run", epoch, [{"n": "late"}])

    assert seen == list(range(1, 1002))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=4), max_size=6
    )
)
def test_events_are_exact(batches: list[list[JSONObject]]) -> None:
    with Store.open(":memory:") as store:
        epoch = begin(store)
        for batch in batches:
            store.runs.append("run", epoch, batch)
        assert repr([event for _, event in store.runs.events("run")]) == repr(
            [event for batch in batches for event in batch]
        )


def test_one_driver_at_a_time(store: Store) -> None:
    first = begin(store)
    assert store.leases.acquire("run", "second", 30, 1029.0) is None
    assert store.leases.renew("run", first, 30, 1029.0)
    assert store.leases.acquire("run", "second", 30, 1031.0) is None
    # A clock that is an hour ahead takes no lease: only a process that has seen the lease expire
    # can do so.
    assert store.leases.acquire("run", "second", 30, 5000.0) is None
    before = store.runs.get("run")
    assert before is not None
    assert store.leases.renew("run", first, 30, 1031.0)
    assert store.leases.acquire("run", "second", 30, 1031.0, before.lease) is None
    lapsed = store.runs.get("run")
    assert lapsed is not None
    second = store.leases.acquire("run", "second", 30, 1059.0, lapsed.lease)
    assert second is not None
    assert second == first + 1
    assert not store.leases.renew("run", first, 30, 1059.0)
    assert not store.leases.release("run", first)
    batches: list[list[JSONObject]] = [[{"n": 1}], [{"n": 1}, {"n": 2}], []]
    for batch in batches:
        with pytest.raises(StaleDriverError, match="is at epoch 2: events of epoch 1"):
            store.runs.append("run", first, batch)

    with pytest.raises(StaleDriverError):
        store.runs.set_status("run", first, "done", None)

    assert list(store.runs.events("run")) == []
    assert store.runs.append("run", second, [{"n": 1}]) == 1


def test_an_expired_lease_holds_until_somebody_takes_over(store: Store) -> None:
    epoch = begin(store)
    assert store.runs.append("run", epoch, [{}]) == 1
    assert store.leases.renew("run", epoch, 30, 5000.0)


def test_a_released_run_takes_nothing(store: Store) -> None:
    epoch = begin(store)
    assert store.leases.release("run", epoch)
    assert not store.leases.release("run", epoch)
    batches: list[list[JSONObject]] = [[{"n": 1}], [{"n": 1}, {"n": 2}]]
    for batch in batches:
        with pytest.raises(StaleDriverError, match="released"):
            store.runs.append("run", epoch, batch)

    assert store.leases.acquire("run", "second", 30, 1000.0) == epoch + 1


def test_the_same_driver_gets_a_new_epoch(store: Store) -> None:
    epoch = begin(store)
    assert store.leases.acquire("run", "driver", 30, 1000.0) == epoch + 1
    with pytest.raises(StaleDriverError):
        store.runs.append("run", epoch, [{}])


def test_a_run_nobody_acquired_takes_nothing(store: Store) -> None:
    store.runs.create("run", kind="plan", caller="", title="", fingerprint="")
    with pytest.raises(StaleDriverError, match="never acquired"):
        store.runs.append("run", 0, [{}])


def test_unknown_and_double_runs(store: Store) -> None:
    begin(store)
    with pytest.raises(RunExistsError):
        begin(store)

    assert store.runs.get("nothing") is None
    for call in (
        lambda: store.runs.append("nothing", 1, [{}]),
        lambda: store.leases.acquire("nothing", "d", 1, 1),
        lambda: store.leases.renew("nothing", 1, 1, 1),
        lambda: store.leases.release("nothing", 1),
        lambda: store.runs.set_status("nothing", 1, "done", None),
        lambda: list(store.runs.events("nothing")),
        lambda: store.runs.newest(after="nothing", caller=SEES_ALL),
    ):
        with pytest.raises(UnknownRunError):
            call()


def test_status_and_summary(store: Store) -> None:
    summary = StoredSummary(idea="ab" * 32, errors=2, reason="It has made 3 Requests.")
    epoch = begin(store)
    store.runs.set_status("run", epoch, "done", summary)
    record = store.runs.get("run")
    assert record is not None
    assert (record.status, record.summary, record.kind, record.caller) == (
        "done",
        summary,
        "plan",
        "me",
    )
    assert (record.driver, record.epoch, record.lease_until) == ("driver", epoch, 1030.0)


def test_runs_newest_first_by_caller_and_status(store: Store) -> None:
    for number in range(10):
        epoch = begin(store, f"r{number}", caller=f"c{number % 2}")
        if number % 3 == 0:
            store.runs.set_status(f"r{number}", epoch, "done", None)

    ids = [run.id for run in store.runs.newest(caller=SEES_ALL)]
    assert ids == [f"r{number}" for number in reversed(range(10))]
    assert [run.id for run in store.runs.newest("c1")] == ["r9", "r7", "r5", "r3", "r1"]
    assert [run.id for run in store.runs.newest(status="done", caller=SEES_ALL)] == [
        "r9",
        "r6",
        "r3",
        "r0",
    ]
    assert [run.id for run in store.runs.newest("c1", "done")] == ["r9", "r3"]
    assert [run.id for run in store.runs.newest(limit=3, after="r8", caller=SEES_ALL)] == [
        "r7",
        "r6",
        "r5",
    ]


def test_failed_runs_are_found_and_counted(store: Store) -> None:
    for name, status, errors in (
        ("right", "done", 0),
        ("wrong", "done", 2),
        ("stalled", "stalled", 0),
        ("cancelled", "cancelled", 0),
    ):
        epoch = begin(store, name, caller="ann")
        store.runs.set_status(name, epoch, status, StoredSummary(errors=errors))
    begin(store, "running", caller="bob")

    failed = RunFilter(failed=True)
    assert [run.id for run in store.runs.newest(SEES_ALL, chosen=failed)] == ["stalled", "wrong"]
    assert store.daily_use.newest_runs(SEES_ALL, failed, newest=10) == 2
    assert store.daily_use.newest_runs("bob", failed, newest=10) == 0
    assert store.daily_use.newest_runs(SEES_ALL, RunFilter(), newest=10) == 5
    assert store.daily_use.newest_runs("ann", RunFilter(words="wr"), newest=10) == 1
    # Older runs are not examined.
    assert store.daily_use.newest_runs(SEES_ALL, failed, newest=3) == 1


def test_runs_are_found_by_what_became_of_their_calls(store: Store) -> None:
    for name, status, summary in (
        ("right", "done", StoredSummary()),
        ("partly", "done", StoredSummary(errors=2, denied=1)),
        ("denied", "done", StoredSummary(errors=1, denied=1)),
        ("no output", "failed", StoredSummary(errors=1, denied=1, reason=NO_OUTPUT)),
        ("failed", "failed", StoredSummary(errors=1, reason=NO_OUTPUT)),
        ("stalled", "stalled", StoredSummary()),
    ):
        epoch = begin(store, name, caller="ann")
        store.runs.set_status(name, epoch, status, summary)

    def ended(outcome: Outcome) -> list[str]:
        chosen = RunFilter(outcome=outcome)
        return [run.id for run in store.runs.newest(SEES_ALL, chosen=chosen)]

    assert ended("failed") == ["failed", "partly"]
    assert ended("denied") == ["no output", "denied"]


def test_runs_are_found_by_the_program_that_asked(store: Store) -> None:
    clients = {
        "cursor": "cursor-vscode 1.7.2",
        "other_case": "Cursor",
        "code": "Visual Studio Code 1.99",
        "insiders": "Visual Studio Code Insiders 1.99",
        "percent": "% 1",
        "versions": "cursor 1 2",
        "unknown": "",
    }
    for run_id, client in clients.items():
        store.runs.create(
            run_id,
            kind="plan",
            caller="ann",
            title="",
            fingerprint="",
            source=RunSource(client=client),
        )
    epoch = begin(store, "imported", caller="bob")
    origin = read_as(RunOrigin, {"host": "cursor"})
    store.runs.set_status("imported", epoch, "done", StoredSummary(origin=origin))

    def asked_by(*names: str) -> list[str]:
        chosen = RunFilter(askers=names)
        runs = [run.id for run in store.runs.newest(SEES_ALL, chosen=chosen)]
        assert store.daily_use.newest_runs(SEES_ALL, chosen, newest=10) == len(runs)
        return sorted(runs)

    assert asked_by("Cursor", "cursor-vscode") == ["cursor", "imported", "other_case"]
    assert asked_by("Visual Studio Code") == ["code"]
    assert asked_by("Visual Studio") == []
    assert asked_by("%") == ["percent"]
    assert asked_by("'") == []
    assert sorted(store.daily_use.askers(10, caller="ann")) == sorted(
        filter(None, clients.values())
    )
    assert store.daily_use.askers(10, caller="bob") == ["cursor"]
    assert store.daily_use.askers(1, caller=SEES_ALL) == ["cursor"]


def test_the_filter_by_tool_finds_each_run_that_made_an_idea(store: Store) -> None:
    def idea_calling(tool: str) -> Idea:
        solution: JSON = {"calls": [{"_tool": tool, "path": "notes.txt"}], "output": None}
        return Idea([said("Read the notes.")], {}, solution)

    def listed(tool: str) -> list[str]:
        runs = listed_runs(store, SEES_ALL, 20, chosen=RunFilter(tool=tool))
        return [run.id for run in runs]

    reads = idea_calling("read_file")
    writes = idea_calling("write_file")
    begin(store, "first")
    begin(store, "again")
    begin(store, "other")
    begin(store, "both")
    store.ideas.save(reads, IdeaMeta(run="first", step=1))
    store.ideas.save(reads, IdeaMeta(run="again", step=1))
    store.ideas.save(writes, IdeaMeta(run="other", step=1))
    store.ideas.save(writes, IdeaMeta(run="both", step=1))
    store.ideas.save(reads, IdeaMeta(run="both", step=2))

    assert listed("read_file") == ["both", "again", "first"]
    assert listed("write_file") == ["both", "other"]
    assert listed("delete_file") == []


def test_events_and_ideas_are_committed_as_one(store: Store) -> None:
    epoch = begin(store)
    first = idea_of("x")
    second = idea_of("y")

    def step(idea: Idea, number: int) -> None:
        with store.transaction():
            store.ideas.save(idea, IdeaMeta(run="run", step=number))
            store.runs.append("run", epoch, [{"n": number}])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        step(first, 1)

    assert list(store.runs.events("run")) == []
    with pytest.raises(UnknownIdeaError):
        store.ideas.get(first.id, caller=SEES_ALL)

    with store.transaction():
        store.ideas.save(first, IdeaMeta(run="run", step=1))
        store.runs.append("run", epoch, [{"n": 1}])
        with pytest.raises(ZeroDivisionError):
            step(second, 2)

        store.runs.append("run", epoch, [{"n": 3}])

    assert [event for _, event in store.runs.events("run")] == [{"n": 1}, {"n": 3}]
    assert [record.id for record in store.ideas.of_run("run")] == [first.id]


def test_a_rolled_back_run_is_forgotten(store: Store) -> None:
    def lose() -> None:
        with store.transaction():
            store.runs.append("run", begin(store), [{}])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose()

    with pytest.raises(UnknownRunError):
        store.runs.append("run", 1, [{}])

    # Another run now has the row that the first one had.
    begin(store, "other")
    assert list(store.runs.events("other")) == []


def test_a_batch_that_is_not_json_leaves_nothing(store: Store) -> None:
    epoch = begin(store)
    bad: JSON = "\ud800"
    with pytest.raises(InvalidJSONError):
        store.runs.append("run", epoch, [{"n": 1}, {"n": bad}])
    assert list(store.runs.events("run")) == []


def test_another_thread_waits_for_the_transaction(store: Store) -> None:
    epoch = begin(store)
    started = threading.Event()

    def append() -> None:
        started.set()
        store.runs.append("run", epoch, [{"by": "thread"}])

    thread = threading.Thread(target=append)
    with store.transaction():
        store.runs.append("run", epoch, [{"by": "first"}])
        thread.start()
        started.wait()
        store.runs.append("run", epoch, [{"by": "second"}])

    thread.join()
    assert [event["by"] for _, event in store.runs.events("run")] == ["first", "second", "thread"]


def test_an_outline_has_the_marks_of_calls_and_no_values(store: Store) -> None:
    epoch = begin(store)
    events: list[JSONObject] = [
        {"event": "run_started", "call": 7},
        {"event": "call_started", "call": 0},
        {"event": "call_finished", "call": 0, "value": "x" * 100_000},
        {"event": "approval_asked", "call": 12, "approval": "a"},
        {"event": "call_finished", "call": 1, "item": 3, "error": {"kind": "tool", "message": "x"}},
        {"event": "call_finished", "call": 2, "error": {"kind": "cancelled", "message": "x"}},
        {"event": "call_finished", "call": 3, "error": {"kind": "denied", "message": "x"}},
        {"event": "call_decided", "call": 4, "digest": "ab" * 32, "decision": "deny"},
        {"event": "call_decided", "call": 5, "digest": "ab" * 32, "decision": "approve"},
    ]
    store.runs.append("run", epoch, events, [float(n) for n in range(1, 10)])
    outlines = store.runs.outlines(["run", "unknown"])
    assert outlines == {
        "run": [
            CallMark("call_started", 0, 2.0),
            CallMark("call_finished", 0, 3.0),
            CallMark("approval_asked", 12, 4.0),
            CallMark("call_finished", 1, 5.0, failure="failed"),
            CallMark("call_finished", 2, 6.0, failure="cancelled"),
            CallMark("call_finished", 3, 7.0, failure="denied"),
            CallMark("call_decided", 4, 8.0, failure="denied"),
            CallMark("call_decided", 5, 9.0),
        ],
        "unknown": [],
    }
    more: list[JSONObject] = [{"event": "call_started", "call": n} for n in range(OUTLINED)]
    store.runs.append("run", epoch, more)
    assert len(store.runs.outlines(["run"])["run"]) == OUTLINED - 1


def test_the_beginning_of_a_run_is_bounded(store: Store) -> None:
    epoch = begin(store)
    events: list[JSONObject] = [{"event": "first", "text": "é" * 100}, {"event": "second"}]
    store.runs.append("run", epoch, [*events, {"event": "third", "text": "x" * 10_000}])
    assert store.runs.beginning("run", 2, 1000) == events
    assert store.runs.beginning("run", 1, 1000) == events[:1]
    assert len(store.runs.beginning("run", 5, 20_000)) == 3
    # Events that are too large are not read in part.
    assert store.runs.beginning("run", 3, 1000) == []
    assert store.runs.beginning("run", 2, 50) == []
    with pytest.raises(UnknownRunError):
        store.runs.beginning("unknown", 2, 1000)


def test_a_run_says_which_program_asked_for_it(store: Store) -> None:
    source = RunSource(client="assistant 1.2")
    store.runs.create("run", kind="plan", caller="me", title="", fingerprint="", source=source)
    store.runs.create("other", kind="plan", caller="me", title="", fingerprint="")
    assert [run.client for run in store.runs.newest("me")] == ["", "assistant 1.2"]


def test_the_call_that_was_approved_last_is_that_of_an_owner_and_a_server(store: Store) -> None:
    memory = store.tool_memory
    memory.keep_approved("me", "server", "send", ApprovedCall("run_1", 3))
    memory.keep_approved("me", "server", "send", ApprovedCall("run_2", 0))
    assert memory.approved("me", "server", "send") == ApprovedCall("run_2", 0)
    for owner, server, tool in (
        ("you", "server", "send"),
        ("me", "other", "send"),
        ("me", "server", "receive"),
    ):
        assert memory.approved(owner, server, tool) is None
