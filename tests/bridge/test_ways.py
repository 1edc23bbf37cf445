"""Ways of answering: recorded, the plan, solving it anew, and `auto`, which chooses at each
call.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge, Configuration, Limits
from ideabridge.bridge.context.mind import Usage
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.replay import Replay, same_input
from ideabridge.bridge.store.errors import PublicationContentError
from ideabridge.bridge.store.idea import NewPublication
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ValueMismatchError
from tests.lifting.runs import checked

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@tool(read_only=True)
def look(at: str) -> str:
    """Look at something."""
    RAN.append(at)
    return f"{at} it is"


@tool(read_only=False)
def send(text: str) -> str:
    """Send a text."""
    RAN.append(f"sent {text}")
    return f"sent {text}"


class Mind:
    """Answers each Request by a function of its texts; remembers what it was shown."""

    name = "scripted"
    think: Callable[[str], JSONObject]

    def __init__(self, think: Callable[[str], JSONObject]) -> None:
        self.think = think
        self.seen: list[str] = []

    async def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        text = "\n".join(str(message["content"]) for message in request.texts)
        self.seen.append(text)
        yield json.dumps(self.think(text), ensure_ascii=False)


def literally(text: str) -> JSONObject:
    """What a mind does that copies the input it sees, and writes the output itself: nothing
    of it is a plan.
    """
    at = re.findall(r'"at": ?"(\w+)"', text)[-1]
    if "it is" not in text.rpartition("where")[2] and f"{at} it is" not in text:
        return {"calls": [{"_tool": "look", "at": at, "_outputPath": "seen"}], "output": None}
    return {"calls": [], "output": f"I saw {at}"}


def box(*more: Callable[..., object]) -> Toolbox:
    return Toolbox(look, send, *more)


async def solved(
    bridge: Bridge, at: str = "anvil", tools: tuple[str, ...] = ("look",), **keys: object
) -> str:
    """A run of the mind's, of which only it knows why it gave what it gave."""
    run = await bridge.solve(
        "Say what you see there.", input={"at": at}, tools=tools, output_schema={"type": "string"}
    )
    assert await run.wait(20) == "done", run.answer()
    return run.id


async def gave(replay: Replay) -> JSON:
    return replay.output if replay.run is None else await replay.run.result()


LOOKING: JSONObject = {
    "calls": [{"_tool": "look", "at": "†input.at", "_outputPath": "seen"}],
    "input": {"at": "anvil"},
    "output": "†state.seen",
    "output_schema": {"type": "string"},
}


async def looked(bridge: Bridge, plan: JSONObject = LOOKING) -> str:
    run = await bridge.run_plan(read_plan(plan))
    await run.result()
    return run.id


# -- solve -----------------------------------------------------------------------------------------


async def test_a_solved_idea_begins_with_its_own_context_plan_and_tools_and_the_callers_input() -> (
    None
):
    mind = Mind(literally)
    async with Bridge(toolbox=box(), mind=mind) as bridge:
        told = await bridge.publish(await solved(bridge), "see", answer="solve")
        assert (told.answer, told.plan) == ("solve", None)
        assert told.annotations["readOnlyHint"] is True
        assert told.description == (
            "Say what you see there. A model solves the task again; it may call look, which "
            "only read."
        )
        replay = await bridge.start_idea("see", {"at": "bellows"})
        assert (replay.answer, await gave(replay)) == ("solve", "I saw bellows")
        first = mind.seen[2]
        assert "Say what you see there." in first
        assert '"bellows"' in first
        assert "how it was solved before" in first
        assert '"anvil"' not in first.partition("how it was solved before")[0]
        # Every run of this tool is an idea, derived from the one that was published.
        assert replay.run is not None
        steps = bridge.store.ideas.of_run(replay.run.id)
        assert [one.meta.parent for one in steps] == [told.idea_id, steps[0].id]
        assert [tool.name for tool in replay.run.machine.catalogue.tools] == ["look"]
        # Such a run can itself be published, and does not carry the old plan along.
        again = await bridge.publish(replay.run.id, "see", answer="solve")
        assert again.version == 2
        assert json.dumps(again.guide).count("how it was solved before") == 0


async def test_by_turns_the_caller_is_asked_and_the_output_is_checked() -> None:
    async with Bridge(toolbox=box(), mind=Mind(literally)) as bridge:
        await bridge.publish(await solved(bridge), "see", answer="solve")
        with pytest.raises(ValueMismatchError):
            await bridge.start_idea("see", {"at": 5}, mind="turns")
        replay = await bridge.start_idea("see", {"at": "cog"}, mind="turns")
        assert replay.run is not None
        assert await replay.run.wait(30) == "needs_solution"
        replay.run.submit(0, {"calls": [], "output": 7})
        assert await replay.run.wait(30) == "needs_solution"
        assert "7" in json.dumps(replay.run.errors())
        replay.run.submit(1, {"calls": [], "output": "seen"})
        assert await replay.run.result() == "seen"


