"""The order of effects: within one module and instance, changes wait for all earlier calls, reads
for the changes.
"""

from __future__ import annotations

from typing import Any

import pytest

from ideabridge.bridge.loop.event import (
    CallDecided,
    CallFinished,
    Pattern,
    SolutionProposed,
    decider_of,
)
from ideabridge.bridge.loop.settings import ModuleOrder, Settings
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import ANONYMOUS, EVERY_MODULE, Order, Tool
from tests.loop.driving import ANY_PARAMETERS, EFFECTS, READ_ONLY, Driven, started

TOOLS = [
    Tool("look", parameters=ANY_PARAMETERS, annotations=READ_ONLY),
    Tool("poke", parameters=ANY_PARAMETERS),
    Tool("write", parameters=ANY_PARAMETERS, annotations=EFFECTS),
    Tool("shape", parameters=ANY_PARAMETERS, annotations=READ_ONLY, reaches=()),
    Tool("look_there", parameters=ANY_PARAMETERS, annotations=READ_ONLY, module="there"),
    Tool("poke_there", parameters=ANY_PARAMETERS, module="there"),
    Tool("both", parameters=ANY_PARAMETERS, module="idea:both", reaches=("", "there")),
    Tool(
        "report",
        parameters=ANY_PARAMETERS,
        module="idea:report",
        annotations=READ_ONLY,
        reaches=("", "there"),
    ),
    Tool("asked", parameters=ANY_PARAMETERS, module="idea:asked"),
    Tool(
        "solve",
        parameters={"type": "object", "properties": {"x": {}, "tools": {}}},
        module=ANONYMOUS,
    ),
    Tool("latent", parameters=ANY_PARAMETERS),
]


SOLVE: JSONObject = {"_tool": "solve", "_module": ANONYMOUS}


def calls_of(text: str) -> list[JSON]:
    """`"look poke@a"`: a call of each tool, x its place; `@` names the instance."""
    found: list[JSON] = []
    for place, word in enumerate(text.split()):
        name, _, instance = word.partition("@")
        [tool] = [one for one in TOOLS if one.name == name]
        call: JSONObject = {"_tool": name, "x": place}
        if tool.module is not None:
            call["_module"] = tool.module

        if instance:
            call["_instance"] = instance

        found.append(call)

    return found


def begun(
    calls: str | list[JSON], *, context: Any = None, pattern: Pattern | None = None, **settings: Any
) -> Driven:
    given: dict[str, Any] = {"approval": "allow_all", **settings}
    chosen = Settings(**given)
    start = started(context, tools=TOOLS, settings=chosen)
    start.latent.append([None, "latent"])
    driven = Driven()
    driven.post(start)
    driven.post(
        SolutionProposed(
            calls_of(calls) if isinstance(calls, str) else calls, None, pattern=pattern
        )
    )
    return driven


