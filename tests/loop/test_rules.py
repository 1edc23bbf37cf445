"""Rules that become stricter while calls wait: no call begins that the rules of the moment
do not let run.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.loop.effect import AskApproval, Execute
from ideabridge.bridge.loop.event import (
    CallDecided,
    CallStarted,
    ConfigurationChanged,
    Decider,
    Event,
    OutcomeAsked,
    OutcomeDecided,
    RunEnded,
    RunStarted,
    SolutionProposed,
)
from ideabridge.bridge.loop.machine import Machine, resume_events
from ideabridge.bridge.loop.policy import (
    ApprovalSetting,
    approval_parts,
    only_persons,
    policy_named,
    strictest_of,
)
from ideabridge.bridge.loop.progress import CallStatus
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool
from tests.loop.driving import ANY_PARAMETERS, READ_ONLY, Driven, echo, started

PERSON: Final = Decider("person", "page", "local")
ASSISTANT: Final = Decider("assistant", "tool", "local")


def setting(write: str, echo: str, by: str | None = None) -> JSONObject:
    """An approval setting with one verdict for each tool."""
    rules: list[JSON] = [{"tool": "write", "then": write}, {"tool": "echo", "then": echo}]
    chosen: JSONObject = {"default": "allow", "rules": rules}
    if by is not None:
        chosen["by"] = by
    return chosen


VERDICTS = st.sampled_from(("allow", "ask", "deny"))
SETTINGS = st.builds(setting, VERDICTS, VERDICTS, st.sampled_from((None, "person")))


@st.composite
def plans(draw: st.DrawFn) -> list[JSON]:
    calls: list[JSON] = []
    for number in range(draw(st.integers(1, 6))):
        call: JSONObject = {
            "_tool": draw(st.sampled_from(("echo", "write"))),
            "x": draw(st.sampled_from((number, "†state.p0" if number else number))),
            "_outputPath": f"p{number}",
        }
        if draw(st.integers(0, 4)) == 0:
            call |= {"_each": "†input.items", "x": "†item"}
        calls.append(call)

    return calls


ACTIONS = st.one_of(
    st.tuples(st.just("finish"), st.integers(0, 5)),
    st.tuples(st.just("approve"), st.integers(0, 5), st.sampled_from((PERSON, ASSISTANT))),
    st.tuples(st.just("deny"), st.integers(0, 5), st.just(PERSON)),
    st.tuples(st.just("change"), SETTINGS),
)


def decide(driven: Driven, decision: Any, number: int, by: Decider) -> None:
    """Decide about one of the calls that ask, if the rules let this decider."""
    asking = [one for one in driven.machine.history if one.status is CallStatus.ASKING]
    if not asking or (by.kind == "assistant" and only_persons(driven.machine.settings.approval)):
        return
    progress = asking[number % len(asking)]
    assert progress.approval is not None
    driven.post(CallDecided(progress.call.index, progress.approval.digest, decision, by))


def change(driven: Driven, new: ApprovalSetting) -> None:
    approval = strictest_of(driven.machine.settings.approval, new)
    driven.post(ConfigurationChanged("other", approval))


def expect_allowed(driven: Driven) -> None:
    """Every start in the journal was allowed by the rules that were in force then, read
    without the machine.
    """
    machine = driven.machine
    began = driven.journal[0]
    assert isinstance(began, RunStarted)
    approval = Settings.from_json(began.settings).approval
    for place, event in enumerate(driven.journal):
        if isinstance(event, ConfigurationChanged):
            assert isinstance(event.approval, str | dict)
            approval = event.approval

        if not isinstance(event, CallStarted):
            continue

        before = driven.journal[:place]
        tool = machine.history[event.call].tool
        assert tool is not None
        verdicts = {policy_named(part)(tool, {}).verdict for part in approval_parts(approval)}
        assert "deny" not in verdicts, (event, approval)
        if "ask" in verdicts:
            decisions = [
                one for one in before if isinstance(one, CallDecided) and one.call == event.call
            ]
            assert decisions, (event, approval)
            by = decisions[-1].by
            assert by.kind == "person" or not only_persons(approval), (event, approval)


def seen(machine: Machine) -> tuple[Any, ...]:
    """What two machines of one journal have in common."""
    due = [(type(effect).__name__, getattr(effect, "key", None)) for effect in machine.due()]
    calls = [(one.status, one.approval, one.forbidden, one.error) for one in machine.history]
    return due, calls, machine.phase, machine.documents, machine.settings


def folded_settings(journal: list[Event]) -> Settings:
    machine = Machine()
    for event in journal:
        machine.receive(event)
    return machine.settings


def bring_to_end(driven: Driven) -> None:
    """Let what runs end, and deny what asks."""
    while not driven.machine.ended:
        if driven.running:
            driven.finish_one(0)
        else:
            assert any(one.status is CallStatus.ASKING for one in driven.machine.history), (
                driven.statuses()
            )
            decide(driven, "deny", 0, PERSON)


@settings(max_examples=150)
@given(plans(), SETTINGS, st.integers(1, 3), st.lists(ACTIONS, max_size=25), st.data())
def test_no_call_begins_that_the_rules_of_the_moment_do_not_let_run(
    calls: list[JSON], first: JSONObject, parallel: int, actions: list[Any], data: st.DataObject
) -> None:
    chosen = Settings(approval=first, parallel_calls=parallel)
    driven = Driven()
    driven.post(started([{"type": "input", "input": {"items": [1, 2]}}], settings=chosen))
    driven.post(SolutionProposed(calls))
    for action in actions:
        if driven.machine.ended:
            break
        match action:
            case ("finish", number):
                if driven.running:
                    driven.finish_one(number % len(driven.running))
            case ("approve" | "deny" as decision, number, by):
                decide(driven, decision, number, by)
            case ("change", new):
                change(driven, new)
            case _:
                raise AssertionError(action)

    expect_allowed(driven)
    # The journal leads to the same machine, even if it is cut off.
    ends = isinstance(driven.journal[-1], RunEnded)
    cut = data.draw(st.integers(2, len(driven.journal) - ends))
    for journal in (driven.journal, driven.journal[:cut]):
        one = Machine()
        other = Machine()
        for event in journal:
            one.receive(event)
            other.receive(event)

        assert seen(one) == seen(other)

    folded = Machine()
    for event in driven.journal:
        folded.receive(event)

    assert seen(folded) == seen(driven.machine)
    bring_to_end(driven)
    # The rules change while the process is down, so there are due effects that nobody has
    # acknowledged.
    approval = strictest_of(folded_settings(driven.journal[:cut]).approval, data.draw(SETTINGS))
    late = Driven.resumed([*driven.journal[:cut], ConfigurationChanged("other", approval)], echo, 0)
    expect_allowed(late)
    bring_to_end(late)
    expect_allowed(late)


def test_a_call_in_flight_that_the_rules_deny_now_is_not_repeated() -> None:
    driven = Driven()
    driven.post(started())
    driven.post(SolutionProposed([{"_tool": "write", "x": 1}]))
    assert driven.machine.history[0].status is CallStatus.RUNNING
    again, _ = resume_events(driven.machine, 0.0)
    assert len(again) == 1, "the tool is idempotent"
    change(driven, setting("deny", "allow"))
    again, events = resume_events(driven.machine, 0.0)
    assert again == []
    assert [event.name for event in events] == ["outcome_asked"]


def test_the_items_that_have_not_begun_end_where_the_rules_deny_or_ask_now() -> None:
    for then in ("deny", "ask"):
        driven = Driven()
        driven.post(started([{"type": "input", "input": {"items": [1, 2, 3]}}]))
        driven.post(SolutionProposed([{"_tool": "write", "_each": "†input.items", "x": "†item"}]))
        assert len(driven.running) == 1, "it changes something, so its items run one after another"
        change(driven, setting(then, "allow"))
        driven.finish_all()
        assert driven.executions == [(0, 0)]
        assert driven.machine.ended
        error = driven.machine.history[0].error
        assert error is not None
        assert "2 of 3 items failed: item 1: " in str(error["message"])
        assert ("denied by policy" if then == "deny" else "the rules have changed") in str(
            error["message"]
        )


def test_a_retry_is_judged_by_the_rules_of_the_moment() -> None:
    for then, status in (("deny", CallStatus.FAILED), ("ask", CallStatus.ASKING)):
        driven = Driven()
        driven.post(started())
        driven.post(SolutionProposed([{"_tool": "write", "x": 1}]))
        change(driven, setting(then, "allow"))
        _, [asked] = resume_events(driven.machine, 0.0)
        assert isinstance(asked, OutcomeAsked)
        driven.post(asked)
        driven.running.clear()
        driven.post(OutcomeDecided(0, asked.digest, "retry", PERSON))
        assert driven.running == []
        assert driven.machine.history[0].status is status
        if then == "ask":
            decide(driven, "approve", 0, PERSON)
            assert len(driven.running) == 1


def test_a_room_in_flight_judges_its_own_calls() -> None:
    idea = Tool(
        "report",
        parameters=ANY_PARAMETERS,
        annotations=READ_ONLY,
        module="idea:report",
        remote_name="report",
    )
    driven = Driven()
    driven.post(started(tools=[idea]))
    driven.post(SolutionProposed([{"_tool": "report", "_module": "idea:report", "x": 1}]))
    assert len(driven.running) == 1
    driven.post(ConfigurationChanged("other", {"default": "ask"}))
    again, events = resume_events(driven.machine, 0.0)
    assert (len(again), events) == (1, [])


def test_a_call_that_is_taken_back_leaves_its_place_to_others() -> None:
    machine = Machine()
    machine.receive(started(settings=Settings(approval="allow_all", parallel_calls=1)))
    machine.receive(SolutionProposed([{"_tool": "tell", "x": 1}, {"_tool": "echo", "x": 2}]))
    assert [effect.call.index for effect in machine.due() if isinstance(effect, Execute)] == [0]
    rules: list[JSON] = [{"tool": "tell", "then": "ask"}]
    machine.receive(ConfigurationChanged("other", {"default": "allow", "rules": rules}))
    assert [effect.call.index for effect in machine.due() if isinstance(effect, AskApproval)] == [0]
    assert [effect.call.index for effect in machine.due() if isinstance(effect, Execute)] == [1]
