"""A call that another runs in the place of: its order, its activity, a crash."""

from __future__ import annotations

import random

import pytest

from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import (
    CallDecided,
    CallFinished,
    CallProposed,
    SolutionClosed,
    SolutionProposed,
    decider_of,
)
from ideabridge.bridge.loop.machine import Machine, resume_events
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.runs.people import questions
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Annotations, Tool
from tests.loop.driving import ANY_PARAMETERS, READ_ONLY, TOOLS, Driven, started

PEEK = Tool("peek", parameters=ANY_PARAMETERS)
STORE = Tool("store", parameters=ANY_PARAMETERS, annotations=Annotations(read_only=False))
RULES: JSON = {
    "default": "allow",
    "rules": [{"tool": "peek", "then": "ask"}, {"tool": "ask_*", "then": "ask"}],
}


def begun(calls: list[JSON], *, streamed: bool = False, mode: str = "plan", **more: Tool) -> Driven:
    driven = Driven()
    settings = Settings(approval=RULES if isinstance(RULES, dict) else "default")
    driven.post(started(mode=mode, tools=[*TOOLS, PEEK, *more.values()], settings=settings))
    if streamed:
        for call in calls:
            driven.post(CallProposed(call))
    else:
        driven.post(SolutionProposed(calls))

    return driven


def replace(driven: Driven, index: int, tool: Tool | None = None) -> None:
    approval = driven.machine.history[index].approval
    assert approval is not None
    name = tool.name if tool is not None else "peek"
    defined = tool.to_json() if tool is not None else None
    edited: JSONObject = {"_tool": name, "x": f"as {name}"}
    driven.post(
        CallDecided(index, approval.digest, "edit", decider_of("Ann"), None, edited, defined)
    )


def at_work(driven: Driven) -> list[str]:
    return sorted(str(effect.parameters["x"]) for effect in driven.running)


def end(driven: Driven, x: str) -> None:
    [number] = [
        number for number, effect in enumerate(driven.running) if effect.parameters["x"] == x
    ]
    driven.finish_one(number)


def echo(x: str) -> JSON:
    return {"_tool": "echo", "x": x}


def write(x: str, **more: JSON) -> JSON:
    return {"_tool": "write", "x": x, **more}


def test_what_declares_effects_keeps_the_listed_order_where_the_call_stood() -> None:
    driven = begun([write("one"), {"_tool": "peek", "x": "?"}, write("two"), write("three")])
    assert at_work(driven) == ["one"]
    replace(driven, 1, STORE)
    assert at_work(driven) == ["one"], "it waits for what is listed before it"
    end(driven, "one")
    assert at_work(driven) == ["as store"]
    end(driven, "as store")
    assert at_work(driven) == ["two"]
    driven.finish_all()
    assert [index for index, _ in driven.executions] == [0, 1, 2, 3]
    assert driven.machine.status == "done"


def test_what_began_before_a_change_took_a_read_s_place_goes_on_and_what_follows_waits_for_it() -> (
    None
):
    look = Tool("ask_look", parameters=ANY_PARAMETERS, annotations=READ_ONLY)
    calls: list[JSON] = [
        {"_tool": "ask_look", "x": "?"},
        echo("one"),
        {"_tool": "echo", "x": "two", "y": "†results.1"},
    ]
    driven = begun([*calls, write("three")], look=look)
    assert at_work(driven) == ["one"], "reads run beside a read that asks"
    replace(driven, 0, STORE)
    assert at_work(driven) == ["as store", "one"]
    end(driven, "one")
    assert at_work(driven) == ["as store"], "what had not begun waits for the change now"
    end(driven, "as store")
    assert at_work(driven) == ["two"]
    end(driven, "two")
    assert at_work(driven) == ["three"]


def test_what_waits_for_a_place_to_run_waits_for_a_change_that_takes_a_read_s_place() -> None:
    look = Tool("ask_look", parameters=ANY_PARAMETERS, annotations=READ_ONLY)
    settings = Settings(approval=RULES if isinstance(RULES, dict) else "default", parallel_calls=1)
    driven = Driven()
    driven.post(started(tools=[*TOOLS, PEEK, look], settings=settings))
    driven.post(SolutionProposed([{"_tool": "ask_look", "x": "?"}, echo("one"), echo("two")]))
    replace(driven, 0, STORE)
    end(driven, "one")
    assert at_work(driven) == ["as store"]
    end(driven, "as store")
    assert at_work(driven) == ["two"]


