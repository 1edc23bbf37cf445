"""The bridge as an application uses it: plans, the loop by turns, restarts,
approvals, publishing.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration, load_configuration
from ideabridge.bridge.errors import (
    DecisionError,
    FinishedRunError,
    InterruptedRunError,
    PlanError,
    PublicationError,
    RejectedSolutionError,
    SettledTurnError,
    UnknownPathError,
)
from ideabridge.bridge.loop.event import CallStarted, Event
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import StoreBusyError, UnknownIdeaError, UnknownRunError
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError, IdeabridgeError, ValueMismatchError
from ideabridge.tools.tool import ActivityContext
from ideabridge.tools.toolbox import Toolbox
from tests import preloaded
from tests.asking import ASKS

pytestmark = pytest.mark.anyio

BIN = Path(sys.executable).parent


@tool(read_only=True)
def shout(text: str) -> str:
    """Make text loud."""
    return text.upper()


@tool(read_only=True)
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    if b == 0:
        raise ActivityError("b is 0")
    return a / b


@tool(read_only=False)
def send(to: str, text: str) -> str:
    """Send a text to somebody."""
    return f"sent to {to}: {text}"


@tool(read_only=True)
def crash() -> str:
    """Raise what nobody expected."""
    raise KeyError("inner detail")


@tool(read_only=True)
def remember(text: str, context: ActivityContext) -> str:
    """Tell the mind something for its next Request."""
    context.add_message({"role": "user", "content": f"remember: {text}"})
    return text


def toolbox() -> Toolbox:
    return Toolbox(shout, divide, send, crash, remember)


async def plan(bridge: Bridge, raw: JSON, caller: str = "local") -> Run:
    run = await bridge.run_plan(read_plan(raw), caller=caller)
    await run.wait(20)
    return run


async def test_a_plan_over_real_servers_and_python_tools(tmp_path: Path) -> None:
    (tmp_path / "ideabridge.json").write_text(
        json.dumps({"mcpServers": {"time": preloaded.module(BIN / "mcp-server-time")}}),
        encoding="utf-8",
    )
    configuration = load_configuration(tmp_path / "ideabridge.json", project=tmp_path)
    async with Bridge(configuration, toolbox=toolbox(), store=tmp_path / "ideas.sqlite") as bridge:
        run = await plan(
            bridge,
            {
                "input": {"zone": "Asia/Tokyo"},
                "calls": [
                    {
                        "_tool": "convert_time",
                        "_module": "time",
                        "source_timezone": "UTC",
                        "time": "10:00",
                        "target_timezone": "†input.zone",
                        "_outputPath": "time",
                    },
                    {
                        "_tool": "shout",
                        "text": "†state.time.target.timezone",
                        "_outputPath": "loud",
                    },
                ],
                "output": {"zone": "†state.loud", "difference": "†state.time.time_difference"},
            },
        )
        answer = run.answer()
        assert answer["status"] == "done"
        assert answer["output"] == {"zone": "ASIA/TOKYO", "difference": "+9.0h"}
        stored = bridge.store.ideas.get(str(answer["idea"]), caller=SEES_ALL)
        assert stored.meta.tools == ("convert_time", "shout")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("text", 'expected {"calls"'),
        ({"cals": []}, "unknown key 'cals'. Did you mean 'calls'"),
        ({"input": {}}, '"calls" is missing'),
        ({"calls": 5}, "calls"),
        ({"calls": [5]}, "calls[0]"),
        ({"calls": [{"_tool": "shut", "text": "x"}]}, "unknown tool 'shut'. Did you mean 'shout'"),
        ({"calls": [{"_tool": "shout", "_module": "gti", "text": "x"}]}, "unknown server 'gti'"),
        ({"calls": [{"_tool": "shout", "text": 5}]}, "text"),
        ({"calls": [{"_tool": "shout", "text": "†state.nope"}]}, "nothing supplies †state.nope"),
        (
            {"calls": [{"_tool": "shout", "text": "†state.a", "_outputPath": "a"}]},
            "nothing supplies †state.a",
        ),
        (
            {
                "calls": [
                    {"_tool": "shout", "text": "†state.b", "_outputPath": "a"},
                    {"_tool": "shout", "text": "†state.a", "_outputPath": "b"},
                ]
            },
            "a cycle: call 0 (shout) -> call 1 (shout) -> call 0 (shout)",
        ),
        ({"calls": [], "instances": {"①": 5}}, "instances.①: expected an object"),
        ({"calls": [], "input": []}, "input: expected an object"),
    ],
)
async def test_bad_plans_are_refused_with_what_where_and_expected(raw: JSON, says: str) -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        with pytest.raises(PlanError) as caught:
            await plan(bridge, raw)
        assert says in str(caught.value)
        assert bridge.runs() == [], "a malformed plan leaves no run behind"


async def test_failures_are_told_without_internals_and_siblings_go_on() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await plan(
            bridge,
            {
                "calls": [
                    {"_tool": "divide", "a": 1, "b": 0, "_outputPath": "x"},
                    {"_tool": "divide", "a": "†state.x", "b": 1},
                    {"_tool": "crash"},
                    {"_tool": "shout", "text": "fine"},
                ]
            },
        )
        answer = run.answer()
        assert answer["status"] == "done"
        assert answer["results"] == {"3": "FINE"}
        messages = [str(error["error"]) for error in run.errors()]
        assert len(messages) == 3
        assert "b is 0" in messages[0]
        assert "call 0 (divide), which writes it, failed" in messages[1]
        assert "Traceback" not in messages[2]


async def test_instances_give_a_map_and_a_call_without_one_runs_for_every() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await plan(
            bridge,
            {
                "instances": {"①": {"t": "good"}, "②": {"t": "bad"}},
                "calls": [
                    {"_tool": "shout", "text": "†state.t"},
                    {"_tool": "shout", "text": "†results.0", "_outputPath": "loud"},
                ],
                "output": "†state.loud",
            },
        )
        assert run.answer()["output"] == {"①": "GOOD", "②": "BAD"}


async def test_a_dry_run_tells_the_order_and_runs_nothing() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        told = await bridge.dry_run(
            read_plan(
                {
                    "calls": [
                        {"_tool": "shout", "text": "a", "_outputPath": "a"},
                        {"_tool": "shout", "text": "b", "_outputPath": "b"},
                        {"_tool": "send", "to": "†state.a", "text": "†state.b"},
                    ]
                }
            )
        )
        assert told["layers"] == [[0, 1], [2]]
        assert told["not_read_only"] == [2]
        assert bridge.runs() == []


# -- the loop by turns -----------------------------------------------------------------------------


async def test_three_turns_with_a_malformed_solution_a_failing_call_and_restarts(
    tmp_path: Path,
) -> None:
    store = tmp_path / "ideas.sqlite"
    schema: JSONObject = {
        "type": "object",
        "properties": {"half": {"type": "number"}},
        "required": ["half"],
    }
    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        run = await bridge.solve("Halve the number.", input={"n": 9}, output_schema=schema)
        answer = run.answer()
        assert (answer["status"], answer["turn"]) == ("needs_solution", 0)
        with pytest.raises(RejectedSolutionError, match="at most 10,000"):
            run.submit(0, {"calls": list[JSON]([None] * 10_001)})

        assert (run.status, run.turn) == ("needs_solution", 0), "it can be sent again"
        run.submit(
            0,
            {
                "calls": [
                    {"_tool": "devide", "a": "†input.n", "b": 0, "_outputPath": "quarter"},
                    {"_tool": "divide", "a": "†input.n", "b": 0, "_outputPath": "half"},
                    {"_tool": "divide", "a": "†state.quarter", "b": 1},
                    {"_tool": "divide", "a": "†input.n", "b": 3, "_outputPath": "third"},
                ]
            },
        )
        assert await run.wait(30) == "needs_solution"
        assert run.value("†state.third") == 3, "what is well formed runs beside what is not"
        assert [one["place"] for one in run.errors()] == [0, 1, 2]
        run_id = run.id

    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        run = await bridge.run(run_id)
        assert (run.status, run.turn) == ("needs_solution", 1)
        requests = run.answer()["requests"]
        told = json.dumps(requests)
        assert "b is 0" in told
        assert "Did you mean 'divide'" in told
        assert "call 0 (devide), which writes it, failed" in told
        run.submit(
            1, {"calls": [{"_tool": "divide", "a": "†input.n", "b": 2, "_outputPath": "half"}]}
        )
        assert await run.wait(30) == "needs_solution"

    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        run = await bridge.run(run_id)
        run.submit(2, {"calls": [], "output": {"half": "†state.half"}})
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == {"half": 4.5}
        assert len(bridge.store.ideas.of_run(run_id)) == 3, "every Request is an idea"
        # Submitting the same Solution again returns the same result; a different one is refused.
        run.submit(
            1, {"calls": [{"_tool": "divide", "a": "†input.n", "b": 2, "_outputPath": "half"}]}
        )
        with pytest.raises(SettledTurnError, match="already answered with another solution"):
            run.submit(1, {"calls": [], "output": {"half": 1}})

        with pytest.raises(FinishedRunError, match="has ended"):
            run.submit(3, {"calls": [], "output": {"half": 1}})


async def test_errors_name_a_call_by_its_place_in_its_solution_and_in_the_run() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await bridge.solve("Halve the number.", input={"n": 9})
        run.submit(
            0, {"calls": [{"_tool": "shout", "text": "one"}, {"_tool": "shout", "text": "two"}]}
        )
        assert await run.wait(30) == "needs_solution"
        failing: JSON = {"_tool": "divide", "a": 1, "b": 0, "_outputPath": "half"}
        reading: JSON = {"_tool": "shout", "text": "†state.half"}
        run.submit(
            1,
            {
                "calls": [
                    failing,
                    reading,
                    {"_tool": "shout", "text": "a"},
                    {"_tool": "shout", "text": 5},
                ]
            },
        )
        assert await run.wait(30) == "needs_solution"
        malformed = run.errors()[-1]
        assert (malformed["place"], malformed["in_solution"]) == (5, 3)
        told = json.dumps(run.answer()["requests"], ensure_ascii=False)
        assert "call 0 of its solution, 2 of the run, " in told
        assert (
            "†state.half: call 0 of its solution, 2 of the run (divide), which writes it, failed"
            in told
        )
        # A result is read later by the place that it has in the run.
        run.submit(2, {"calls": [], "output": "†results.4"})
        assert await run.result() == "A"


async def test_a_turn_that_is_not_open_is_refused() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await bridge.solve("x")
        with pytest.raises(SettledTurnError, match="turn 4 is not open; the current turn is 0"):
            run.submit(4, {"calls": []})
        with pytest.raises(ValueMismatchError):
            run.submit(0, "no JSON at all")


async def test_a_later_request_tells_results_by_reference() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await bridge.solve("x", tools=["shout", "remember"])
        calls: list[JSON] = [
            {"_tool": "shout", "text": "long " * 2000, "_outputPath": "log"},
            {"_tool": "shout", "text": "short"},
            {"_tool": "remember", "text": "the milk"},
        ]
        run.submit(0, {"calls": calls})
        await run.wait(30)
        text = json.dumps(run.answer()["requests"], ensure_ascii=False)
        assert '\\"shortened\\": \\"†state.log\\"' in text
        assert "SHORT" in text
        assert "remember: the milk" in text
        assert len(text) < 12_000
        assert run.value("†state.log") == ("LONG " * 2000)
        with pytest.raises(UnknownPathError, match="has no 'nope'"):
            run.value("†state.nope")


async def test_each_caller_sees_only_its_own_runs() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await bridge.solve("x", caller="ann")
        with pytest.raises(UnknownRunError):
            await bridge.run(run.id, caller="ben")
        assert bridge.runs(caller="ben") == []
        assert len(bridge.runs(caller="ann")) == 1
        with pytest.raises(UnknownIdeaError):
            await bridge.publish(run.id, "mine", caller="ben")


# -- people ----------------------------------------------------------------------------------------

SENDING: JSON = {
    "calls": [
        {"_tool": "shout", "text": "hi", "_outputPath": "text"},
        {"_tool": "send", "to": "Ann", "text": "†state.text", "_outputPath": "sent"},
    ],
    "output": "†state.sent",
}


async def test_a_call_that_is_not_read_only_waits_for_a_person_also_over_a_restart(
    tmp_path: Path,
) -> None:
    store = tmp_path / "ideas.sqlite"
    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        run = await plan(bridge, SENDING)
        assert run.status == "needs_approval"
        run_id = run.id

    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        run = await bridge.run(run_id)
        assert run.status == "needs_approval"
        (pending,) = run.approvals()
        assert isinstance(pending, dict)
        assert pending["call"] == {
            "_tool": "send",
            "_outputPath": "sent",
            "to": "Ann",
            "text": "HI",
        }
        with pytest.raises(DecisionError, match="no approval 'nope' is pending"):
            run.decide("nope", "approve", by="Ann")

        with pytest.raises(DecisionError, match="cannot run"):
            run.decide(
                str(pending["approval"]),
                "edit",
                by="Ann",
                call={"_tool": "send", "to": 5, "text": "x"},
            )

        run.decide(
            str(pending["approval"]),
            "edit",
            by="Ann",
            call={"_tool": "send", "to": "Ben", "text": "hello"},
        )
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == "sent to Ben: hello"


async def test_the_views_follow_while_the_bridge_is_open_and_nobody_searches(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ideas.sqlite"
    async with Bridge(ASKS, toolbox=toolbox(), store=path, lease_seconds=0.05) as bridge:
        run = await plan(bridge, {"calls": [{"_tool": "shout", "text": "x"}]})
        await run.result()
        with closing(sqlite3.connect(path)) as reader, anyio.fail_after(20):
            # This reader plays another program, which receives none of our events.
            while not reader.execute("SELECT tool FROM call_list").fetchall():  # noqa: ASYNC110
                await anyio.sleep(0.01)
            words = "SELECT rowid FROM idea_words WHERE idea_words MATCH 'shout'"
            assert reader.execute(words).fetchall() == [(1,)]


async def test_a_denial_is_an_error_with_the_reason() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await plan(bridge, SENDING)
        (pending,) = run.approvals()
        assert isinstance(pending, dict)
        run.decide(str(pending["approval"]), "deny", by="Ann", reason="not now")
        assert await run.wait(30) == "failed"
        assert "denied by Ann: not now" in str(run.errors())


async def test_allow_all_asks_nobody() -> None:
    async with Bridge(Configuration(approval="allow_all"), toolbox=toolbox()) as bridge:
        run = await plan(bridge, SENDING)
        assert run.answer()["output"] == "sent to Ann: HI"


# -- survival --------------------------------------------------------------------------------------


def blocking(started: anyio.Event, log: list[str], *, read_only: bool) -> Toolbox:
    """Two tools of which the second never ends in its first life."""

    @tool(name="first", read_only=True)
    async def first() -> str:
        log.append("first")
        return "one"

    @tool(name="second", read_only=read_only)
    async def second(text: str) -> str:
        log.append("second")
        if log.count("second") == 1:
            started.set()
            await anyio.sleep_forever()
        return text + " two"

    return Toolbox(first, second)


CHAIN: JSON = {
    "calls": [
        {"_tool": "first", "_outputPath": "a"},
        {"_tool": "second", "text": "†state.a", "_outputPath": "b"},
    ],
    "output": "†state.b",
}


def skip_unknown(run: Run) -> None:
    for question in run.questions():
        assert question.kind == "outcome"
        run.decide(question.approval, "skip", by="Ann")


@pytest.mark.parametrize("read_only", [True, False])
async def test_what_was_in_flight_runs_again_only_where_that_is_safe(
    tmp_path: Path, read_only: bool
) -> None:
    store = tmp_path / "ideas.sqlite"
    log: list[str] = []
    started = anyio.Event()
    configuration = Configuration(approval="allow_all")
    async with Bridge(
        configuration, toolbox=blocking(started, log, read_only=read_only), store=store
    ) as bridge:
        run = await bridge.run_plan(read_plan(CHAIN))
        await started.wait()
        run_id = run.id

    async with Bridge(
        configuration, toolbox=blocking(started, log, read_only=read_only), store=store
    ) as bridge:
        run = await bridge.run(run_id)
        await run.wait(30)
        assert log.count("first") == 1, "a finished call never runs again"
        if read_only:
            assert run.answer()["output"] == "one two"
        else:
            assert run.status == "needs_approval"
            skip_unknown(run)
            assert await run.wait(30) == "failed"
            assert log.count("second") == 1
            assert "outcome unknown" in str(run.errors())


async def test_two_bridges_share_a_store_and_a_waiting_run_goes_on_in_either(
    tmp_path: Path,
) -> None:
    store = tmp_path / "ideas.sqlite"
    async with (
        Bridge(ASKS, toolbox=toolbox(), store=store) as one,
        Bridge(ASKS, toolbox=toolbox(), store=store) as two,
    ):
        run = await one.solve("x", output_schema={"type": "string"})
        other = await two.run(run.id)
        other.submit(0, {"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}]})
        await other.wait(30)
        back = await one.run(run.id)
        assert back.turn == 1
        back.submit(1, {"calls": [], "output": "†state.a"})
        assert await back.wait(30) == "done"
        assert (await two.run(run.id)).answer()["output"] == "A"


async def test_cancelling_a_run_cancels_its_calls_and_keeps_what_was_done() -> None:
    started = anyio.Event()
    log = list[str]()
    async with Bridge(ASKS, toolbox=blocking(started, log, read_only=True)) as bridge:
        run = await bridge.run_plan(read_plan(CHAIN))
        await started.wait()
        run.cancel("changed my mind")
        assert run.status == "cancelled"
        answer = run.answer()
        assert answer["reason"] == "changed my mind"
        assert answer["state"] == {"a": "one"}


async def test_events_can_be_watched() -> None:
    seen: list[Event] = []
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await bridge.solve("x")
        run.runner.watchers.append(seen.append)
        run.submit(0, {"calls": [{"_tool": "shout", "text": "a"}]})
        await run.wait(30)
        assert any(isinstance(event, CallStarted) for event in seen)


# -- ideas -----------------------------------------------------------------------------------------

HALF: JSON = {
    "input": {"n": 9, "by": 2},
    "calls": [{"_tool": "divide", "a": "†input.n", "b": "†input.by", "_outputPath": "half"}],
    "output": {"half": "†state.half"},
}


async def test_a_run_becomes_a_tool_that_answers_for_other_input(tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        run = await plan(bridge, HALF)
        publication = await bridge.publish(run.id, "halve", description="Halves a number")
        assert (publication.answer, publication.plan is not None) == ("auto", True)
        assert publication.annotations["readOnlyHint"] is True
        assert publication.input_schema is not None
        properties = publication.input_schema["properties"]
        assert isinstance(properties, dict)
        assert list(properties) == ["n", "by"]

    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        replay = await bridge.start_idea("halve", {"n": 5, "by": 4})
        assert replay.run is not None
        await replay.run.wait(30)
        assert replay.run.answer()["output"] == {"half": 1.25}
        with pytest.raises(ValueMismatchError, match="n"):
            await bridge.start_idea("halve", {"n": "five", "by": 4})


async def test_recorded_answers_for_the_recorded_input_alone() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await plan(bridge, HALF)
        assert (await bridge.publish(run.id, "halve", answer="recorded")).answer == "recorded"
        assert (await bridge.start_idea("halve", {"by": 2, "n": 9})).output == {"half": 4.5}
        with pytest.raises(PublicationError, match="only for the input it was recorded with"):
            await bridge.start_idea("halve", {"n": 1, "by": 2})


async def test_constants_become_parameters_with_their_recorded_values() -> None:
    raw: JSON = {
        "input": {"n": 9},
        "calls": [{"_tool": "divide", "a": "†input.n", "b": 2, "_outputPath": "half"}],
        "output": {"half": "†state.half", "unit": "pieces"},
    }
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await plan(bridge, raw)
        published = await bridge.publish(run.id, "halve")
        assert published.version == 1
        assert published.input_schema is not None
        properties = published.input_schema["properties"]
        assert isinstance(properties, dict)
        assert list(properties) == ["n", "b"]
        assert published.input_schema["required"] == ["n"]
        for given, half in (({"n": 9}, 4.5), ({"n": 9, "b": 3}, 3)):
            replay = await bridge.start_idea("halve", given)
            assert replay.run is not None
            assert await replay.run.result() == {"half": half, "unit": "pieces"}
            assert replay.run.assumed == []
        with pytest.raises(PublicationError, match=r"there is nothing at 'calls\.9\.x'"):
            await bridge.publish(run.id, "halve", choices={"take": {"calls.9.x": "keep"}})


async def test_a_run_of_several_requests_is_a_plan_that_says_what_it_assumes() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await bridge.solve("x", input={"a": 1}, output_schema={"type": "string"})
        run.submit(0, {"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}]})
        await run.wait(30)
        run.submit(1, {"calls": [], "output": "†state.a"})
        await run.wait(30)
        published = await bridge.publish(run.id, "later", answer="plan")
        assert published.plan is not None
        replay = await bridge.start_idea("later", {"a": 2})
        assert replay.run is not None
        assert await replay.run.result() == "A"
        assert replay.run.requests == 0


async def test_a_given_store_stays_open() -> None:
    with Store.open(":memory:") as store:
        async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
            await plan(bridge, HALF)
        assert len(store.ideas.page().items) == 1


# -- hostile input ---------------------------------------------------------------------------------


def nested(depth: int) -> JSON:
    value: JSON = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (nested(10_000), "is nested deeper"),
        ({"calls": [{"_tool": "shout", "text": "\ud800"}]}, "half a surrogate pair"),
        ({"calls": [], "output_schema": {"type": "nonsense"}}, "nonsense"),
        ({"calls": [{"_tool": "shout", "text": "x"}] * 10_001}, "at most 10,000"),
        ({"calls": [], "instances": {"state": {}}}, "_instance 'state'"),
    ],
)
async def test_hostile_plans_are_refused_before_anything_is_kept(raw: JSON, says: str) -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        with pytest.raises(IdeabridgeError, match=says):
            await plan(bridge, raw)
        assert bridge.runs() == []


async def test_a_message_that_is_none_fails_its_call_and_the_run_can_still_be_read(
    tmp_path: Path,
) -> None:
    @tool(read_only=True)
    def babble(context: ActivityContext) -> str:
        """Add nonsense."""
        context.add_message({"role": "robot", "content": "x"})
        return "unreachable"

    store = tmp_path / "ideas.sqlite"
    async with Bridge(ASKS, toolbox=Toolbox(babble), store=store) as bridge:
        run = await plan(bridge, {"calls": [{"_tool": "babble"}]})
        assert "role must be" in str(run.errors())

    async with Bridge(ASKS, toolbox=Toolbox(babble), store=store) as bridge:
        assert (await bridge.run(run.id)).status == "done"


async def test_an_invalid_output_schema_is_told_before_a_run_begins() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        with pytest.raises(IdeabridgeError, match="nonsense"):
            await bridge.solve("x", output_schema={"type": "nonsense"})
        assert bridge.runs() == []


async def test_what_an_activity_does_to_its_arguments_does_not_reach_the_state() -> None:
    @tool(read_only=True)
    def spoil(items: list[int]) -> int:
        """Empty the list."""
        items.clear()
        return 0

    async with Bridge(ASKS, toolbox=Toolbox(spoil)) as bridge:
        call: JSON = {"_tool": "spoil", "items": "†input.l"}
        run = await plan(bridge, {"input": {"l": [1, 2]}, "calls": [call, call]})
        assert run.value("†input.l") == [1, 2]


async def test_a_process_that_only_looks_sees_what_another_does(tmp_path: Path) -> None:
    started = anyio.Event()
    log = list[str]()
    store = tmp_path / "ideas.sqlite"
    box = blocking(started, log, read_only=True)
    async with (
        Bridge(ASKS, toolbox=box, store=store) as one,
        Bridge(ASKS, toolbox=box, store=store) as two,
    ):
        run = await one.run_plan(read_plan(CHAIN))
        await started.wait()
        seen = await two.run(run.id)
        assert seen.status == "running"
        assert seen.answer()["state"] == {"a": "one"}
        run.cancel()
        assert (await two.run(run.id)).status == "cancelled"


async def test_an_error_of_the_caller_leaves_the_bridge_as_it_is() -> None:
    with pytest.raises(PlanError):
        async with Bridge(ASKS, toolbox=toolbox()) as bridge:
            await plan(bridge, {"calls": [{"_tool": "nope"}]})


async def test_a_cancelled_run_says_so_in_its_idea() -> None:
    started = anyio.Event()
    log = list[str]()
    async with Bridge(ASKS, toolbox=blocking(started, log, read_only=True)) as bridge:
        run = await bridge.run_plan(read_plan(CHAIN))
        await started.wait()
        run.cancel()
        assert bridge.store.ideas.get(run.id, caller=SEES_ALL).meta.outcome == "cancelled"


async def test_what_a_named_caller_publishes_is_published_to_it_alone() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await plan(bridge, HALF, caller="ann")
        await bridge.publish(run.id, "halve", caller="ann")
        assert (await bridge.start_idea("halve", {"n": 5, "by": 4}, caller="ann")).answer == "plan"
        with pytest.raises(IdeabridgeError, match="nothing is published to you"):
            await bridge.start_idea("halve", {"n": 5, "by": 4}, caller="ben")


async def test_the_list_of_runs_tells_what_waits_also_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        await bridge.solve("x")
        await plan(bridge, SENDING)
    async with Bridge(ASKS, toolbox=toolbox(), store=store) as bridge:
        assert [run["status"] for run in bridge.runs()] == ["needs_approval", "needs_solution"]


async def test_a_plan_without_output_or_paths_gives_its_results() -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await plan(bridge, {"calls": [{"_tool": "shout", "text": "a"}]})
        assert run.given() == {"results": {"0": "A"}}
        await bridge.publish(run.id, "loud", answer="recorded")
        assert (await bridge.start_idea("loud", {})).output == {"results": {"0": "A"}}


# -- what a reviewer broke -------------------------------------------------------------------------


async def test_activities_in_threads_leave_the_machine_to_the_event_loop(tmp_path: Path) -> None:
    @tool(read_only=True)
    def chatter(n: int, context: ActivityContext) -> int:
        """Add many messages from a worker thread."""
        for number in range(50):
            context.add_message({"role": "user", "content": f"{n}.{number}"})
        return n

    calls: list[JSON] = [{"_tool": "chatter", "n": n} for n in range(4)]
    for n in range(30):
        text = "x" if n == 0 else f"†state.s{n - 1}"
        calls.append({"_tool": "shout", "text": text, "_outputPath": f"s{n}"})

    store = tmp_path / "ideas.sqlite"
    box = Toolbox(chatter, shout)
    async with Bridge(ASKS, toolbox=box, store=store) as bridge:
        with anyio.fail_after(20):
            run = await plan(bridge, {"calls": calls})
        assert run.status == "done"
        assert not run.errors()

    async with Bridge(ASKS, toolbox=box, store=store) as bridge:
        assert (await bridge.run(run.id)).status == "done"


async def test_a_journal_that_can_never_be_written_gives_the_run_up_and_it_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ideabridge.bridge.store.writer.KEEPS_TRYING_SECONDS", 0.1)
    async with Bridge(ASKS, toolbox=toolbox(), store=tmp_path / "ideas.sqlite") as bridge:
        run = await bridge.solve("x", output_schema={"type": "string"})
        append = bridge.store.runs.append

        def busy(*_: object) -> int:
            raise StoreBusyError("locked")

        monkeypatch.setattr(bridge.store.runs, "append", busy)
        run.submit(0, {"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}]})
        assert run.status == "running"
        assert await run.wait(30) == "interrupted"
        assert "could not be written: locked" in run.answer()["reason"]
        monkeypatch.setattr(bridge.store.runs, "append", append)
        again = await bridge.run(run.id)
        assert again.status == "needs_solution"
        again.submit(
            0,
            {"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}], "output": "†state.a"},
        )
        assert await again.wait(30) == "done"


async def test_a_stale_handle_cannot_cancel_a_finished_run(tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    async with (
        Bridge(ASKS, toolbox=toolbox(), store=store) as one,
        Bridge(ASKS, toolbox=toolbox(), store=store) as two,
    ):
        run = await one.solve("x", output_schema={"type": "string"})
        (await two.run(run.id)).submit(0, {"calls": [], "output": "done"})
        with pytest.raises(InterruptedRunError):
            run.cancel()
        assert (await one.run(run.id)).status == "done"


async def test_a_store_that_is_busy_for_a_moment_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ideabridge.bridge.runs.runs.LEASE_SECONDS", 0.05)
    renewed = anyio.Event()
    started = anyio.Event()
    log = list[str]()
    async with Bridge(ASKS, toolbox=blocking(started, log, read_only=True)) as bridge:
        run = await bridge.run_plan(read_plan(CHAIN))
        await started.wait()
        renew = bridge.store.leases.renew
        faults = [StoreBusyError("locked")]

        def sometimes(run_id: str, epoch: int, ttl_s: float, now: float) -> bool:
            if faults:
                raise faults.pop()
            renewed.set()
            return renew(run_id, epoch, ttl_s, now)

        monkeypatch.setattr(bridge.store.leases, "renew", sometimes)
        with anyio.fail_after(20):
            await renewed.wait()

        assert run.status == "running"


async def test_a_driver_whose_lease_lapsed_while_the_store_failed_goes_on_where_nobody_has_taken_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ideabridge.bridge.runs.runs.LEASE_SECONDS", 0.05)
    failed = anyio.Event()
    started = anyio.Event()
    log = list[str]()
    async with Bridge(
        ASKS, toolbox=blocking(started, log, read_only=True), store=tmp_path / "ideas.sqlite"
    ) as bridge:
        run = await bridge.run_plan(read_plan(CHAIN))
        await started.wait()
        before = bridge.store.runs.get(run.id)
        renew, faults = bridge.store.leases.renew, [StoreBusyError("locked") for _ in range(20)]

        def sometimes(run_id: str, epoch: int, ttl_s: float, now: float) -> bool:
            if faults:
                raise faults.pop()
            failed.set()
            return renew(run_id, epoch, ttl_s, now)

        monkeypatch.setattr(bridge.store.leases, "renew", sometimes)
        with anyio.fail_after(20):
            await failed.wait()

        after = bridge.store.runs.get(run.id)
        assert before is not None
        assert after is not None
        assert (run.status, after.epoch, after.driver) == ("running", before.epoch, before.driver)


async def test_what_a_failing_store_does_not_take_back_is_given_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ideabridge.bridge.runs.runs.LEASE_SECONDS", 0.05)
    # The write is given up before the store works again.
    monkeypatch.setattr("ideabridge.bridge.store.writer.KEEPS_TRYING_SECONDS", 0.0)
    released = anyio.Event()
    started = anyio.Event()
    log = list[str]()
    async with Bridge(
        ASKS, toolbox=blocking(started, log, read_only=True), store=tmp_path / "ideas.sqlite"
    ) as bridge:
        run = await bridge.run_plan(read_plan(CHAIN))
        await started.wait()
        release, faults = bridge.store.leases.release, [StoreBusyError("locked") for _ in range(5)]

        def sometimes(run_id: str, epoch: int) -> bool:
            if faults:
                raise faults.pop()
            released.set()
            return release(run_id, epoch)

        monkeypatch.setattr(bridge.store.leases, "release", sometimes)
        run.runner.fail(StoreBusyError("locked"))
        with anyio.fail_after(20):
            await released.wait()

        record = bridge.store.runs.get(run.id)
        assert record is not None
        assert (record.status, record.driver) == ("running", None)


@pytest.mark.parametrize(
    "call",
    [
        {"_tool": "send", "_each": [{"to": "a", "text": "b"}]},
        {"_tool": "send", "_each": []},
        {"_tool": "send", "to": "a", "text": "\ud800"},
        # The edit may name another tool, but that tool must exist.
        {"_tool": "shuot", "text": "a"},
        nested(300),
        "send it",
    ],
)
async def test_edits_that_cannot_run_are_refused_and_the_run_still_waits(call: JSON) -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await plan(bridge, SENDING)
        (pending,) = run.approvals()
        assert isinstance(pending, dict)
        with pytest.raises(IdeabridgeError):
            run.decide(str(pending["approval"]), "edit", by="Ann", call=call)
        with pytest.raises(IdeabridgeError):
            run.decide(str(pending["approval"]), "approve", by="Ann", reason="\ud800")
        assert run.status == "needs_approval"
        run.decide(str(pending["approval"]), "approve", by="Ann")
        assert await run.wait(30) == "done"


async def test_an_unknown_outcome_is_not_caught_as_a_failure(tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    log: list[str] = []
    started = anyio.Event()
    configuration = Configuration(approval="allow_all")
    raw: JSON = {
        "calls": [
            {"_tool": "second", "text": "pay", "_outputPath": "ok || err"},
            {"_tool": "first", "_after": [], "_outputPath": "refunded || never"},
            {"_tool": "second", "text": "†state.err.message", "_outputPath": "refund"},
        ]
    }
    async with Bridge(
        configuration, toolbox=blocking(started, log, read_only=False), store=store
    ) as bridge:
        run = await bridge.run_plan(read_plan(raw))
        await started.wait()

    async with Bridge(
        configuration, toolbox=blocking(started, log, read_only=False), store=store
    ) as bridge:
        run = await bridge.run(run.id)
        await run.wait(30)
        skip_unknown(run)
        assert await run.wait(30) == "done"
        assert log.count("second") == 1, "nothing may be done about what nobody knows"
        assert "outcome unknown" in str(run.errors())


async def test_a_resumed_plan_is_the_same_idea(tmp_path: Path) -> None:
    log: list[str] = []
    started = anyio.Event()
    configuration = Configuration(approval="allow_all")
    store = tmp_path / "ideas.sqlite"
    async with Bridge(
        configuration, toolbox=blocking(started, log, read_only=True), store=store
    ) as bridge:
        run = await bridge.run_plan(read_plan(CHAIN))
        await started.wait()

    async with Bridge(
        configuration, toolbox=blocking(started, log, read_only=True), store=store
    ) as bridge:
        resumed = await bridge.run(run.id)
        await resumed.wait(30)
        undisturbed = await plan(bridge, CHAIN)
        assert resumed.idea is not None
        assert resumed.idea == undisturbed.idea


@pytest.mark.parametrize(
    "limits", [{"calls": float("nan")}, {"calls": 0.5}, {"wall_seconds": float("inf")}, {"cals": 1}]
)
async def test_limits_that_are_none_are_refused(limits: JSONObject) -> None:
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        with pytest.raises(PlanError, match="limits"):
            await bridge.solve("x", limits=limits)


async def test_data_an_activity_adds_can_be_read_by_the_next_solution() -> None:
    @tool(read_only=True)
    def note(text: str, context: ActivityContext) -> str:
        """Keep a note."""
        context.add_message({"type": "data", "kind": "notes", "data": {"last": text}})
        return text

    async with Bridge(ASKS, toolbox=Toolbox(note, shout)) as bridge:
        run = await bridge.solve("x", output_schema={"type": "string"})
        run.submit(0, {"calls": [{"_tool": "note", "text": "milk"}]})
        await run.wait(30)
        assert "†data.notes" in json.dumps(run.answer()["requests"], ensure_ascii=False)
        run.submit(
            1,
            {
                "calls": [{"_tool": "shout", "text": "†data.notes.last", "_outputPath": "n"}],
                "output": "†state.n",
            },
        )
        assert await run.wait(30) == "done"
        assert run.answer()["output"] == "MILK"


async def test_a_tool_defined_in_the_context_is_latent_or_has_the_activity_of_its_name() -> None:
    context: list[JSON] = [
        {
            "type": "tool",
            "tool": {"name": "judge", "description": "Judge.", "output": {"type": "string"}},
        },
        {
            "type": "tool",
            "tool": {"name": "shout", "parameters": {"type": "object", "properties": {"text": {}}}},
        },
    ]
    async with Bridge(ASKS, toolbox=toolbox()) as bridge:
        run = await bridge.solve("x", tools=[], context=context, output_schema={"type": "array"})
        calls: list[JSON] = [{"_tool": "judge", "_output": "fine"}, {"_tool": "shout", "text": "a"}]
        run.submit(0, {"calls": calls, "output": ["†results.0"]})
        assert await run.wait(30) == "needs_approval", "a tool that says nothing of itself asks"
        with pytest.raises(IdeabridgeError, match="requires a tool with a name"):
            await bridge.solve("x", context=[{"type": "tool", "tool": {}}])
        with pytest.raises(IdeabridgeError, match="nonsense"):
            await bridge.solve(
                "x",
                context=[
                    {"type": "tool", "tool": {"name": "a", "parameters": {"type": "nonsense"}}}
                ],
            )
