"""Published ideas as tools of the loop: offered by names and patterns, and called by
their plain names.
"""

from __future__ import annotations

from typing import Any

import pytest

from ideabridge.bridge import Bridge, Configuration, PlanError, PublicationError, Request, Store
from ideabridge.bridge.offer.task_tools import TaskTools
from ideabridge.bridge.store.idea import NewPublication
from ideabridge.tools import JSONObject, Toolbox, tool
from ideabridge.tools.encoding import JSON

pytestmark = pytest.mark.anyio

SHOUT: JSONObject = {
    "input": {"text": "hi"},
    "calls": [
        {"_tool": "template", "text": "{t}!", "values": {"t": "†input.text"}, "_outputPath": "said"}
    ],
    "output": "†state.said",
}
CALL: JSONObject = {"_tool": "shout", "text": "hello", "_outputPath": "loud"}


class Scripted:
    """A mind that answers with solutions in order, and keeps the Requests."""

    def __init__(self, *solutions: JSON) -> None:
        self.requests: list[Request] = []
        self._left = list(solutions)

    async def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        return self._left.pop(0)

    def offered(self) -> set[tuple[str | None, str]]:
        """The module and the name of each tool that the last Request offers."""
        schema: Any = self.requests[-1].schema
        calls = [one["properties"] for one in schema["properties"]["calls"]["items"]["anyOf"]]
        return {(one.get("_module", {}).get("const"), one["_tool"]["const"]) for one in calls}


async def publish(bridge: Bridge, name: str, plan: JSONObject = SHOUT, **options: Any) -> None:
    run = await bridge.run_plan(plan, caller=options.get("caller", "local"))
    assert await run.wait(30) == "done", run.answer()
    await bridge.publish(run.id, name, **options)


@pytest.mark.parametrize(
    "patterns",
    [["*"], ["idea:*"], ["shout"], ["idea:shout"], ["sh*"], ["idea:sh*"], ["count", "shout"]],
)
async def test_names_and_patterns_offer_ideas_and_a_mind_calls_one_by_its_plain_name(
    patterns: list[str],
) -> None:
    mind = Scripted({"calls": [CALL], "output": "†state.loud"})
    async with Bridge(mind=mind) as bridge:
        await publish(bridge, "shout")
        run = await bridge.solve("Shout hello.", tools=patterns)
        assert await run.result() == "hello!"
    assert ("idea:shout", "shout") in mind.offered()


async def test_all_tools_without_a_pattern_offer_no_ideas() -> None:
    mind = Scripted({"calls": [], "output": "x"})
    async with Bridge(mind=mind) as bridge:
        await publish(bridge, "shout")
        await (await bridge.solve("Say x.")).result()
    assert ("idea:shout", "shout") not in mind.offered()


async def test_a_pattern_that_nothing_matches_names_the_nearest_idea() -> None:
    async with Bridge() as bridge:
        await publish(bridge, "shout")
        with pytest.raises(PlanError, match=r"nothing matches shuot.*'shout'"):
            await bridge.solve("x", tools=["shuot"])


async def test_a_plan_and_a_group_call_an_idea_by_its_plain_name() -> None:
    async with Bridge() as bridge:
        await publish(bridge, "shout")
        run = await bridge.run_plan(calls=[CALL], output="†state.loud")
        assert await run.result() == "hello!"
        assert await bridge.call(CALL) == "hello!"
        assert (await bridge.dry_run({"calls": [CALL]}))["calls"][0]["tool"] == "shout"


async def test_a_run_that_calls_an_idea_by_its_plain_name_is_published_with_the_idea_it_meant() -> (
    None
):
    async with Bridge() as bridge:
        await publish(bridge, "shout")
        calls: list[JSON] = [{**CALL, "text": "†input.text"}]
        await publish(
            bridge, "twice", {"input": {"text": "hello"}, "calls": calls, "output": "†state.loud"}
        )
        publication = bridge.store.publications.get("twice", caller="local")
        plan: Any = publication.plan
        assert [call["_module"] for call in plan["calls"]] == ["idea:shout"]
        assert publication.annotations["readOnlyHint"] is True
        assert await bridge.call_idea("twice", {"text": "you"}) == "you!"
        # Nor can it be published under the name of the idea that it calls.
        itself: JSONObject = {"input": {"text": "x"}, "calls": calls, "output": "†state.loud"}
        with pytest.raises(PublicationError, match="it would call itself: shout -> shout"):
            await publish(bridge, "shout", itself, answer="plan")


@tool(read_only=True)
def shout(volume: int) -> int:
    """Another tool of that name."""
    return volume