async def test_a_solved_idea_is_as_careful_as_its_tools_and_limits_say() -> None:
    async with Bridge(toolbox=box(), mind=Mind(literally)) as bridge:
        told = await bridge.publish(
            await solved(bridge, tools=("look", "send")), "see", answer="solve"
        )
        assert told.annotations["readOnlyHint"] is False
        assert told.annotations["destructiveHint"] is True
        assert told.description.endswith("it may call look, send.")

    limited = Configuration(limits=Limits(requests=1))
    async with Bridge(limited, toolbox=box(), mind=Mind(literally)) as bridge:
        await bridge.publish(await looked(bridge), "see", answer="solve")
        replay = await bridge.start_idea("see", {"at": "cog"})
        assert replay.run is not None
        assert await replay.run.wait(30) == "limit"


async def test_a_plan_nobody_asked_for_in_words_is_solved_by_its_description() -> None:
    mind = Mind(literally)
    async with Bridge(toolbox=box(), mind=mind) as bridge:
        await bridge.publish(
            await looked(bridge), "see", description="Say what is there", answer="solve"
        )
        assert await gave(await bridge.start_idea("see", {"at": "cog"})) == "I saw cog"
        assert "Say what is there." in mind.seen[0]
        # If nobody described the output, anything is accepted. A value that may be null is wrapped
        # in an object.
        anything: JSONObject = {
            key: value for key, value in LOOKING.items() if key != "output_schema"
        }
        await bridge.publish(await looked(bridge, anything), "any", answer="solve")

        def anyhow(_: str) -> JSONObject:
            return {"calls": [], "output": {"value": ["any", 1]}}

        mind.think = anyhow
        assert await gave(await bridge.start_idea("any", {"at": "cog"})) == ["any", 1]
        run = await looked(bridge, {"calls": LOOKING["calls"], "input": {"at": "anvil"}})
        with pytest.raises(PublicationError, match="run it with an `output`"):
            await bridge.publish(run, "state", answer="solve")
        assert (await bridge.publish(run, "state")).plan is not None


async def test_a_solved_idea_answers_calls_of_plans_and_of_minds_in_rooms() -> None:
    mind = Mind(literally)
    async with Bridge(toolbox=box(), mind=mind) as bridge:
        await bridge.publish(await solved(bridge), "see", answer="solve")
        call: JSONObject = {
            "_tool": "see",
            "_module": "idea:see",
            "at": "†input.at",
            "_outputPath": "x",
        }
        outer: JSONObject = {"calls": [call], "input": {"at": "cog"}, "output": "†state.x"}
        run = await bridge.run_plan(read_plan(outer))
        assert await run.result() == "I saw cog"
        [room] = bridge.store.runs.rooms(run.id)
        assert room.kind == "solve"
        told = await bridge.publish(run.id, "outer", answer="plan")
        assert "A model is asked only for calls.0 (see)." in told.description
        # In its own run, a mind is offered the idea by name, and answers its rooms.

        def thinks(text: str) -> JSONObject:
            if "Ask another" in text:
                return {"calls": [call], "output": "†state.x"}
            return literally(text)

        mind.think = thinks
        asked = await bridge.solve("Ask another.", input={"at": "bolt"}, tools=["idea:see"])
        assert await asked.result() == "I saw bolt"


async def test_an_idea_is_never_offered_inside_its_own_run() -> None:
    mind = Mind(literally)
    async with Bridge(toolbox=box(), mind=mind) as bridge:
        await bridge.publish(await solved(bridge), "see", answer="solve")
        run = await solved(bridge, tools=("look", "idea:see"))
        told = await bridge.publish(run, "see", answer="solve")
        assert told.guide is not None
        assert told.guide["tools"] == [[None, "look"]]
        # The idea does not offer another one that might call it.
        await bridge.publish(run, "other", answer="solve")
        call: JSONObject = {"_tool": "other", "_module": "idea:other", "at": "†input.at"}
        through = await looked(
            bridge, {"calls": [call], "input": {"at": "a"}, "output": "†results.0"}
        )
        with pytest.raises(PublicationError, match="it would call itself: see -> other -> see"):
            await bridge.publish(through, "see", answer="solve")
        with pytest.raises(PublicationError, match="it would call itself: see -> other -> see"):
            await bridge.publish(through, "see", answer="plan")
        # Version 1 is in use again, and offers nothing that leads back to it.
        bridge.store.publications.stand_for("see", 1)
        replay = await bridge.start_idea("other", {"at": "cog"})
        assert replay.run is not None
        assert {tool.module for tool in replay.run.machine.catalogue.tools} == {None, "idea:see"}


