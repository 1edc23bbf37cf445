"""Publishing: whose ideas, which run's outcome, and what a plan must hold to answer
for other inputs.
"""

from __future__ import annotations

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.errors import PlanError, PublicationError
from ideabridge.bridge.lifting.consistency import inconsistency
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.recorded import read_run
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import UnknownIdeaError
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError, SchemaError
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.lifting.runs import checked

pytestmark = pytest.mark.anyio


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


@tool(read_only=True, open_world=True)
def weather(place: str) -> str:
    """Look up the weather."""
    return f"sun in {place}"


def bridge(store: Store | None = None) -> Bridge:
    return Bridge(ASKS, toolbox=Toolbox(shout, divide, send, weather), store=store)


async def plan(here: Bridge, raw: JSON, caller: str = "local") -> Run:
    run = await here.run_plan(read_plan(raw), caller=caller)
    await run.wait(20)
    return run


async def called(here: Bridge, name: str, arguments: JSONObject) -> JSON:
    replay = await here.start_idea(name, arguments)
    assert replay.run is not None
    assert await replay.run.wait(20) == "done"
    return replay.run.given()


LOUD_CALLS: list[JSON] = [{"_tool": "shout", "text": "†input.text", "_outputPath": "loud"}]
LOUD: JSONObject = {
    "input": {"text": "a"},
    "calls": LOUD_CALLS,
    "output": "†state.loud",
}


# -- whose -----------------------------------------------------------------------------------------


async def test_an_idea_is_published_by_those_whose_run_made_it() -> None:
    async with bridge() as here:
        run = await plan(here, LOUD, "ann")
        assert run.idea is not None
        for caller in ("ben", "local"):
            with pytest.raises(UnknownIdeaError, match="no idea"):
                await here.publish(run.idea[:6], "stolen", caller=caller, answer="recorded")
            with pytest.raises(UnknownIdeaError, match="no idea"):
                await here.publish(run.id, "stolen", caller=caller)
        await plan(here, LOUD, "ben")
        assert (await here.publish(run.idea[:6], "bens", caller="ben")).owner == "ben"
        assert (await here.publish(run.idea[:6], "anns", caller="ann")).owner == "ann"


async def test_an_idea_that_was_made_elsewhere_is_published_by_what_it_holds() -> None:
    async with bridge() as there, bridge() as here:
        run = await plan(there, LOUD)
        idea = here.store.import_idea(there.store.export_idea(run.id, caller=SEES_ALL))
        with pytest.raises(PublicationError, match="made elsewhere: parameters, choices"):
            await here.publish(idea, "loud", strict=True)
        published = await here.publish(idea, "loud")
        assert published.answer == "plan"
        assert published.idea_id == idea
        assert (published.plan or {})["calls"] == LOUD["calls"]


async def test_a_run_is_published_with_its_own_outcome() -> None:
    fails: list[bool] = [True]

    @tool(read_only=True)
    def flaky(text: str) -> str:
        """Fail at first."""
        if fails:
            fails.pop()
            raise ActivityError("not now")
        return f"{text} at last"

    raw: JSON = {
        "input": {"text": "a"},
        "calls": [{"_tool": "flaky", "text": "†input.text", "_outputPath": "x"}],
        "output": "†state.x",
    }
    async with Bridge(ASKS, toolbox=Toolbox(flaky)) as here:
        first, second = await plan(here, raw, "ann"), await plan(here, raw, "ben")
        assert (first.status, second.status) == ("failed", "done")
        assert first.idea == second.idea
        with pytest.raises(
            PublicationError, match="no output to record, because the run is failed"
        ):
            await here.publish(first.id, "later", answer="recorded", caller="ann")

        # Nothing that the run did can be repeated, so it is published as it was written.
        written = await here.publish(first.id, "written", caller="ann")
        assert written.answer == "plan"
        assert written.recorded == {"input": {"text": "a"}}
        published = await here.publish(second.id, "later", answer="plan", caller="ben")
        assert published.answer == "plan"
        assert published.recorded == {"input": {"text": "a"}, "output": "a at last"}


async def test_each_run_of_one_idea_has_its_own_result() -> None:
    numbers = iter(("one", "two"))

    @tool(read_only=True)
    def count() -> str:
        """Give the next number."""
        return next(numbers)

    async with Bridge(ASKS, toolbox=Toolbox(count)) as here:
        runs = [
            await plan(here, {"calls": [{"_tool": "count"}], "output": "†results.0"})
            for _ in range(2)
        ]
        assert runs[0].idea == runs[1].idea
        told = [(await here.publish(run.id, "number", answer="recorded")).recorded for run in runs]
        assert told == [{"input": {}, "output": "one"}, {"input": {}, "output": "two"}]