def waves(driven: Driven) -> str:
    """What runs at once, as places: `"0 1, 2"`; everything of a wave ends before the
    next is looked at.
    """
    told: list[str] = []
    while driven.running:
        told.append(
            " ".join(str(place) for place in sorted(effect.call.index for effect in driven.running))
        )
        for _ in range(len(driven.running)):
            driven.finish_one(0)

    assert driven.machine.ended
    return ", ".join(told)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("look look look", "0 1 2"),
        ("poke poke poke", "0, 1, 2"),
        ("write write", "0, 1"),
        ("poke write poke", "0, 1, 2"),
        ("look look poke look look poke", "0 1, 2, 3 4, 5"),
        # The calls of one module do not wait for those of another. All own tools count as one
        # module.
        ("poke poke_there poke poke_there", "0 1, 2 3"),
        ("poke look_there look poke_there", "0 1, 2 3"),
        # Built-in tools, and results that a mind writes, affect nothing.
        ("poke shape poke shape", "0 1 3, 2"),
        ("poke latent poke", "0 1, 2"),
        # An idea is in the order of each module that its plan calls.
        ("poke poke_there both poke poke_there", "0 1, 2, 3 4"),
        ("poke report look look_there poke_there", "0 3, 1 2, 4"),
        ("poke_there both look", "0, 1, 2"),
        # An idea that a mind answers is in the order of every module.
        ("poke poke_there asked look look_there", "0 1, 2, 3 4"),
        ("asked poke poke_there", "0, 1 2"),
        ("asked asked", "0, 1"),
        # A task in a clean room without tools affects nothing.
        ("poke solve poke_there solve", "0 1 2 3"),
    ],
)
def test_effects_happen_in_the_listed_order(calls: str, expected: str) -> None:
    assert waves(begun(calls)) == expected


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([], "0 1 2, 3 4"),
        (["look*"], "0 1, 2 3, 4"),
        (["look_there"], "0 1, 2 3 4"),
        (["poke_there"], "0 1, 2 4, 3"),
        (["poke*"], "0 1, 2, 3 4"),
        # Which tools these are becomes known only when the call runs.
        ("†input.tools", "0 1, 2, 3 4"),
        (["†input.tools.0"], "0 1, 2, 3 4"),
    ],
)
def test_a_clean_room_is_in_the_order_of_the_tools_it_is_given(tools: JSON, expected: str) -> None:
    calls: list[JSON] = [
        *calls_of("poke poke_there"),
        {**SOLVE, "tools": tools},
        *calls_of("look_there poke"),
    ]
    assert (
        waves(begun(calls, context=[{"type": "input", "input": {"tools": ["look"]}}])) == expected
    )


def test_items_of_a_clean_room_run_at_once_where_its_tools_only_read() -> None:
    for tools, running in (([], 3), (["look"], 3), (["poke"], 1)):
        call: JSONObject = {**SOLVE, "x": "†item", "tools": list[JSON](tools), "_each": [0, 1, 2]}
        assert len(begun([call]).running) == running


def test_a_tool_that_is_answered_by_a_mind_reaches_every_module() -> None:
    assert Tool("asked", module="idea:asked").reached == (EVERY_MODULE,)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("effects", "0 3, 1 4, 2"),
        ("none", "0 1 2 3 4"),
        ("all", "0, 1, 2, 3, 4"),
    ],
)
def test_the_order_is_a_setting(order: Order, expected: str) -> None:
    assert waves(begun("poke look poke poke_there look_there", order=order)) == expected


def test_settings_are_read_again_as_they_were_written() -> None:
    settings = Settings(order="all", modules={"a": ModuleOrder(False, ("x_*",))})
    assert Settings.from_json(settings.to_json()) == settings


def test_reading_data_waits_for_calls_that_may_add_some() -> None:
    calls: list[JSON] = [{"_tool": "look"}, {"_tool": "look", "x": "†data.known"}]
    assert waves(begun(calls, context=[{"type": "known", "known": 1}])) == "0, 1"


def test_one_module_may_keep_no_order_and_tools_may_be_said_to_only_read() -> None:
    assert (
        waves(
            begun("poke_there poke_there poke poke", modules={"there": ModuleOrder(ordered=False)})
        )
        == "0 1 2, 3"
    )
    reads = {"there": ModuleOrder(reads=("po*_there",))}
    assert waves(begun("poke_there poke_there poke poke", modules=reads)) == "0 1 2, 3"
    # What an idea does in the other module keeps its order.
    assert (
        waves(begun("both poke poke_there", modules={"there": ModuleOrder(ordered=False)}))
        == "0 2, 1"
    )


def test_patterns_of_reads_are_for_the_names_that_the_module_uses() -> None:
    tools = [Tool("there_get", parameters=ANY_PARAMETERS, module="there", remote_name="get")]
    settings = Settings(approval="allow_all", modules={"there": ModuleOrder(reads=("get",))})
    driven = Driven()
    driven.post(started(tools=tools, settings=settings))
    driven.post(SolutionProposed([{"_tool": "there_get", "x": 1}, {"_tool": "there_get", "x": 2}]))
    assert len(driven.running) == 2