async def test_what_it_was_solved_with_must_be_there(tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    async with Bridge(toolbox=box(), mind=Mind(literally), store=store) as bridge:
        await bridge.publish(await solved(bridge), "see", answer="solve")

    async with Bridge(toolbox=Toolbox(send), mind=Mind(literally), store=store) as bridge:
        with pytest.raises(
            PublicationError, match="see cannot be called here: it needs the tool 'look'"
        ):
            await bridge.start_idea("see", {"at": "cog"})
        [verdict] = await bridge.verify(["see"])
        assert verdict.faults == ["calls.0: look is not available here now: unknown tool 'look'."]


async def test_a_solved_run_goes_on_after_its_process(tmp_path: Path) -> None:
    store = tmp_path / "ideas.sqlite"
    async with Bridge(toolbox=box(), store=store, mind=Mind(literally)) as bridge:
        told = await bridge.publish(await solved(bridge), "see", answer="solve")
        replay = await bridge.start_idea("see", {"at": "cog"}, mind="turns")
        assert replay.run is not None

    async with Bridge(toolbox=box(), store=store) as bridge:
        run = await bridge.run(replay.run.id)
        run.submit(0, {"calls": [], "output": "late"})
        assert await run.result() == "late"
        [step] = bridge.store.ideas.of_run(run.id)
        assert step.meta.parent == told.idea_id


async def test_two_solved_runs_confirm_each_other() -> None:
    def think(text: str) -> JSONObject:
        at = re.findall(r'"at": ?"(\w+)"', text)[-1]
        return {
            "calls": [{"_tool": "look", "at": at, "_outputPath": "seen"}],
            "output": "†state.seen",
        }

    async with Bridge(toolbox=box(), mind=Mind(think)) as bridge:
        run = await solved(bridge)
        await bridge.publish(run, "see", answer="solve")
        replay = await bridge.start_idea("see", {"at": "bellows"})
        assert await gave(replay) == "bellows it is"
        assert replay.run is not None
        confirmed = await bridge.publish(run, "see", choices={"runs": [replay.run.id]})
        assert checked(confirmed) == "confirmed"


# -- auto ------------------------------------------------------------------------------------------


async def test_auto_runs_its_plan_also_for_an_input_that_was_answered_before() -> None:
    RAN.clear()
    async with Bridge(toolbox=box()) as bridge:
        told = await bridge.publish(await looked(bridge), "see")
        assert told.answer == "auto"
        assert "stored answer" not in told.description
        for at in ("anvil", "cog", "cog"):
            replay = await bridge.start_idea("see", {"at": at})
            assert (replay.answer, await gave(replay)) == ("plan", f"{at} it is")
        assert RAN == ["anvil", "anvil", "cog", "cog"]


async def test_auto_without_a_plan_asks_a_mind() -> None:
    mind = Mind(literally)
    async with Bridge(toolbox=box(), mind=mind) as bridge:
        context: list[JSON] = [{"type": "data", "kind": "where", "data": "here"}]
        run = await bridge.solve("See.", input={"at": "anvil"}, context=context, tools=["look"])
        assert await run.wait(30) == "done"
        told = await bridge.publish(run.id, "see")
        assert (told.answer, told.plan) == ("auto", None)
        assert "A model solves the task again" in told.description
        for at in ("anvil", "cog", "cog"):
            asked = len(mind.seen)
            replay = await bridge.start_idea("see", {"at": at})
            assert (replay.answer, await gave(replay)) == ("solve", f"I saw {at}")
            assert len(mind.seen) == asked + 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": [1, {"x": 1, "y": 2}]}, {"b": [1, {"y": 2, "x": 1}], "a": 1}, True),
        ({"b": [1, 2]}, {"b": [2, 1]}, False),
        ({"a": 1, "n": None}, {"a": 1}, False),
        ({"a": 1.0}, {"a": 1}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": 1.5}, {"a": 1}, False),
    ],
)
def test_inputs_are_the_same_however_they_are_written(one: JSON, other: JSON, same: bool) -> None:
    assert (json.dumps(same_input(one)) == json.dumps(same_input(other))) == same