async def test_a_step_that_was_not_the_last_is_a_plan_of_its_calls() -> None:
    async with bridge() as here:
        run = await here.solve("x", output_schema={"type": "string"})
        run.submit(0, {"calls": [{"_tool": "shout", "text": "a", "_outputPath": "a"}]})
        await run.wait(30)
        first = run.idea
        run.submit(1, {"calls": [], "output": "†state.a"})
        await run.wait(30)
        assert first is not None
        with pytest.raises(
            PublicationError, match="the answer cannot be 'recorded': its solution has no output"
        ):
            await here.publish(first, "step", answer="recorded")
        published = await here.publish(first, "step")
        assert published.answer == "plan"
        assert published.recorded == {"input": {}}


# -- plans that would answer otherwise -------------------------------------------------------------


async def solved(
    here: Bridge, context: list[JSON], calls: list[JSON], output: JSON, schema: JSONObject
) -> Run:
    run = await here.solve("x", input={"n": 8}, context=context, output_schema=schema)
    run.submit(0, {"calls": calls, "output": output})
    assert await run.wait(30) == "done"
    return run


@pytest.mark.parametrize(
    ("message", "read", "says"),
    [
        ({"type": "rates", "rates": {"b": 2}}, "†data.rates.b", r"context\.0 holds data 'rates'"),
        ({"type": "state", "state": {"b": 2}}, "†state.b", r"context\.0 holds a state"),
    ],
)
async def test_what_a_plan_does_not_carry_is_named(message: JSON, read: str, says: str) -> None:
    calls: list[JSON] = [{"_tool": "divide", "a": "†input.n", "b": read}]
    async with bridge() as here:
        run = await solved(here, [message], calls, "†results.0", {"type": "number"})
        with pytest.raises(PublicationError, match=says):
            await here.publish(run.id, "share", answer="plan")
        published = await here.publish(run.id, "share")
        assert (published.answer, published.plan) == ("auto", None)


async def test_a_plan_over_instances_keeps_its_places_and_states() -> None:
    raw: JSON = {
        "instances": {"①": {"t": "good"}, "②": {"t": "†bad"}},
        "input": {"who": "me"},
        "calls": [
            {"_tool": "shout", "text": "†state.t"},
            {"_tool": "shout", "text": "†results.0", "_outputPath": "loud"},
            {"_tool": "shout", "text": "†input.who", "_outputPath": "who", "_instance": "②"},
        ],
        "output": "†state.loud",
        "output_schema": {"type": "string"},
    }
    async with bridge() as here:
        run = await plan(here, raw)
        published = await here.publish(run.id, "both")
        assert published.plan is not None
        assert published.plan["calls"] == read_plan(raw).calls
        assert published.output_schema == {
            "type": "object",
            "additionalProperties": {"type": "string"},
        }
        assert await called(here, "both", {"who": "you"}) == {"①": "GOOD", "②": "†BAD"}


@pytest.mark.parametrize("output", [{"value": "†state.half"}, "†state.wrapped"])
async def test_an_output_that_may_be_null_is_published_as_its_user_asked(output: JSON) -> None:
    @tool(read_only=True)
    def wrap(n: float) -> dict[str, float]:
        """Give a value."""
        return {"value": n / 2}

    calls: list[JSON] = [
        {"_tool": "divide", "a": "†input.n", "b": "†input.n", "_outputPath": "half"},
        {"_tool": "wrap", "n": "†input.n", "_outputPath": "wrapped"},
    ]
    schema: JSONObject = {"type": ["number", "null"]}
    async with Bridge(ASKS, toolbox=Toolbox(divide, wrap)) as here:
        run = await solved(here, [], calls, output, schema)
        published = await here.publish(run.id, "half", answer="plan")
        assert published.output_schema == schema
        assert published.recorded == {"input": {"n": 8}, "output": run.given()}
        assert await called(here, "half", {"n": 8}) == run.given()


async def test_an_output_that_is_always_null_is_no_plan() -> None:
    async with bridge() as here:
        run = await solved(
            here,
            [],
            [{"_tool": "shout", "text": "a"}],
            {"value": None},
            {"type": ["number", "null"]},
        )
        with pytest.raises(PublicationError, match="null for every input"):
            await here.publish(run.id, "nothing", answer="plan")
        assert (await here.publish(run.id, "nothing", answer="recorded")).recorded == {
            "input": {"n": 8},
            "output": None,
        }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"type": "number"}},
        },
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
    ],
)
async def test_the_published_output_schema_is_its_users(schema: JSONObject) -> None:
    output: JSON = {"x": "†results.0"}
    wrapped: JSON = {"value": output} if "anyOf" in schema else output
    async with bridge() as here:
        calls: list[JSON] = [{"_tool": "divide", "a": "†input.n", "b": "†input.n"}]
        run = await solved(here, [], calls, wrapped, schema)
        assert (await here.publish(run.id, "one")).output_schema == schema
        assert await called(here, "one", {"n": 5}) == {"x": 1}