INSTANCES: list[JSON] = [{"type": "state", "state": {}, "_instance": name} for name in ("a", "b")]


def test_instances_are_independent_but_under_the_order_of_all() -> None:
    text = "poke@a poke@b poke@a asked@b poke@b"
    assert waves(begun(text, context=INSTANCES)) == "0 1, 2 3, 4"
    assert waves(begun(text, context=INSTANCES, order="all")) == "0, 1, 2, 3, 4"


def test_alternatives_are_unordered_and_a_group_of_all_is_ordered() -> None:
    assert len(begun("poke poke poke", pattern="any").running) == 3
    assert len(begun("poke poke poke", pattern="race").running) == 3
    driven = begun("poke poke poke", pattern="all")
    assert len(driven.running) == 1
    driven.finish_all()
    assert [index for index, _ in driven.executions] == [0, 1, 2]


def test_order_waits_for_the_end_of_a_call_not_for_its_success() -> None:
    driven = begun("poke poke look")
    driven.post(CallFinished(0, error={"kind": "runtime", "message": "no"}))
    driven.running.clear()
    driven.perform()
    assert driven.statuses() == ["failed", "running", "queued"]


def test_after_demands_success() -> None:
    calls: list[JSON] = [{"_tool": "poke", "_id": "first"}, {"_tool": "poke", "_after": ["first"]}]
    driven = begun(calls)
    driven.post(CallFinished(0, error={"kind": "runtime", "message": "no"}))
    assert driven.statuses() == ["failed", "failed"]


def test_a_call_whose_reads_fail_fails_at_once_and_holds_nothing() -> None:
    calls: list[JSON] = [
        {"_tool": "poke_there", "_module": "there", "_outputPath": "v"},
        {"_tool": "poke"},
        {"_tool": "poke", "x": "†state.v"},
        {"_tool": "poke"},
    ]
    driven = begun(calls)
    driven.post(CallFinished(0, error={"kind": "runtime", "message": "no"}))
    assert driven.statuses() == ["failed", "running", "failed", "queued"]
    driven.post(CallFinished(1, value=1))
    assert driven.statuses() == ["failed", "done", "failed", "running"]


# -- approvals -------------------------------------------------------------------------------------


def approve(driven: Driven, index: int, decision: Any = "approve") -> None:
    approval = driven.machine.history[index].approval
    assert approval is not None
    driven.post(CallDecided(index, approval.digest, decision, decider_of("Ann")))


def test_what_is_ordered_is_asked_about_at_once_and_runs_in_its_place() -> None:
    driven = begun("poke poke poke_there", approval="default")
    assert driven.statuses() == ["asking"] * 3
    approve(driven, 1)
    assert driven.statuses() == ["asking", "queued", "asking"]
    approve(driven, 2)
    assert driven.statuses() == ["asking", "queued", "running"], "other servers go on"
    approve(driven, 0)
    assert driven.statuses() == ["running", "queued", "running"]


def test_a_call_that_is_denied_no_longer_holds_what_is_behind_it() -> None:
    driven = begun("poke poke look", approval="default")
    approve(driven, 1)
    approve(driven, 0, "deny")
    assert driven.statuses() == ["failed", "running", "queued"]


def test_a_read_waits_for_an_earlier_change_though_a_later_one_has_been_denied() -> None:
    driven = begun("poke poke look", approval="default")
    approve(driven, 1, "deny")
    approve(driven, 0)
    assert driven.statuses() == ["running", "failed", "queued"]


# -- items -----------------------------------------------------------------------------------------


def items_of(tool: str) -> list[JSON]:
    return [{"_tool": tool, "x": "†item", "_each": [0, 1, 2]}, {"_tool": "look"}]