async def test_a_publication_from_elsewhere_needs_what_it_answers_by() -> None:
    with Store.open(":memory:") as store:
        async with Bridge(toolbox=box(), store=store) as bridge:
            told = await bridge.publish(await looked(bridge), "see")
            members: dict[str, Any] = {
                field.name: getattr(told, field.name)
                for field in dataclasses.fields(NewPublication)
            }
            again = NewPublication(**members)
            with pytest.raises(PublicationContentError, match="neither a plan nor"):
                store.publications.publish(dataclasses.replace(again, plan=None))
            store.publications.publish(dataclasses.replace(again, answer="solve"))
            with pytest.raises(PublicationError, match="publish it again"):
                await bridge.start_idea("see", {"at": "a"})
            # A solved idea is exported together with its context and tools.
            await bridge.publish(await looked(bridge), "away", answer="solve")
            document = bridge.export_idea("away", caller=SEES_ALL)
        with Store.open(":memory:") as other:
            other.import_idea(document, with_publication=True)
            async with Bridge(toolbox=box(), store=other, mind=Mind(literally)) as bridge:
                assert await gave(await bridge.start_idea("away", {"at": "cog"})) == "I saw cog"


async def test_an_absent_parameter_has_its_default() -> None:
    @tool(read_only=True)
    def repeat(text: str, times: int, ends: list[str] | None = None) -> str:
        """Repeat a text."""
        return text * times + "".join(ends or [])

    plan: JSONObject = {
        "calls": [
            {"_tool": "repeat", "text": "†input.text", "times": "†input.n", "ends": "†input.ends"}
        ],
        "input": {"text": "a", "n": 2, "ends": []},
        "input_schema": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "n": {"type": "integer", "default": 2, "minimum": 1},
                "ends": {"type": "array", "default": ["."]},
            },
            "required": ["text"],
        },
        "output": "†results.0",
    }
    async with Bridge(toolbox=box(repeat)) as bridge:
        await bridge.publish(await looked(bridge, plan), "again")
        cases: list[tuple[JSONObject, str]] = [
            ({}, "bb."),
            ({"n": 3}, "bbb."),
            ({"n": 1, "ends": []}, "b"),
            ({"ends": ["!", "?"]}, "bb!?"),
        ]
        for given, said in cases:
            assert await gave(await bridge.start_idea("again", {"text": "b", **given})) == said

        with pytest.raises(ValueMismatchError, match=r"n: found 0, expected at least 1"):
            await bridge.start_idea("again", {"text": "b", "n": 0})

        with pytest.raises(ValueMismatchError, match="text"):
            await bridge.start_idea("again", {"n": 2})

        # The same holds for the plan of another idea.
        called: JSONObject = {
            "_tool": "again",
            "_module": "idea:again",
            "text": "c",
            "_outputPath": "seen",
        }
        run = await bridge.run_plan({"calls": [called], "output": "†state.seen"})
        assert await run.result() == "cc."
        assert [one.faults for one in await bridge.verify(["again"])] == [[]]
        # An imported plan has them as well, if it is checked with the input with which it was
        # recorded.
        document: dict[str, Any] = bridge.export_idea("again", caller=SEES_ALL)
        document["publication"]["recorded"]["input"] = {"text": "a"}
        await bridge.import_idea(document, publish=True, edited=True, replace=["again"])
        assert await gave(await bridge.start_idea("again", {"text": "b"})) == "bb."
        # A recorded answer applies only to exactly the input with which it was recorded.
        await bridge.publish(await looked(bridge, plan), "once", answer="recorded")
        assert (
            await gave(await bridge.start_idea("once", {"text": "a", "n": 2, "ends": []})) == "aa"
        )
        with pytest.raises(
            PublicationError, match="answers only for the input it was recorded with"
        ):
            await bridge.start_idea("once", {"text": "a"})


async def test_a_mind_that_solves_anew_sees_the_defaults() -> None:
    plan: JSONObject = {
        **LOOKING,
        "input_schema": {
            "type": "object",
            "properties": {"at": {"type": "string", "default": "anvil"}},
        },
    }
    mind = Mind(literally)
    async with Bridge(toolbox=box(), mind=mind) as bridge:
        await bridge.publish(await looked(bridge, plan), "see", answer="solve")
        assert await gave(await bridge.start_idea("see", {})) == "I saw anvil"


async def test_a_default_that_its_own_schema_refuses_is_reported() -> None:
    plan: JSONObject = {
        **LOOKING,
        "input_schema": {"type": "object", "properties": {"at": {"type": "string", "default": 7}}},
    }
    async with Bridge(toolbox=box()) as bridge:
        await bridge.publish(await looked(bridge, plan), "see")
        assert await gave(await bridge.start_idea("see", {"at": "cog"})) == "cog it is"
        with pytest.raises(
            ValueMismatchError, match=r"the input of see with its defaults.*at: found 7"
        ):
            await bridge.start_idea("see", {})
