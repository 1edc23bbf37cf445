"""The trace of a run, from the events of a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, read_plan
from ideabridge.bridge.loop.event import OutcomeAsked
from ideabridge.bridge.loop.progress import in_flight
from ideabridge.server.cli.follow import Followed
from ideabridge.server.ui.timeline import timeline
from ideabridge.server.views.history import RunHistory
from ideabridge.server.views.trace import CallBar, Trace
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject, encode, memory_of

ALLOW = Configuration(approval="allow_all", order="none")

ANN: JSONObject = {"kind": "person", "via": "page", "user": "Ann"}


class Payments:
    """The tool `pay`. It hangs until `open`."""

    def __init__(self, *, open: bool, expected: int = 1) -> None:  # noqa: A002 - says it best
        self.paid: list[str] = []
        self.begun = anyio.Event()

        @tool(destructive=False)
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            if len(self.paid) >= expected:
                self.begun.set()
            if not open:
                await anyio.sleep_forever()
            return f"paid {to}"

        self.toolbox = Toolbox(pay)


async def cut_off(store: Path, calls: list[JSON], expected: int) -> str:
    """Return the id of a run whose process ended while it paid."""
    payments = Payments(open=False, expected=expected)
    async with Bridge(ALLOW, toolbox=payments.toolbox, store=store) as bridge:
        run = await bridge.run_plan(read_plan({"calls": calls}))
        with anyio.fail_after(20):
            await payments.begun.wait()
        return run.id


def folded(bridge: Bridge, run_id: str) -> tuple[Trace, RunHistory]:
    """Fold the journal of a run. After each event, compare the trace with the machine. The trace of
    the events without what calls returned is the same.
    """
    trace = Trace()
    history = RunHistory()
    size = 0
    times = bridge.store.runs.event_times(run_id, 0)
    for number, event in bridge.store.runs.events(run_id):
        trace.add([(number, event)], times)
        history.add([(number, event)], times)
        assert history.broken is None
        if not history.machine.ended:
            running = {
                (bar.number, item) for bar in trace.bars for item in bar.running - bar.asking
            }
            flying = in_flight(history.machine.history)
            assert running == {(progress.call.index, item) for progress, item in flying}

        size += memory_of(encode(event))

    quick = Trace()
    timed = list(bridge.store.runs.timed_events(run_id))
    for added in timed:
        quick.add_event(added.number, added.event, added.at)

    assert quick == trace
    assert sum(added.size for added in timed) == size
    return trace, history


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("decision", "status"), [("value", "done"), ("skip", "failed"), ("retry", "done")]
)
async def test_a_decision_on_an_unknown_outcome_ends_the_call(
    tmp_path: Path, decision: Any, status: str
) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await cut_off(path, [{"_tool": "pay", "to": "Ada", "_outputPath": "paid"}], 1)
    async with Bridge(ALLOW, toolbox=Payments(open=True).toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        asked, _ = folded(bridge, run_id)
        assert [bar.status for bar in asked.bars] == ["asking"]

        [entry] = run.approvals()
        assert isinstance(entry, dict)
        value = "by bank" if decision == "value" else None
        run.decide(str(entry["approval"]), decision, by="Ann", value=value)
        assert await run.wait(30) in ("done", "failed")

        trace, history = folded(bridge, run_id)
        [progress] = run.calls()
        [bar] = trace.bars
        assert bar.status == progress.status.value == status
        assert ("skipped by Ann" in bar.error) == (decision == "skip")
        assert (bar.items, bar.running) == (1, set())
        assert trace.ended is not None
        assert bar.asked is not None
        assert bar.decided is not None
        assert bar.finished is not None
        assert bar.asked <= bar.decided <= bar.finished <= trace.ended
        if decision != "retry":
            assert bar.finished == bar.decided, "nothing of the call runs after the decision"

        for machine in (None, history.machine):
            [row] = timeline(trace, machine).rows
            assert row.status == status
            assert row.took == bar.finished - (bar.started or 0)


@pytest.mark.anyio
@pytest.mark.parametrize("decision", ["value", "skip", "retry"])
async def test_a_command_stops_the_clock_of_a_call_that_a_person_decided(
    tmp_path: Path, decision: Any
) -> None:
    path = tmp_path / "store.sqlite"
    run_id = await cut_off(path, [{"_tool": "pay", "to": "Ada"}], 1)
    async with Bridge(ALLOW, toolbox=Payments(open=True).toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        followed = Followed(run)
        async for event in run:
            followed.take(event)
            if isinstance(event, OutcomeAsked):
                break

        assert (followed.seconds(0) or 0) < (followed.seconds(0) or 0), "its clock runs"
        [entry] = run.approvals()
        assert isinstance(entry, dict)
        value = "by bank" if decision == "value" else None
        run.decide(str(entry["approval"]), decision, by="Ann", value=value)
        async for event in run:
            followed.take(event)

        assert followed.seconds(0) == followed.seconds(0) is not None


@pytest.mark.anyio
async def test_each_item_ends_by_its_own_decision(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    people: JSON = ["Ada", "Bob", "Eve"]
    run_id = await cut_off(path, [{"_tool": "pay", "_each": people, "to": "†item"}], 3)
    async with Bridge(ALLOW, toolbox=Payments(open=True).toolbox, store=path) as bridge:
        run = await bridge.run(run_id)
        decisions: list[Any] = ["retry", "skip", "value"]
        for entry, decision in zip(run.approvals(), decisions, strict=True):
            assert isinstance(entry, dict)
            value = "by bank" if decision == "value" else None
            run.decide(str(entry["approval"]), decision, by="Ann", value=value)

        assert await run.wait(30) in ("done", "failed")
        trace, _ = folded(bridge, run_id)
        [bar] = trace.bars
        assert bar.status == run.calls()[0].status.value == "failed"
        assert (bar.items, bar.running) == (3, set())


def call_of(events: list[JSONObject]) -> tuple[Trace, CallBar]:
    """Return the trace of the events of one call, the first at second 0, and its bar."""
    listed: JSONObject = {"event": "call_proposed", "call": {"_tool": "send"}}
    pairs = list(enumerate([listed, *events]))
    trace = Trace()
    trace.add(pairs, {number: float(number) for number, _ in pairs})
    [bar] = trace.bars
    return trace, bar


def of_item(name: str, item: int | None = None, **members: JSON) -> JSONObject:
    event: JSONObject = {"event": name, "call": 0, **members}
    if item is not None:
        event["item"] = item
    return event


def decided(decision: str, item: int | None = None, **members: JSON) -> JSONObject:
    return of_item("outcome_decided", item, decision=decision, by=ANN, **members)


def test_a_call_that_is_repeated_does_not_run_until_it_starts_again() -> None:
    events = [of_item("call_started"), of_item("outcome_asked"), decided("retry")]
    _, bar = call_of(events)
    assert (bar.status, bar.started, bar.finished) == ("waiting", 1.0, 3.0)

    # The rules may ask before the call runs again.
    events.append(of_item("approval_asked"))
    _, bar = call_of(events)
    assert (bar.status, bar.asked, bar.decided) == ("asking", 4.0, None)

    events.append(of_item("call_decided", decision="approve", by=ANN))
    _, bar = call_of(events)
    assert (bar.status, bar.decided) == ("waiting", 5.0)

    events.append(of_item("call_started"))
    _, bar = call_of(events)
    assert (bar.status, bar.items, bar.started, bar.finished) == ("running", 1, 1.0, None)

    events.append(of_item("call_finished", value=1))
    _, bar = call_of(events)
    assert (bar.status, bar.finished) == ("done", 7.0)


def test_a_call_that_is_not_repeated_after_all_ends_with_the_decision() -> None:
    begun = [of_item("call_started"), of_item("outcome_asked"), decided("retry")]
    _, bar = call_of([*begun, of_item("run_ended", status="cancelled")])
    assert (bar.status, bar.finished) == ("failed", 3.0)

    denied = of_item("call_decided", decision="deny", by=ANN, reason="enough")
    _, bar = call_of([*begun, of_item("approval_asked"), denied])
    assert (bar.status, bar.finished, "enough" in bar.error) == ("denied", 5.0, True)


def test_a_run_that_ends_during_a_question_about_an_outcome_ends_the_call() -> None:
    events = [of_item("call_started"), of_item("outcome_asked")]
    _, bar = call_of([*events, of_item("run_ended", status="cancelled")])
    assert (bar.status, bar.finished) == ("failed", 3.0)

    _, bar = call_of([of_item("approval_asked"), of_item("run_ended", status="cancelled")])
    assert (bar.status, bar.started) == ("not run", None)


def test_a_call_with_items_runs_until_its_last_item_has_ended() -> None:
    events = [of_item("call_started", item) for item in range(3)]
    events += [of_item("outcome_asked", 0), of_item("outcome_asked", 1), decided("value", 0)]
    _, bar = call_of(events)
    assert (bar.status, bar.decided) == ("asking", None), "item 1 still waits for a person"

    error: JSONObject = {"kind": "unknown", "message": "nobody knows"}
    events.append(decided("skip", 1, error=error))
    _, bar = call_of(events)
    assert (bar.status, bar.decided, bar.finished) == ("running", 7.0, None)
    assert bar.error == "nobody knows"

    events.append(of_item("call_finished", 2, value=1))
    _, bar = call_of(events)
    assert (bar.status, bar.finished, bar.items) == ("failed", 8.0, 3)


def test_the_time_of_a_decision_counts_from_the_question_that_it_answers() -> None:
    events: list[JSONObject] = [
        {"event": "call_proposed", "call": {"_tool": "send"}},
        {"event": "approval_asked", "call": 0},
        {"event": "call_decided", "call": 0, "decision": "approve"},
        {"event": "approval_asked", "call": 0},
        {"event": "call_decided", "call": 0, "decision": "approve"},
    ]
    times = dict(enumerate([0.0, 10.0, 13.0, 100.0, 101.0]))
    trace = Trace()
    trace.add(list(enumerate(events))[:4], times)
    (bar,) = trace.bars
    assert (bar.status, bar.asked, bar.decided) == ("asking", 100.0, None)
    trace.add(list(enumerate(events))[4:], times)
    assert [seconds for _, seconds in bar.approvals] == [3.0, 1.0]
    assert (bar.asked, bar.decided) == (100.0, 101.0)


@pytest.mark.parametrize("seconds", [0.003, 0.0001, 0.9, 5.0, 3 * 86_400.0, 4000 * 86_400.0])
def test_the_marks_of_an_axis_are_distinct(seconds: float) -> None:
    ticks = timeline(Trace(begun=100.0, ended=100.0 + seconds), None).ticks
    assert len(set(ticks)) == 5
    assert all(ticks)


@pytest.mark.parametrize(
    ("seconds", "marks"),
    [
        (0.2, ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms"]),
        (0.193, ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms"]),
        (9.1, ["0 ms", "2.5 s", "5 s", "7.5 s", "10 s"]),
        (100.0, ["0 ms", "30 s", "1 min", "1 min 30 s", "2 min"]),
        (3.4 * 86_400.0, ["0 ms", "1 day", "2 days", "3 days", "4 days"]),
    ],
)
def test_the_marks_of_an_axis_are_round(seconds: float, marks: list[str]) -> None:
    assert timeline(Trace(begun=100.0, ended=100.0 + seconds), None).ticks == marks


def test_the_marks_before_a_break_are_round() -> None:
    """A call of 193 ms, an hour for a decision, and another call of 20 ms."""
    events: list[JSONObject] = [
        {"event": "call_proposed", "call": {"_tool": "send"}},
        {"event": "call_started", "call": 0},
        {"event": "call_finished", "call": 0, "value": 1},
        {"event": "call_proposed", "call": {"_tool": "send"}},
        {"event": "call_started", "call": 1},
        {"event": "call_finished", "call": 1, "value": 1},
    ]
    trace = Trace()
    moments = [100.0, 100.0, 100.193, 3700.193, 3700.193, 3700.213]
    trace.add(list(enumerate(events)), dict(enumerate(moments)))
    shown = timeline(trace, None, now=3700.213)
    assert shown.ticks[:3] == ["0 ms", "60 ms", "120 ms"]
    [(left, width, seconds)] = shown.breaks
    assert seconds == pytest.approx(3600.0)
    assert left == pytest.approx(193 / 240 * 100)
    assert width == pytest.approx(27 / 240 * 100)
    assert shown.ticks[3] == "180 ms"
    # No bar crosses the break, because nothing waited.
    assert [row.cuts for row in shown.rows] == [[], []]


def test_no_mark_repeats_the_length_of_a_wait_at_the_end() -> None:
    """A call of 200 ms, and a question that has waited for an hour."""
    events: list[JSONObject] = [
        {"event": "call_proposed", "call": {"_tool": "send"}},
        {"event": "call_started", "call": 0},
        {"event": "call_finished", "call": 0, "value": 1},
        {"event": "call_proposed", "call": {"_tool": "send"}},
        {"event": "approval_asked", "call": 1},
    ]
    trace = Trace()
    trace.add(list(enumerate(events)), dict(enumerate([100.0, 100.0, 100.2, 100.2, 100.2])))
    shown = timeline(trace, None, now=3700.2)
    [(left, width, _)] = shown.breaks
    assert left + width == pytest.approx(100.0)
    assert shown.ticks[0] == "0 ms"
    assert shown.ticks[-1] == ""
    # The bar of the question has a mark where it is drawn shorter.
    assert [row.cuts for row in shown.rows] == [[], [pytest.approx(left + width / 2)]]


def test_a_short_wait_is_drawn_to_scale() -> None:
    """A call of 180 ms, and a question that is answered before anybody could wait."""
    events: list[JSONObject] = [
        {"event": "call_proposed", "call": {"_tool": "send"}},
        {"event": "call_started", "call": 0},
        {"event": "call_finished", "call": 0, "value": 1},
    ]
    trace = Trace()
    trace.add(list(enumerate(events)), dict(enumerate([100.0, 100.0, 100.18])))
    assert timeline(trace, None, now=100.234).breaks == []
    [(_, _, seconds)] = timeline(trace, None, now=100.567).breaks
    assert seconds == pytest.approx(0.387)


def test_marks_that_no_rounding_tells_apart_are_empty() -> None:
    assert timeline(Trace(begun=100.0, ended=100.0), None).ticks == ["0 ms", "", "", "", ""]