async def test_a_tool_has_its_name_before_an_idea_and_the_error_names_the_idea() -> None:
    with Store.open(":memory:") as store:
        async with Bridge(store=store) as bridge:
            await publish(bridge, "shout")
        mind = Scripted(
            {
                "calls": [CALL, {"_tool": "shout", "volume": 3, "_outputPath": "own"}],
                "output": None,
            },
            {"calls": [{**CALL, "_module": "idea:shout"}], "output": ["†state.own", "†state.loud"]},
        )
        async with Bridge(store=store, toolbox=Toolbox(shout), mind=mind) as bridge:
            run = await bridge.solve("x", tools=["*"], output=list[Any])
            assert await run.result() == [3, "hello!"]
            assert mind.offered() >= {(None, "shout"), ("idea:shout", "shout")}
            [error] = [
                str(one["content"])
                for one in mind.requests[1].texts
                if "failed: call" in str(one["content"])
            ]
            wanted = 'to call the published idea \'shout\', write "_module": "idea:shout"'
            assert wanted in error
            # Its name alone selects the tool.
            chosen = TaskTools(bridge.offer, ["shout"], caller="local").present()
            assert [one.module for one in chosen.tools] == [None]


async def test_ideas_of_others_are_not_offered() -> None:
    mind = Scripted({"calls": [], "output": "x"}, {"calls": [], "output": "x"})
    async with Bridge(mind=mind) as bridge:
        await publish(bridge, "shout", caller="user:ann", to="me")
        await (await bridge.solve("x", tools=["*"], caller="user:bob")).result()
        assert ("idea:shout", "shout") not in mind.offered()
        with pytest.raises(PlanError, match="unknown tool 'shout'"):
            await bridge.run_plan(calls=[CALL], caller="user:bob")
        with pytest.raises(PlanError, match="nothing matches"):
            await bridge.solve("x", tools=["shout"], caller="user:bob")
        await (await bridge.solve("x", tools=["*"], caller="user:ann")).result()
        assert ("idea:shout", "shout") in mind.offered()


async def test_a_clean_room_has_the_ideas_that_its_task_names() -> None:
    room: JSONObject = {
        "_tool": "solve",
        "_module": "anonymous",
        "task": "x",
        "tools": ["shout"],
        "_outputPath": "r",
    }
    mind = Scripted(
        {"calls": [room], "output": "†state.r"}, {"calls": [CALL], "output": "†state.loud"}
    )
    async with Bridge(mind=mind) as bridge:
        await publish(bridge, "shout")
        run = await bridge.solve("x", tools=["anonymous.solve", "idea:*"])
        assert await run.result() == "hello!"
        assert mind.offered() == {("idea:shout", "shout")}


async def test_an_idea_is_not_offered_in_its_own_run() -> None:
    mind = Scripted(
        {"calls": [], "output": "one"},
        {"calls": [], "output": "two"},
        {"calls": [], "output": "three"},
    )
    async with Bridge(mind=mind) as bridge:
        await publish(bridge, "shout")
        run = await bridge.solve("Say it.", tools=["*"])
        await run.result()
        await bridge.publish(run.id, "say", answer="solve")
        run = await bridge.solve("Say it again.", tools=["*"])
        await run.result()
        assert mind.offered() >= {("idea:say", "say"), ("idea:shout", "shout")}
        await bridge.publish(run.id, "say", answer="solve")
        assert await bridge.call_idea("say") == "three"
        assert ("idea:shout", "shout") in mind.offered()
        assert ("idea:say", "say") not in mind.offered()


async def test_a_solved_idea_with_a_text_output_goes_through_export_and_import() -> None:
    mind = Scripted(
        {"calls": [], "output": "a fine day"},
        {"calls": [], "output": "a rainy day"},
        {
            "calls": [{"_tool": "describe", "day": "Monday", "_outputPath": "x"}],
            "output": "†state.x",
        },
        {"calls": [], "output": "a grey day"},
    )
    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve("Describe the day.", input={"day": "Sunday"})
        await run.result()
        await bridge.publish(run.id, "describe", answer="solve")
        document = bridge.export_idea("describe")

    async with Bridge(mind=mind) as bridge:
        imported = await bridge.import_idea(document, publish=True)
        assert imported.publication is not None
        assert imported.publication.output_schema in (None, {"type": "string"})
        assert await bridge.call_idea("describe", {"day": "Tuesday"}, output=str) == "a rainy day"
        assert await (await bridge.solve("x", tools=["describe"])).result() == "a grey day"


async def test_of_many_published_ideas_a_bounded_number_is_offered() -> None:
    nothing: JSONObject = {"calls": [], "output": "x"}
    mind = Scripted(nothing, nothing, nothing)
    async with Bridge(Configuration(listed_ideas=7), mind=mind) as bridge:
        await publish(bridge, "shout")
        one = bridge.store.publications.get("shout", caller="local")
        with bridge.store.transaction():
            for number in range(300):
                bridge.store.publications.publish(
                    NewPublication(
                        name=f"idea_{number}",
                        idea_id=one.idea_id,
                        description="x",
                        answer="plan",
                        input_schema=one.input_schema,
                        output_schema=one.output_schema,
                        annotations=one.annotations,
                        plan=one.plan,
                    )
                )

        for patterns, count in ((["*"], 7), (["idea:*"], 100), (["idea:idea_2*", "shout"], 101)):
            await (await bridge.solve("x", tools=patterns)).result()
            ideas = {name for module, name in mind.offered() if module is not None}
            assert len(ideas) == count

        catalogue = TaskTools(bridge.offer, ["idea:*"], caller="local").present()
        assert "201 more published ideas match tools" in catalogue.missing