def test_items_of_a_change_run_one_after_another_and_those_of_a_read_at_once() -> None:
    driven = begun(items_of("look"))
    assert [effect.item for effect in driven.running] == [0, 1, 2, None]
    driven = begun(items_of("poke"))
    order: list[int | None] = []
    while driven.running:
        assert len(driven.running) == 1
        order.append(driven.running[0].item)
        driven.finish_one()

    assert order == [0, 1, 2, None]


def test_a_failed_item_does_not_hold_the_next() -> None:
    driven = begun(items_of("poke"))
    for item in range(3):
        assert [effect.item for effect in driven.running] == [item]
        driven.running.clear()
        if item == 1:
            error: JSONObject | None = {"kind": "runtime", "message": "no"}
        else:
            error = None

        driven.post(CallFinished(0, item, value=item, error=error))

    assert driven.statuses() == ["failed", "running"]


def test_items_run_at_once_where_the_module_keeps_no_order() -> None:
    calls: list[JSON] = [
        {"_tool": "poke_there", "_module": "there", "x": "†item", "_each": [0, 1, 2]}
    ]
    assert len(begun(calls, modules={"there": ModuleOrder(ordered=False)}).running) == 3
    assert len(begun(calls, order="none").running) == 3


# -- where data flow backwards ---------------------------------------------------------------------


def test_data_that_flow_backwards_win_within_their_circle_only() -> None:
    calls: list[JSON] = [
        {"_tool": "poke"},
        {"_tool": "poke", "x": "†state.late"},
        {"_tool": "poke"},
        {"_tool": "poke", "_outputPath": "late"},
        {"_tool": "look"},
    ]
    assert waves(begun(calls)) == "0, 3, 1, 2, 4"


def test_a_circle_of_later_alternatives_fails_and_what_it_held_runs() -> None:
    calls: list[JSON] = [
        {"_tool": "poke_there", "_module": "there", "_outputPath": "none || failed"},
        {"_tool": "poke", "x": "†state.none || †state.b", "_outputPath": "a"},
        {"_tool": "poke", "x": "†state.none || †state.a", "_outputPath": "b"},
        {"_tool": "poke", "_outputPath": "c"},
        {"_tool": "look", "x": "†state.c"},
    ]
    driven = begun(calls)
    driven.running.clear()
    driven.post(CallFinished(0, error={"kind": "runtime", "message": "no"}))
    assert "a cycle: call 1 (poke) -> call 2 (poke) -> call 1 (poke)" in driven.error_of(1)
    assert driven.statuses()[3:] == ["running", "waiting"]
    driven.finish_all()
    assert driven.statuses() == ["caught", "failed", "failed", "done", "done"]


def test_calls_in_a_circle_of_later_alternatives_keep_their_order_as_far_as_they_can() -> None:
    calls: list[JSON] = [
        {"_tool": "poke_there", "_module": "there", "_outputPath": "v || failed"},
        {"_tool": "poke", "x": "†state.v || †state.b", "_outputPath": "a"},
        {"_tool": "look", "x": "†state.failed || †state.a || †input.n", "_outputPath": "b"},
    ]
    context: list[JSON] = [{"type": "input", "input": {"n": 1}}]
    assert waves(begun(calls, context=context)) == "0, 1, 2"
    driven = begun(calls, context=context)
    driven.running.clear()
    driven.post(CallFinished(0, error={"kind": "runtime", "message": "no"}))
    assert driven.statuses() == ["caught", "waiting", "running"], (
        "the change needs what the read gives"
    )
    driven.finish_all()
    assert [index for index, _ in driven.executions] == [2, 1]


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["poke", "look look look poke"])
def test_thousands_of_calls_of_one_module_are_ordered_in_one_pass(text: str) -> None:
    driven = begun(" ".join((text.split() * 4_000)[:4_000]))
    while driven.running:
        driven.finish_one(len(driven.running) - 1)
    assert driven.machine.status == "done"
    assert len(driven.executions) == 4_000
