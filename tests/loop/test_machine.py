"""The machine, event by event: each rule of plans, approvals and groups as an example."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any, get_args

import pytest

from ideabridge.bridge.loop.effect import Execute
from ideabridge.bridge.loop.event import (
    CallDecided,
    CallFinished,
    CallProposed,
    Event,
    JournalError,
    OutputProposed,
    SolutionClosed,
    SolutionProposed,
    decider_of,
)
from ideabridge.bridge.loop.machine import CUT_OFF, Machine
from ideabridge.bridge.loop.settings import Settings
from ideabridge.tools.encoding import JSON
from ideabridge.tools.tool import Annotations, Tool
from tests.loop.driving import ANY_PARAMETERS, READ_ONLY, TOOLS, Driven, started

STRICT = Tool(
    "add",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    annotations=READ_ONLY,
)


def failing(*places: int):
    def execute(effect: Execute) -> tuple[bool, JSON]:
        if effect.call.index in places:
            return (False, "boom")
        return (True, effect.parameters.get("x"))

    return execute


def state(driven: Driven) -> JSON:
    return driven.machine.state_of()


def check(
    calls: list[JSON], output: JSON = None, context: list[JSON] | None = None, **kwargs: Any
) -> list[str]:
    """The problems of a whole solution, as text."""
    driven = Driven()
    driven.post(started(context, tools=[*TOOLS, STRICT], **kwargs))
    found: list[str] = []
    for entry in driven.machine.check(SolutionProposed(calls, output)).errors:
        error = entry["error"]
        assert isinstance(error, dict)
        found.append(str(error["message"]))

    return found


# -- references and binding ------------------------------------------------------------------------


def test_a_call_runs_the_moment_its_inputs_exist() -> None:
    driven = Driven()
    driven.post(started())
    driven.post(
        SolutionProposed(
            [
                {"_tool": "echo", "x": 1, "_outputPath": "a"},
                {"_tool": "echo", "x": 2, "_outputPath": "b"},
                {"_tool": "echo", "x": {"a": "†state.a"}, "_outputPath": "c"},
            ]
        )
    )
    assert [effect.call.index for effect in driven.running] == [0, 1]
    driven.finish_one(0)
    assert [effect.call.index for effect in driven.running] == [1, 2], "2 waits for 0 alone"
    driven.finish_all()
    assert state(driven) == {"a": 1, "b": 2, "c": {"a": 1}}


def test_a_read_sees_what_was_listed_before_it_and_not_what_comes_after() -> None:
    driven = Driven().whole(
        started([{"type": "state", "state": {"a": "old"}}]),
        [
            {"_tool": "echo", "x": "†state.a", "_outputPath": "first"},
            {"_tool": "echo", "x": "new", "_outputPath": "a"},
            {"_tool": "echo", "x": "†state.a", "_outputPath": "second"},
        ],
    )
    assert state(driven) == {"a": "new", "first": "old", "second": "new"}


def test_a_read_binds_forward_only_where_nothing_stands_before() -> None:
    driven = Driven()
    driven.post(started(mode="solve", output_schema={"type": "object"}))
    driven.post(CallProposed({"_tool": "echo", "x": "†state.late", "_outputPath": "early"}))
    assert not driven.running, "it waits for the end of the answer"
    driven.post(CallProposed({"_tool": "echo", "x": 5, "_outputPath": "late"}))
    driven.post(OutputProposed({"early": "†state.early"}))
    driven.post(SolutionClosed())
    driven.finish_all()
    assert driven.machine.output == {"early": 5}
    assert state(driven) == {"late": 5, "early": 5}


def test_what_is_put_in_is_a_literal_for_ever() -> None:
    looks_like_one = "†state.secret"
    driven = Driven().whole(
        started(
            [
                {"type": "input", "input": {"text": looks_like_one}},
                {"type": "state", "state": {"secret": 1}},
            ]
        ),
        [
            {"_tool": "echo", "x": "†input.text", "_outputPath": "copy"},
            {"_tool": "echo", "x": "†state.copy", "_outputPath": "again"},
            {"_tool": "echo", "x": "††state.secret", "_outputPath": "escaped"},
        ],
    )
    assert state(driven) == {
        "secret": 1,
        "copy": looks_like_one,
        "again": looks_like_one,
        "escaped": looks_like_one,
    }


def test_the_first_that_exists_and_null_exists() -> None:
    driven = Driven().whole(
        started([{"type": "input", "input": {"none": None, "n": 3}}]),
        [
            {
                "_tool": "echo",
                "x": "†input.missing || †input.none || †input.n",
                "_outputPath": "or",
            },
            {"_tool": "echo", "x": "†input.none && †input.n", "_outputPath": "and"},
            {
                "_tool": "echo",
                "x": "†input.missing && †input.none || †input.n",
                "_outputPath": "tight",
            },
        ],
    )
    assert state(driven) == {"or": None, "and": 3, "tight": 3}


def test_text_that_holds_json_is_read_into() -> None:
    driven = Driven().whole(
        started(),
        [
            {"_tool": "echo", "x": '{"commits": [{"author": "Ann"}]}'},
            {"_tool": "echo", "x": "†results.0.commits.0.author", "_outputPath": "author"},
        ],
    )
    assert state(driven) == {"author": "Ann"}


def test_merge_push_and_both() -> None:
    driven = Driven().whole(
        started([{"type": "state", "state": {"o": {"a": {"b": 1}}}}]),
        [
            {"_tool": "write", "x": {"a": {"c": 2}}, "_outputPath": "o", "_outputMethod": "merge"},
            {"_tool": "write", "x": 1, "_outputPath": "list", "_outputMethod": "push"},
            {"_tool": "write", "x": 2, "_outputPath": "list", "_outputMethod": "push"},
            {"_tool": "write", "x": 9, "_outputPath": 'p && †state["odd key"].q'},
        ],
    )
    assert state(driven) == {
        "o": {"a": {"b": 1, "c": 2}},
        "list": [1, 2],
        "p": 9,
        "odd key": {"q": 9},
    }


def test_no_writing_through_a_scalar() -> None:
    driven = Driven().whole(
        started([{"type": "state", "state": {"n": 1}}]),
        [{"_tool": "echo", "x": 2, "_outputPath": "n.deep"}],
    )
    assert "is a number, not an object" in driven.error_of(0)
    assert state(driven) == {"n": 1}


# -- _each, _after, order --------------------------------------------------------------------------


def test_each_runs_bounded_and_keeps_order() -> None:
    driven = Driven(seed=7)
    driven.post(
        started(
            [{"type": "input", "input": {"items": [{"id": n} for n in range(20)]}}],
            settings=Settings(approval="allow_all", parallel_calls=4),
        )
    )
    driven.post(
        SolutionProposed(
            [{"_tool": "echo", "_each": "†input.items", "x": "†item.id", "_outputPath": "ids"}]
        )
    )
    driven.finish_all()
    assert state(driven) == {"ids": list(range(20))}
    assert driven.peak == 4


def test_one_failed_item_fails_the_call_and_keeps_the_others_where_it_is_caught() -> None:
    def execute(effect: Execute) -> tuple[bool, JSON]:
        return (effect.item != 1, effect.parameters["x"])

    driven = Driven(execute).whole(
        started(),
        [
            {"_tool": "echo", "_each": [1, 2, 3], "x": "†item", "_outputPath": "bad"},
            {"_tool": "echo", "_each": [1, 2, 3], "x": "†item", "_outputPath": "good || caught"},
        ],
    )
    assert driven.statuses() == ["failed", "caught"]
    assert "1 of 3 items failed: item 1" in driven.error_of(0)
    caught = driven.machine.state_of()["caught"]
    assert isinstance(caught, dict)
    assert caught["results"] == [1, None, 3]


def test_listed_order_gives_way_to_data() -> None:
    driven = Driven().whole(
        started(),
        [
            {"_tool": "write", "x": "†state.b", "_outputPath": "a"},
            {"_tool": "write", "x": 2, "_outputPath": "b"},
            {"_tool": "write", "x": 3, "_outputPath": "c"},
        ],
    )
    assert [call for call, _ in driven.executions] == [1, 0, 2]


def test_after_a_failed_call_nothing_runs_and_after_a_caught_one_it_does() -> None:
    driven = Driven(failing(0, 2)).whole(
        started(),
        [
            {"_tool": "echo", "x": 0, "_id": "first"},
            {"_tool": "echo", "x": 1, "_after": ["first"]},
            {"_tool": "echo", "x": 2, "_id": "caught", "_outputPath": "ok || err"},
            {"_tool": "echo", "x": 3, "_after": ["caught"]},
        ],
    )
    assert driven.statuses() == ["failed", "failed", "caught", "done"]
    assert "call 0 (echo) failed" in driven.error_of(1)


# -- errors and branches ---------------------------------------------------------------------------


def test_a_failure_names_itself_down_the_chain_and_leaves_siblings_alone() -> None:
    driven = Driven(failing(0)).whole(
        started(),
        [
            {"_tool": "echo", "x": 0, "_outputPath": "a"},
            {"_tool": "echo", "x": "†state.a", "_outputPath": "b"},
            {"_tool": "echo", "x": "†state.b"},
            {"_tool": "echo", "x": "fine", "_outputPath": "sibling"},
        ],
    )
    assert driven.statuses() == ["failed", "failed", "failed", "done"]
    assert driven.error_of(0) == "boom"
    assert "†state.a: call 0 (echo), which writes it, failed" in driven.error_of(1)
    assert "call 1 (echo), which writes it, failed" in driven.error_of(2)
    assert [error["place"] for error in driven.machine.errors] == [0, 1, 2]
    assert driven.machine.status == "done", "a plan with failed calls is done, with errors"


def test_the_branch_not_taken_is_skipped() -> None:
    calls: list[JSON] = [
        {"_tool": "echo", "x": 0, "_outputPath": "ok || err"},
        {"_tool": "echo", "x": "†state.ok", "_outputPath": "then"},
        {"_tool": "echo", "x": "†state.err.message", "_outputPath": "else"},
        {"_tool": "echo", "x": "†state.then || †state.else", "_outputPath": "end"},
    ]
    good = Driven().whole(started(), calls)
    assert good.statuses() == ["done", "done", "skipped", "done"]
    assert state(good) == {"ok": 0, "then": 0, "end": 0}
    bad = Driven(failing(0)).whole(started(), calls)
    assert bad.statuses() == ["caught", "skipped", "done", "done"]
    assert bad.machine.state_of()["end"] == "boom"
    assert not good.machine.errors
    assert not bad.machine.errors, "a caught failure is no error"


def test_a_failed_supplier_with_another_operand_is_no_error_for_the_reader() -> None:
    driven = Driven(failing(0)).whole(
        started(),
        [
            {"_tool": "echo", "x": 0, "_outputPath": "a"},
            {"_tool": "echo", "x": 7, "_outputPath": "b"},
            {"_tool": "echo", "x": "†state.a || †state.b", "_outputPath": "c"},
        ],
    )
    assert driven.statuses() == ["failed", "done", "done"]
    assert driven.machine.state_of()["c"] == 7


def test_resolved_values_are_checked_against_the_exact_schema() -> None:
    driven = Driven().whole(
        started([{"type": "input", "input": {"n": "three"}}], tools=[*TOOLS, STRICT]),
        [{"_tool": "add", "a": 1, "b": "†input.n"}],
    )
    assert driven.statuses() == ["failed"]
    assert "b" in driven.error_of(0)
    assert driven.executions == []


def test_structural_problems_are_found_before_anything_runs() -> None:
    assert "unknown tool 'ecko'" in check([{"_tool": "ecko", "x": 1}])[0]
    assert "'echo'" in check([{"_tool": "ecko", "x": 1}])[0], "the nearest name is told"
    assert "unknown server 'git'" in check([{"_tool": "echo", "_module": "git"}])[0]
    assert "nothing supplies †state.nope" in check([{"_tool": "echo", "x": "†state.nope"}])[0]
    assert "nothing supplies †input.nope" in check([{"_tool": "echo", "x": "†input.nope"}])[0]
    assert "a" in check([{"_tool": "add", "a": "x", "b": 1}])[0]
    assert (
        "†item can be read only in a call with _each" in check([{"_tool": "echo", "x": "†item"}])[0]
    )
    assert (
        "call 0 (echo) writes to a"
        in check([{"_tool": "echo", "_outputPath": "a"}], "†results.0")[0]
    )
    assert "no call has the _id 'x'" in check([{"_tool": "echo", "_after": ["x"]}])[0]
    assert (
        "an earlier call already has the id"
        in check([{"_tool": "echo", "_id": "x"}, {"_tool": "echo", "_id": "x"}])[0]
    )
    assert (
        "write 'report.title'" in check([{"_tool": "echo", "_outputPath": "state.report.title"}])[0]
    )
    assert "only state can be written" in check([{"_tool": "echo", "_outputPath": "†input.x"}])[0]
    assert "every operand starts with †" in check([{"_tool": "echo", "x": "†state.a || b"}])[0]
    assert "write '†state.a'" in check([{"_tool": "echo", "x": "{{state.a}}"}])[0]


def test_a_cycle_is_named() -> None:
    problems = check(
        [
            {"_tool": "echo", "x": "†state.c", "_outputPath": "a"},
            {"_tool": "echo", "x": "†state.a", "_outputPath": "b"},
            {"_tool": "echo", "x": "†state.b", "_outputPath": "c"},
            {"_tool": "echo", "x": 1},
        ]
    )
    assert len(problems) == 3
    assert "call 0 (echo) -> call 2 (echo) -> call 1 (echo) -> call 0 (echo)" in problems[0]


def test_a_cycle_through_a_later_alternative_is_named_when_nothing_moves_any_more() -> None:
    driven = Driven(failing(0)).whole(
        started(),
        [
            {"_tool": "echo", "x": 0, "_outputPath": "a"},
            {"_tool": "echo", "x": "†state.a || †state.c", "_outputPath": "b"},
            {"_tool": "echo", "x": "†state.b", "_outputPath": "c"},
        ],
    )
    assert driven.statuses() == ["failed", "failed", "failed"]
    assert "a cycle" in driven.error_of(1)


# -- state schemas and instances -------------------------------------------------------------------

SENTIMENT: JSON = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "sentiment": {"type": "string"}},
    "required": ["text", "sentiment"],
}


def test_a_state_schema_closes_the_paths_and_checks_values() -> None:
    context: list[JSON] = [{"type": "state", "state": {"text": "good"}, "schema": SENTIMENT}]
    assert (
        "does not declare †state.sentimant"
        in check([{"_tool": "echo", "_outputPath": "sentimant"}], None, context)[0]
    )
    driven = Driven().whole(
        started(context), [{"_tool": "echo", "x": 5, "_outputPath": "sentiment"}]
    )
    assert driven.statuses() == ["failed"]
    errors = [str(error) for error in driven.machine.errors]
    assert len(errors) == 2, "the call, and the state that lacks a required member in the end"


def test_instances_share_a_request_and_nothing_else() -> None:
    context: list[JSON] = [
        {"type": "input", "input": {"language": "en", "tone": "plain"}},
        {"type": "input", "input": {"tone": "warm"}, "_instance": "②"},
        {"type": "state", "state": {"text": "This is wonderful!"}, "_instance": "①"},
        {"type": "state", "state": {"text": "This is terrible."}, "_instance": "②"},
    ]
    calls: list[JSON] = [
        {
            "_tool": "echo",
            "_instance": one,
            "x": ["†state.text", "†input.tone", "†input.language"],
            "_outputPath": "out",
        }
        for one in ("①", "②")
    ]
    driven = Driven().whole(
        started(context), [*calls, {"_tool": "echo", "_instance": "①", "x": "†②.state.out"}]
    )
    assert driven.machine.state == {
        "①": {"text": "This is wonderful!", "out": ["This is wonderful!", "plain", "en"]},
        "②": {"text": "This is terrible.", "out": ["This is terrible.", "warm", "en"]},
    }
    assert driven.machine.history[2].value == ["This is terrible.", "warm", "en"]
    assert "_instance: expected one of ②, ①" in check([{"_tool": "echo"}], None, context)[0]
    assert "unknown instance '③'" in check([{"_tool": "echo", "_instance": "③"}], None, context)[0]


# -- the loop --------------------------------------------------------------------------------------

TEXT: dict[str, JSON] = {"type": "string"}


def test_errors_of_a_tick_come_together_and_the_next_request_follows() -> None:
    driven = Driven(failing(0, 1))
    driven.post(started(mode="solve", output_schema=TEXT))
    driven.post(
        SolutionProposed(
            [{"_tool": "echo", "x": 1}, {"_tool": "echo", "x": 2}, {"_tool": "echo", "x": 3}]
        )
    )
    driven.finish_all()
    assert driven.machine.awaits_solution
    assert driven.machine.step == 1
    assert [error["place"] for error in driven.machine.errors] == [0, 1]
    driven.post(
        SolutionProposed([{"_tool": "echo", "x": "done", "_outputPath": "end"}], "†state.end")
    )
    driven.finish_all()
    assert driven.machine.status == "done"
    assert driven.machine.output == "done"
    assert driven.machine.history[3].call.place == 3, "places count through the run"


def test_neither_calls_nor_output_is_said_once_and_then_the_run_is_stalled() -> None:
    driven = Driven()
    driven.post(started(mode="solve"))
    driven.post(SolutionProposed([], None))
    assert driven.machine.awaits_solution
    assert "neither calls nor an output" in str(driven.machine.errors)
    driven.post(SolutionProposed([], None))
    assert driven.machine.status == "stalled"


def test_answers_that_crashes_cut_off_do_not_stall_a_run() -> None:
    driven = Driven()
    driven.post(started(mode="solve"))
    for _ in range(3):
        driven.post(OutputProposed("half"))
        driven.post(SolutionClosed(CUT_OFF))
        assert driven.machine.awaits_solution
        assert CUT_OFF in str(driven.machine.errors)

    driven.post(SolutionProposed([], "whole"))
    assert (driven.machine.status, driven.machine.output) == ("done", "whole")


def test_an_output_that_is_not_valid_is_an_error_for_the_next_request() -> None:
    driven = Driven()
    driven.post(started(mode="solve", output_schema={"type": "integer"}))
    driven.post(SolutionProposed([], "seven"))
    assert driven.machine.awaits_solution
    assert "output" in str(driven.machine.errors)
    driven.post(SolutionProposed([], 7))
    assert driven.machine.output == 7


def test_an_output_that_may_be_null_comes_wrapped() -> None:
    driven = Driven()
    driven.post(started(mode="solve", output_schema={"type": ["string", "null"]}))
    driven.post(SolutionProposed([], {"value": None}))
    assert driven.machine.status == "done"
    assert driven.machine.has_output
    assert driven.machine.output is None


def test_an_answer_that_breaks_off_keeps_what_started() -> None:
    driven = Driven()
    driven.post(started(mode="solve"))
    driven.post(CallProposed({"_tool": "echo", "x": 1, "_outputPath": "a"}))
    driven.post(SolutionClosed(broken="the connection was lost"))
    driven.finish_all()
    assert driven.machine.awaits_solution
    assert state(driven) == {"a": 1}
    assert "was cut off: the connection was lost" in str(driven.machine.errors)


def test_the_limit_of_requests_ends_a_run_with_the_reason() -> None:
    driven = Driven()
    driven.post(started(mode="solve", settings=Settings(approval="allow_all", requests=2)))
    for _ in range(2):
        driven.post(SolutionProposed([{"_tool": "echo", "x": 1}]))
        driven.finish_all()

    assert driven.machine.status == "limit"
    assert driven.machine.reason is not None
    assert "2 requests" in driven.machine.reason


# -- people ----------------------------------------------------------------------------------------

DANGER = Tool(
    "danger", parameters=ANY_PARAMETERS, annotations=Annotations(read_only=False, destructive=True)
)


def asking() -> Driven:
    driven = Driven()
    driven.post(started(mode="solve", tools=[*TOOLS, DANGER], settings=Settings()))
    driven.post(
        SolutionProposed(
            [
                {"_tool": "echo", "x": "rm", "_outputPath": "what"},
                {"_tool": "danger", "x": "†state.what", "_outputPath": "done"},
                {"_tool": "echo", "x": "†state.done"},
            ]
        )
    )
    driven.finish_all()
    return driven


def digest(driven: Driven) -> str:
    """What a decision on the call that waits is bound to."""
    approval = driven.machine.history[1].approval
    assert approval is not None
    return approval.digest


def test_an_unblocked_call_is_asked_about_with_its_references_resolved() -> None:
    driven = asking()
    assert driven.machine.waits_for_people
    approval = driven.machine.history[1].approval
    assert approval is not None
    assert approval.resolved == {"_tool": "danger", "_outputPath": "done", "x": "rm"}
    assert "declares that it is destructive" in approval.why
    driven.post(CallDecided(1, approval.digest, "approve", decider_of("Ann")))
    driven.finish_all()
    assert driven.machine.state_of()["done"] == "rm"


def test_a_denied_call_fails_with_the_reason_and_the_mind_is_told() -> None:
    driven = asking()
    with pytest.raises(JournalError, match="about a different call"):
        driven.post(CallDecided(1, "another", "deny", decider_of("Ann")))

    driven.post(CallDecided(1, digest(driven), "deny", decider_of("Ann"), "not today"))
    driven.finish_all()
    assert driven.statuses() == ["done", "failed", "failed"]
    assert driven.error_of(1) == "denied by Ann: not today"
    assert driven.machine.feedback.corrections == [
        {
            "proposed": {"_tool": "danger", "_outputPath": "done", "x": "rm"},
            "ran": None,
            "by": "Ann",
            "reason": "not today",
        }
    ]


def test_an_edit_is_literal() -> None:
    driven = asking()
    driven.post(
        CallDecided(
            1,
            digest(driven),
            "edit",
            decider_of("Ann"),
            "safer",
            {"_tool": "danger", "x": "†state.what"},
        )
    )
    driven.finish_all()
    assert driven.machine.state_of()["done"] == "†state.what", "a person's text is not scanned"


# -- events that do not fit ------------------------------------------------------------------------


def test_events_that_do_not_fit_are_refused() -> None:
    driven = Driven()
    driven.post(started())
    with pytest.raises(JournalError, match=r"finished without running|not solving"):
        driven.machine.receive(CallFinished(0, value=1))

    driven.post(SolutionProposed([{"_tool": "echo", "x": 1}]))
    driven.finish_all()
    with pytest.raises(JournalError, match="has ended"):
        driven.machine.receive(CallFinished(0, value=1))


def test_a_long_chain_and_a_wide_fan_do_not_recurse() -> None:
    chain: list[JSON] = [{"_tool": "echo", "x": 0, "_outputPath": "s0"}]
    for n in range(1500):
        chain.append({"_tool": "echo", "x": f"†state.s{n}", "_outputPath": f"s{n + 1}"})

    driven = Driven().whole(started(), chain, "†state.s1500")
    assert driven.machine.output == 0
    broken = Driven(failing(0)).whole(started(), chain)
    assert set(broken.statuses()) == {"failed"}
    fan: list[JSON] = []
    for n in range(1000):
        fan.append({"_tool": "echo", "x": n, "_outputPath": f"part.p{n}"})

    fan.append({"_tool": "echo", "x": "†state.part", "_outputPath": "all"})
    wide = Driven().whole(started(), fan)
    assert isinstance(wide.machine.state_of()["all"], dict)


@pytest.mark.parametrize("method", ["set", "merge"])
def test_a_closed_state_takes_no_undeclared_members_however_they_come(method: str) -> None:
    context: list[JSON] = [{"type": "state", "state": {"text": "good"}, "schema": SENTIMENT}]
    write: dict[str, JSON] = {"_tool": "echo", "_outputPath": "†state", "_outputMethod": method}
    calls: list[JSON] = [
        {**write, "x": {"text": "a", "extra": 1}},
        {**write, "x": {"text": "b", "sentiment": "c"}},
    ]
    driven = Driven().whole(started(context), calls)
    assert driven.statuses() == ["failed", "done"]
    assert driven.machine.state == {"text": "b", "sentiment": "c"}


# -- names and notations ---------------------------------------------------------------------------

LISTED = Tool(
    "listed", parameters={"type": "object", "properties": {"x": {}}}, annotations=READ_ONLY
)


def test_a_streamed_call_with_a_misspelt_parameter_fails_alone() -> None:
    calls: list[JSON] = [
        {"_tool": "listed", **given} for given in ({"y": 1}, {"x": "a †state.b"}, {"x": 2})
    ]
    driven = Driven().streamed(started(mode="solve", tools=[LISTED]), calls, "done")
    assert driven.statuses() == ["failed", "failed", "done"]
    assert "y: there is no parameter with this name; the only parameter is 'x'" in driven.error_of(
        0
    )
    assert "template" in driven.error_of(1)


@pytest.mark.parametrize("kind", get_args(Event))
def test_a_machine_has_a_handler_for_every_event(kind: type[Event]) -> None:
    event: Any = kind
    # A handler refuses the event, or the missing members in it. A missing handler would be a
    # KeyError.
    with suppress(JournalError, AttributeError, TypeError):
        Machine().receive(event(*[None] * len(fields(kind))))