async def test_self_consistency_is_checked_and_told() -> None:
    async with bridge() as here:
        run = await plan(here, LOUD)
        published = await here.publish(run.id, "loud", answer="plan", description="Loud text")
        assert published.description == "Loud text."
        assert checked(published) == "self-consistent"
        assert await called(here, "loud", {"text": "b"}) == "B"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"output": "†results.0"}, "it cannot run on its own"),
        ({"output": "†input.text"}, "output differs"),
        ({"calls": []}, "it cannot run on its own"),
        ({"calls": [*LOUD_CALLS, *LOUD_CALLS]}, "it would run different calls"),
    ],
)
async def test_a_plan_that_would_do_otherwise_is_found(change: JSONObject, says: str) -> None:
    async with bridge() as here:
        run = read_run(here.store, (await plan(here, LOUD)).id)
        assert run is not None
        assert inconsistency(run, read_plan(LOUD)) is None
        assert says in str(inconsistency(run, read_plan({**LOUD, **change})))


# -- what people refused or changed ----------------------------------------------------------------

SENDING: JSONObject = {
    "input": {"to": "ann"},
    "calls": [{"_tool": "send", "to": "†input.to", "text": "†input.to", "_outputPath": "sent"}],
    "output": "†state.sent || †input.to",
}


async def test_what_a_person_denied_is_not_replayed() -> None:
    async with bridge() as here:
        run = await plan(here, SENDING)
        run.decide(run.questions()[0].approval, "deny", by="me")
        assert await run.wait(30) == "done"
        with pytest.raises(PublicationError, match=r"calls\.0 \(send\): it was denied"):
            await here.publish(run.id, "sends", answer="plan")


async def test_what_a_person_changed_is_a_parameter_with_their_value() -> None:
    async with bridge() as here:
        run = await plan(here, SENDING)
        run.decide(
            run.questions()[0].approval,
            "edit",
            by="me",
            call={"_tool": "send", "to": "eve", "text": "x"},
        )
        assert await run.wait(30) == "done"
        published = await here.publish(run.id, "sends", answer="plan")
        assert published.input_schema is not None
        properties = published.input_schema["properties"]
        assert isinstance(properties, dict)
        defaults = [
            one["default"]
            for one in properties.values()
            if isinstance(one, dict) and "default" in one
        ]
        assert "eve" in defaults


async def test_a_call_that_failed_is_not_replayed() -> None:
    raw: JSON = {"input": {"n": 1}, "calls": [{"_tool": "divide", "a": "†input.n", "b": 0}]}
    async with bridge() as here:
        run = await plan(here, raw)
        assert run.status == "done"
        with pytest.raises(PublicationError, match=r"calls\.0 \(divide\): it failed"):
            await here.publish(run.id, "fails", answer="plan")


# -- order, annotations, input ---------------------------------------------------------------------


async def sent(here: Bridge, second: JSONObject) -> Run:
    first: JSONObject = {"_tool": "send", "to": "†input.to", "text": "†input.to", "_id": "first"}
    run = await plan(here, {"input": {"to": "ann"}, "calls": [first, {"_tool": "send", **second}]})
    while run.status == "needs_approval":
        for one in run.machine.history:
            if one.approval is not None:
                run.decide(one.approval.approval, "approve", by="me")
        await run.wait(30)

    return run


async def test_an_order_that_only_the_listing_gives_is_kept() -> None:
    async with bridge() as here:
        run = await sent(here, {"to": "†input.to", "text": "†input.to"})
        assert (await here.publish(run.id, "twice")).plan is not None


@pytest.mark.parametrize(
    "second",
    [
        {"to": "†input.to", "text": "†results.0"},
        {"to": "†input.to", "text": "†input.to", "_after": ["first"]},
    ],
)
async def test_an_order_by_data_or_by_name_needs_none(second: JSONObject) -> None:
    async with bridge() as here:
        run = await sent(here, second)
        assert (await here.publish(run.id, "twice")).plan is not None


async def test_a_tool_here_that_reaches_out_says_so_when_published() -> None:
    raw: JSON = {
        "input": {"place": "here"},
        "calls": [{"_tool": "weather", "place": "†input.place"}],
    }
    async with bridge() as here:
        assert (await here.publish((await plan(here, raw)).id, "weather_at")).annotations[
            "openWorldHint"
        ] is True
        assert (await here.publish((await plan(here, LOUD)).id, "loud")).annotations[
            "openWorldHint"
        ] is False


async def test_the_input_schema_is_checked_and_the_input_against_it() -> None:
    async with bridge() as here:
        for check in (here.run_plan, here.dry_run):
            with pytest.raises(SchemaError, match="input_schema of the plan"):
                await check(read_plan({**LOUD, "input_schema": {"type": "objekt"}}))
            number: JSON = {"type": "object", "properties": {"text": {"type": "number"}}}
            with pytest.raises(PlanError, match=r"input of the plan.*text"):
                await check(read_plan({**LOUD, "input_schema": number}))
            with pytest.raises(PlanError, match="input of the plan"):
                await check(read_plan({**LOUD, "input_schema": {"required": ["more"]}}))
        assert here.runs() == []