def test_two_that_ask_run_in_their_listed_order_whichever_is_decided_first() -> None:
    asking = Tool("ask_write", parameters=ANY_PARAMETERS, annotations=Annotations(read_only=False))
    calls: list[JSON] = [{"_tool": "peek", "x": "?"}, {"_tool": "ask_write", "x": "later"}]
    driven = begun(calls, asking=asking)
    replace(driven, 0, STORE)
    approval = driven.machine.history[1].approval
    assert approval is not None
    driven.post(CallDecided(1, approval.digest, "approve", decider_of("Ann")))
    assert at_work(driven) == ["as store"]
    end(driven, "as store")
    assert at_work(driven) == ["later"]


def test_what_is_read_only_leaves_the_order_of_the_call_it_replaces() -> None:
    asking = Tool("ask_write", parameters=ANY_PARAMETERS, annotations=Annotations(read_only=False))
    driven = begun([{"_tool": "ask_write", "x": "?"}, write("next")], asking=asking)
    assert at_work(driven) == []
    replace(driven, 0, TOOLS[0])
    assert at_work(driven) == ["as echo"], "a change waits for reads too"
    end(driven, "as echo")
    assert at_work(driven) == ["next"]


def test_a_read_in_the_place_of_a_change_lets_the_reads_after_it_run() -> None:
    asking = Tool("ask_write", parameters=ANY_PARAMETERS, annotations=Annotations(read_only=False))
    driven = begun([{"_tool": "ask_write", "x": "?"}, echo("next")], asking=asking)
    assert at_work(driven) == []
    replace(driven, 0, TOOLS[0])
    assert at_work(driven) == ["as echo", "next"]


def test_order_gives_way_to_data() -> None:
    # The first listed call reads the result of the replaced one, so the replaced one cannot wait
    # for it.
    calls: list[JSON] = [
        write("†state.q"),
        {"_tool": "peek", "x": "?", "_outputPath": "q"},
        write("last"),
    ]
    driven = begun(calls)
    replace(driven, 1, STORE)
    assert at_work(driven) == ["as store"]
    driven.finish_all()
    assert sorted(driven.statuses()) == ["done"] * 3
    assert driven.machine.status == "done"


def test_whatever_is_replaced_whenever_the_run_ends_and_its_journal_folds() -> None:
    # Run all seeds in one test, because reporting a test for each would take longer than running
    # it.
    for seed in range(200):
        check_replaced(seed)


def check_replaced(seed: int) -> None:
    chosen = random.Random(seed)
    calls: list[JSON] = []
    for number in range(10):
        if chosen.random() < 0.4:
            x: JSON = f"†state.s{chosen.randrange(10)}"
        else:
            x = number
        tool = chosen.choice(("peek", "peek", "write", "echo"))
        calls.append({"_tool": tool, "x": x, "_outputPath": f"s{number}"})

    driven = begun(calls, streamed=True, mode="solve")
    closed = False
    while driven.machine.phase == "solving":
        asking = [one.call.index for one in driven.machine.history if one.status.value == "asking"]
        if not closed and chosen.random() < 0.3:
            driven.post(SolutionClosed())
            closed = True
        elif asking and chosen.random() < 0.5:
            replace(driven, chosen.choice(asking), chosen.choice((STORE, TOOLS[0], TOOLS[1])))
        elif driven.running:
            driven.finish_one()
        elif not asking:
            assert not closed, "nothing moves, and nobody is asked"
            driven.post(SolutionClosed())
            closed = True

    folded = Machine()
    for event in driven.journal:
        folded.receive(event)

    assert [one.status for one in folded.history] == [one.status for one in driven.machine.history]
    assert folded.documents == driven.machine.documents


@pytest.mark.parametrize(("tool", "again"), [(TOOLS[0], True), (STORE, False)])
def test_after_a_crash_the_tool_that_ran_says_whether_it_may_run_again(
    tool: Tool, again: bool
) -> None:
    driven = begun([{"_tool": "peek", "x": "?", "_activity": "looking"}], mode="solve")
    replace(driven, 0, tool)
    folded = Machine(Catalogue([PEEK]))
    for event in driven.journal:
        folded.receive(event)

    executions, events = resume_events(folded, 0.0)
    assert [(one.tool.name, one.activity) for one in executions] == (
        [(tool.name, None)] if again else []
    )
    assert [type(event) for event in events] == ([] if again else [CallFinished])
    plan = begun([{"_tool": "peek", "x": "?"}])
    replace(plan, 0, STORE)
    _, [asked] = resume_events(plan.machine, 0.0)
    plan.post(asked)
    [question] = questions(plan.machine)
    assert question.shown == {"_tool": "store", "x": "as store"}
    assert question.tool is not None
    assert question.tool.name == "store"
