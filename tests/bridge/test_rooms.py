"""Rooms: calls that runs of their own answer: latent ones, clean rooms, ideas."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge, Configuration, Limits
from ideabridge.bridge.context.mind import Usage
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.driving.driver import Driver
from ideabridge.bridge.errors import FinishedRunError, PublicationError
from ideabridge.bridge.loop.event import RunEnded
from ideabridge.bridge.plan import read_plan
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import NewPublication, Publication
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools import Tool, Toolbox, tool
from ideabridge.tools.encoding import JSON, JSONObject
from tests.asking import ASKS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("writes")]

SUMMARISE: JSON = {
    "type": "tool",
    "tool": {
        "name": "summarise",
        "description": "One sentence that says what the text says.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
        "output": {
            "type": "object",
            "properties": {"summary": {"type": "string"}},
            "required": ["summary"],
        },
    },
}


@tool(read_only=True)
def fetch(name: str) -> str:
    """A text by its name."""
    return f"the text {name}"


@tool(read_only=False)
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def own_tools() -> Toolbox:
    box = Toolbox()
    box.add(fetch)
    box.add(send)
    return box


class Mind:
    """Answers each Request by a function of its texts; remembers what it was shown."""

    name = "scripted"

    def __init__(self, think: Callable[[str], JSONObject], usage: Usage | None = None) -> None:
        self.think = think
        self.seen: list[str] = []
        self.schemas: list[JSONObject] = []
        self.usage = usage

    async def answer(self, request: Request) -> AsyncIterator[str | bytes | Usage]:
        text = "\n".join(str(message["content"]) for message in request.texts)
        self.seen.append(text)
        self.schemas.append(request.schema)
        yield json.dumps(self.think(text), ensure_ascii=False)
        if self.usage is not None:
            yield self.usage


FETCHING: JSONObject = {
    "calls": [{"_tool": "fetch", "name": "†input.name", "_outputPath": "t"}],
    "input": {"name": "a"},
    "output": {"text": "†state.t"},
}


async def published(bridge: Bridge, name: str, plan: JSONObject) -> Publication:
    """What a plan is published as, after a run of it."""
    run = await bridge.run_plan(read_plan(plan))
    await run.result()
    return await bridge.publish(run.id, name, answer="plan")


def calls(*listed: JSON, output: JSON = None) -> JSONObject:
    return {"calls": list(listed), "output": output}


# -- the four combinations of scope and method -----------------------------------------------------


async def test_inline_explicit_code_here_gives_the_result() -> None:
    async with Bridge(ASKS, toolbox=own_tools()) as bridge:
        run = await bridge.run_plan(
            read_plan({"calls": [{"_tool": "fetch", "name": "a"}], "output": "†results.0"})
        )
        assert await run.result() == "the text a"


async def test_inline_latent_the_mind_writes_the_result_into_the_call() -> None:
    def think(text: str) -> JSONObject:
        written: JSONObject = {
            "_tool": "summarise",
            "text": "x is y",
            "_output": {"summary": "y"},
            "_outputPath": "s",
        }
        return calls(written, output="†state.s.summary")

    async with Bridge(mind=Mind(think)) as bridge:
        run = await bridge.solve("summarise 'x is y'", context=[SUMMARISE])
        assert await run.result() == "y"
        assert len(bridge.store.runs.newest(caller=SEES_ALL)) == 1


async def test_inline_latent_whose_references_are_not_known_yet_is_answered_by_a_sub_request() -> (
    None
):
    def think(text: str) -> JSONObject:
        if "Write the result of the call below" in text:
            assert "the text a" in text
            # The call is made inline, so the context of the run comes before the question.
            assert "summarise text a" in text
            return calls(output={"summary": "short a"})
        return calls(
            {"_tool": "fetch", "name": "a", "_outputPath": "text"},
            {"_tool": "summarise", "text": "†state.text", "_outputPath": "s"},
            output="†state.s.summary",
        )

    mind = Mind(think)
    async with Bridge(ASKS, toolbox=own_tools(), mind=mind) as bridge:
        run = await bridge.solve("summarise text a", context=[SUMMARISE])
        assert await run.result() == "short a"
        assert len(mind.seen) == 2
        assert run.answer()["usage"] == {"requests": 2, "tokens": 0}
        # The room has no tools, and its output is what the tool declares.
        properties = mind.schemas[1]["properties"]
        assert isinstance(properties, dict)
        assert isinstance(properties["calls"], dict)
        assert properties["calls"]["maxItems"] == 0


async def test_module_latent_a_clean_room_sees_the_call_and_its_imports_alone() -> None:
    def think(text: str) -> JSONObject:
        if "Write the result of the call below" in text:
            assert "the text a" in text
            assert "be brief" in text
            assert "secret task" not in text
            assert "hidden" not in text
            return calls(output={"summary": "clean"})
        return calls(
            {"_tool": "fetch", "name": "a", "_outputPath": "text"},
            {
                "_tool": "summarise",
                "_module": "anonymous",
                "text": "†state.text",
                "_imports": ["†input.style"],
                "_outputPath": "s",
            },
            output="†state.s.summary",
        )

    async with Bridge(ASKS, toolbox=own_tools(), mind=Mind(think)) as bridge:
        run = await bridge.solve(
            "secret task", context=[SUMMARISE], input={"style": "be brief", "other": "hidden"}
        )
        assert await run.result() == "clean"


async def test_module_explicit_an_idea_answers_with_its_plan() -> None:
    async with Bridge(ASKS, toolbox=own_tools()) as bridge:
        plan: JSONObject = {
            "calls": [{"_tool": "fetch", "name": "†input.name", "_outputPath": "t"}],
            "input": {"name": "a"},
            "output": {"text": "†state.t"},
        }
        taught = await bridge.run_plan(read_plan(plan))
        await taught.result()
        await bridge.publish(taught.id, "get_text")
        use: JSONObject = {
            "calls": [
                {"_tool": "get_text", "_module": "idea:get_text", "name": "b", "_outputPath": "b"},
                {
                    "_tool": "get_text",
                    "_module": "idea:get_text@1",
                    "name": "†state.b.text",
                    "_outputPath": "c",
                },
            ],
            "output": ["†state.b", "†state.c"],
        }
        run = await bridge.run_plan(read_plan(use))
        assert await run.result() == [{"text": "the text b"}, {"text": "the text the text b"}]
        # Rooms are part of their run, so the list of runs contains only the two that were asked
        # for.
        assert [one["run"] for one in bridge.runs()] == [run.id, taught.id]


async def test_a_plan_that_calls_an_idea_is_published_as_a_plan_itself() -> None:
    async with Bridge(ASKS, toolbox=own_tools()) as bridge:
        await published(bridge, "get_text", FETCHING)
        calling: JSONObject = {
            "_tool": "get_text",
            "_module": "idea:get_text",
            "name": "†input.of",
            "_outputPath": "b",
        }
        outer: JSONObject = {
            "calls": [calling],
            "input": {"of": "b"},
            "output": {"found": "†state.b.text"},
        }
        told = await published(bridge, "outer", outer)
        assert told.answer == "plan"
        assert "model" not in told.description
        assert told.annotations["readOnlyHint"] is True
        replay = await bridge.start_idea("outer", {"of": "c"})
        assert replay.run is not None
        assert await replay.run.result() == {"found": "the text c"}


async def test_a_published_plan_with_a_clean_room_says_that_a_model_is_asked() -> None:
    solving: JSONObject = {
        "_tool": "solve",
        "_module": "anonymous",
        "task": "describe",
        "input": {"of": "†input.of"},
        "_outputPath": "d",
    }
    described: JSONObject = {
        "calls": [solving],
        "input": {"of": "b"},
        "output": {"said": "†state.d"},
    }
    async with Bridge(
        ASKS, toolbox=own_tools(), mind=Mind(lambda text: calls(output="†input.of"))
    ) as bridge:
        told = await published(bridge, "describe", described)
        assert told.answer == "plan"
        assert "no model" not in told.description
        assert "A model is asked only for calls.0 (solve)." in told.description
        replay = await bridge.start_idea("describe", {"of": "c"})
        assert replay.run is not None
        assert await replay.run.result() == {"said": "c"}
        # The description of a plan that calls this idea says so, too.
        using: JSONObject = {
            "_tool": "describe",
            "_module": "idea:describe@1",
            "of": "†input.of",
            "_outputPath": "d",
        }
        outer: JSONObject = {"calls": [using], "input": {"of": "b"}, "output": "†state.d"}
        assert "A model is asked" in (await published(bridge, "outer", outer)).description


async def test_a_published_plan_with_a_latent_call_says_that_a_model_is_asked() -> None:
    box = own_tools()
    box.add(
        Tool(
            "spell",
            "A text spelt out.",
            {"type": "object", "properties": {"text": {"type": "string"}}},
        )
    )
    spelling: JSONObject = {"_tool": "spell", "text": "†input.text", "_outputPath": "s"}
    plan: JSONObject = {"calls": [spelling], "input": {"text": "ab"}, "output": "†state.s"}
    async with Bridge(ASKS, toolbox=box, mind=Mind(lambda text: calls(output="a b"))) as bridge:
        assert "A model is asked" in (await published(bridge, "spelt", plan)).description


async def test_ideas_that_would_call_each_other_in_a_circle_are_not_published() -> None:
    async with Bridge(ASKS, toolbox=own_tools()) as bridge:
        await published(bridge, "a", FETCHING)
        for name, below in (("b", "idea:a"), ("c", "idea:b")):
            calling: JSONObject = {
                "_tool": below[-1],
                "_module": below,
                "name": "†input.name",
                "_outputPath": "t",
            }
            await published(
                bridge, name, {**FETCHING, "calls": [calling], "output": {"text": "†state.t.text"}}
            )
        for module in ("idea:c", "idea:a"):
            calling = {
                "_tool": module[-1],
                "_module": module,
                "name": "†input.name",
                "_outputPath": "t",
            }
            circular: JSONObject = {**FETCHING, "calls": [calling]}
            with pytest.raises(
                PublicationError, match=r"it would call itself: a -> (c -> b -> )?a"
            ):
                await published(bridge, "a", circular)
        # A version never changes, so a plan that calls an earlier version comes to an end.
        calling = {"_tool": "a", "_module": "idea:a@1", "name": "†input.name", "_outputPath": "t"}
        plan: JSONObject = {**FETCHING, "calls": [calling], "output": {"text": "†state.t.text"}}
        assert (await published(bridge, "a", plan)).version == 2
        replay = await bridge.start_idea("a", {"name": "x"})
        assert replay.run is not None
        assert await replay.run.result() == {"text": "the text x"}


async def test_ideas_in_a_circle_that_publication_did_not_see_end_by_their_depth() -> None:
    async with Bridge(ASKS, toolbox=own_tools()) as bridge:
        first = await published(bridge, "a", FETCHING)
        calling: JSONObject = {
            "_tool": "a",
            "_module": "idea:a",
            "name": "†input.name",
            "_outputPath": "t",
        }
        # The import of a document publishes in the same way, and checks the document piece by
        # piece.
        bridge.store.publications.publish(
            NewPublication(
                name="a",
                idea_id=first.idea_id,
                description="",
                answer="plan",
                input_schema=first.input_schema,
                output_schema=None,
                annotations={},
                plan={"calls": [calling]},
                recorded=None,
            )
        )
        replay = await bridge.start_idea("a", {"name": "x"})
        assert replay.run is not None
        await replay.run.wait()
        assert "idea:a > idea:a > idea:a > idea:a" in json.dumps(replay.run.errors())


async def test_an_idea_nobody_published_is_told_before_anything_runs() -> None:
    async with Bridge(ASKS, toolbox=own_tools()) as bridge:
        with pytest.raises(Exception, match=r"you have no published idea 'idea:gone'"):
            await bridge.run_plan(read_plan({"calls": [{"_tool": "gone", "_module": "idea:gone"}]}))


# -- clean rooms -----------------------------------------------------------------------------------


async def test_a_task_in_a_clean_room_has_the_tools_it_was_given_and_no_more() -> None:
    def think(text: str) -> JSONObject:
        if "find out about a" in text:
            assert "outer" not in text
            if "the text a" in text:
                return calls(output="†state.found")
            return calls({"_tool": "fetch", "name": "†input.name", "_outputPath": "found"})

        room: JSONObject = {
            "_tool": "solve",
            "_module": "anonymous",
            "task": "find out about a",
            "input": {"name": "a"},
            "tools": ["fe*"],
            "_outputPath": "found",
        }
        return calls(room, output="†state.found")

    mind = Mind(think)
    async with Bridge(ASKS, toolbox=own_tools(), mind=mind) as bridge:
        run = await bridge.solve("outer", tools=["anonymous.solve", "fetch", "send"])
        assert await run.result() == "the text a"
        assert "fetch" in json.dumps(mind.schemas[1])
        assert "send" not in json.dumps(mind.schemas[1])


async def test_rooms_are_not_offered_unless_they_are_asked_for() -> None:
    mind = Mind(lambda text: calls(output="done"))
    async with Bridge(ASKS, toolbox=own_tools(), mind=mind) as bridge:
        await (await bridge.solve("say done")).result()
        assert "anonymous" not in json.dumps(mind.schemas[0])


async def test_rooms_open_in_each_other_only_so_deep() -> None:
    room: JSONObject = {
        "_tool": "solve",
        "_module": "anonymous",
        "task": "deeper",
        "tools": ["*"],
        "_outputPath": "x",
    }
    mind = Mind(
        lambda text: (
            calls(output="no further") if "This failed" in text else calls(room, output="†state.x")
        )
    )
    async with Bridge(mind=mind) as bridge:
        run = await bridge.solve("deep", tools=["anonymous.solve"])
        assert await run.result() == "no further"
        assert "the settings do not allow rooms to be nested any deeper" in "\n".join(mind.seen)
        assert max(one.id.count(".") for one in bridge.store.runs.newest(caller=SEES_ALL)) == 3


async def test_a_run_and_its_rooms_share_one_budget_of_requests(writes: str) -> None:
    room: JSONObject = {
        "_tool": "solve",
        "_module": "anonymous",
        "task": "never ends",
        "tools": ["fetch"],
        "_each": [1, 2, 3, 4],
    }

    def think(text: str) -> JSONObject:
        if "never ends" in text:
            return calls({"_tool": "fetch", "name": "x"})
        return calls(room)

    mind = Mind(think)
    async with Bridge(ASKS, toolbox=own_tools(), mind=mind) as bridge:
        run = await bridge.solve(
            "outer", tools=["anonymous.solve", "fetch"], limits={"requests": 10}
        )
        assert await run.wait() == "limit"
        assert (
            run.answer()["reason"]
            == "10 requests were made, which is the limit for a run and its rooms"
        )
        # Requests that are written together are counted together, before their minds are asked.
        assert len(mind.seen) == 10 or (writes == "later" and len(mind.seen) < 10)
        assert {
            one.status for one in bridge.store.runs.newest(caller=SEES_ALL) if one.parent == run.id
        } == {"cancelled"}


async def test_what_a_room_used_counts_for_the_run() -> None:
    def think(text: str) -> JSONObject:
        if "Write the result" in text:
            return calls(output={"summary": "s"})
        return calls(
            {"_tool": "fetch", "name": "a", "_outputPath": "t"},
            {"_tool": "summarise", "text": "†state.t", "_outputPath": "s"},
            output="†state.s.summary",
        )

    mind = Mind(think, Usage(100, 10, 0.5))
    async with Bridge(ASKS, toolbox=own_tools(), mind=mind) as bridge:
        run = await bridge.solve("go", context=[SUMMARISE])
        assert await run.result() == "s"
        assert run.answer()["usage"] == {"requests": 2, "tokens": 220, "cost": 1.0}


async def test_a_room_that_fails_fails_its_call_alone() -> None:
    bad: JSONObject = {
        "_tool": "solve",
        "_module": "anonymous",
        "task": "x",
        "output_schema": {"type": "nonsense"},
    }
    plan: JSONObject = {
        "calls": [bad, {"_tool": "fetch", "name": "a", "_outputPath": "t"}],
    }
    async with Bridge(
        ASKS, toolbox=own_tools(), mind=Mind(lambda text: calls(output="x"))
    ) as bridge:
        run = await bridge.run_plan(read_plan(plan))
        assert await run.wait() == "done"
        assert run.machine.state == {"t": "the text a"}
        assert "output_schema" in json.dumps(run.errors())


async def test_cancelling_a_run_ends_its_rooms() -> None:
    async with Bridge(ASKS, toolbox=own_tools()) as bridge:
        run = await waiting_room(bridge)
        run.cancel("enough")
        assert await run.wait() == "cancelled"
        assert [
            one.status for one in bridge.store.runs.newest(caller=SEES_ALL) if one.parent == run.id
        ] == ["cancelled"]


async def test_a_room_that_loses_is_ended_and_the_session_goes_on() -> None:
    opened = anyio.Event()

    @tool(read_only=True)
    async def quick() -> str:
        """End once the room is open."""
        await opened.wait()
        return "quick"

    async with Bridge(ASKS, toolbox=Toolbox(quick)) as bridge:
        tools = ["quick", "anonymous.solve"]
        async with bridge.session(tools=tools) as session, anyio.create_task_group() as group:
            run = session.underlying

            async def open_the_gate() -> None:
                while not run.rooms:
                    await run.runner.wait_changed()
                opened.set()

            group.start_soon(open_the_gate)
            alternatives: list[JSONObject] = [
                {
                    "_tool": "solve",
                    "_module": "anonymous",
                    "task": "describe",
                    "_outputPath": "slow",
                },
                {"_tool": "quick", "_outputPath": "quick"},
            ]
            with anyio.fail_after(20):
                assert await session.run_any(alternatives) == "quick"

            assert (dict(run.rooms), session.state) == ({}, {"quick": "quick"})
            [room_id] = [
                one.id for one in bridge.store.runs.newest(caller=SEES_ALL) if one.parent == run.id
            ]
            room = await bridge.run(room_id)
            assert (room.status, room.machine.reason) == (
                "cancelled",
                "the call that this room answers was cancelled",
            )
            with pytest.raises(FinishedRunError):
                room.submit(0, {"calls": [], "output": "too late"})

            assert await session.run({"_tool": "quick"}) == "quick"


# -- by turns --------------------------------------------------------------------------------------


async def waiting_room(bridge: Bridge) -> Run:
    plan: JSONObject = {
        "calls": [
            {"_tool": "fetch", "name": "a", "_outputPath": "t"},
            {
                "_tool": "solve",
                "_module": "anonymous",
                "task": "describe",
                "tools": ["fetch"],
                "input": {"t": "†state.t"},
                "_outputPath": "d",
            },
        ],
        "output": "†state.d",
    }
    run = await bridge.run_plan(read_plan(plan))
    assert await run.wait() == "needs_solution"
    return run


def the_request(run: Run) -> JSONObject:
    return run.answer()["requests"][0]


async def test_by_turns_the_request_of_a_room_is_one_of_the_runs() -> None:
    async with Bridge(ASKS, toolbox=own_tools()) as bridge:
        run = await waiting_room(bridge)
        request = the_request(run)
        assert "turn" not in run.answer()
        room = await bridge.run(str(request["run"]))
        room.submit(int(str(request["turn"])), {"calls": [], "output": "a description"})
        assert await run.wait() == "done"
        assert run.given() == "a description"


async def test_another_process_may_answer_a_room_and_the_run_goes_on_there(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    async with (
        Bridge(ASKS, toolbox=own_tools(), store=path) as first,
        Bridge(ASKS, toolbox=own_tools(), store=path) as second,
    ):
        here = await waiting_room(first)
        there = await second.run(here.id)
        assert there.status == "needs_solution"
        request = the_request(there)
        room = await second.run(str(request["run"]))
        room.submit(0, {"calls": [{"_tool": "fetch", "name": "x"}], "output": None})
        assert await room.root.wait() == "needs_solution"
        # Then let the first process continue the run.
        again = await first.run(str(request["run"]))
        again.submit(1, {"calls": [], "output": "by two"})
        assert await again.root.wait() == "done"
        assert again.root.id == here.id
        assert (await second.run(here.id)).given() == "by two"


async def test_a_room_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    async with Bridge(ASKS, toolbox=own_tools(), store=path) as bridge:
        run_id = (await waiting_room(bridge)).id

    async with Bridge(ASKS, toolbox=own_tools(), store=path) as bridge:
        run = await bridge.run(run_id)
        assert run.status == "needs_solution"
        room = await bridge.run(str(the_request(run)["run"]))
        room.submit(0, {"calls": [], "output": "later"})
        assert await run.wait() == "done"
        assert run.given() == "later"


async def test_approvals_of_a_room_are_asked_of_the_run() -> None:
    def think(text: str) -> JSONObject:
        if "send it" in text:
            return calls({"_tool": "send", "text": "hello", "_outputPath": "s"}, output="†state.s")
        return calls()

    plan: JSONObject = {
        "calls": [
            {
                "_tool": "solve",
                "_module": "anonymous",
                "task": "send it",
                "tools": ["send"],
                "_each": [1, 2],
            },
            {"_tool": "send", "text": "own"},
        ],
        "output": "†results.0",
    }
    # The rooms of both items are open at the same time.
    async with Bridge(UNORDERED, toolbox=own_tools(), mind=Mind(think)) as bridge:
        run = await bridge.run_plan(read_plan(plan))
        while len(run.approvals()) < 3:
            await run.runner.wait_changed()

        assert await run.wait() == "needs_approval"
        names = [str(one["approval"]) for one in run.approvals() if isinstance(one, dict)]
        assert [name.split("/")[0] for name in names[1:]] == ["0-0", "0-1"]
        for name in names:
            run.decide(name, "approve", by="ann")

        assert await run.result() == ["sent hello", "sent hello"]


async def test_limits_of_the_configuration_hold_in_rooms() -> None:
    def think(text: str) -> JSONObject:
        if "many" in text:
            many: list[JSON] = [{"_tool": "fetch", "name": str(number)} for number in range(20)]
            return calls(*many, output="x")
        return calls()

    plan: JSONObject = {
        "calls": [{"_tool": "solve", "_module": "anonymous", "task": "many", "tools": ["fetch"]}]
    }
    configuration = Configuration(limits=Limits(calls=10))
    async with Bridge(configuration, toolbox=own_tools(), mind=Mind(think)) as bridge:
        run = await bridge.run_plan(read_plan(plan))
        assert await run.wait() == "limit"


# -- two processes, and what is left behind --------------------------------------------------------


class Gates:
    """A tool whose calls wait until the test opens their gate."""

    def __init__(self) -> None:
        self.started: dict[str, anyio.Event] = {name: anyio.Event() for name in ("one", "two")}
        self.opened: dict[str, anyio.Event] = {name: anyio.Event() for name in ("one", "two")}

        @tool(read_only=True)
        async def held(gate: str) -> str:
            """Wait."""
            self.started[gate].set()
            await self.opened[gate].wait()
            return f"through {gate}"

        self.toolbox = Toolbox(held)


HELD_AND_ROOM: JSONObject = {
    "calls": [
        {"_tool": "held", "gate": "one", "_outputPath": "a"},
        {
            "_tool": "solve",
            "_module": "anonymous",
            "task": "x",
            "tools": ["held"],
            "_outputPath": "b",
        },
    ],
    "output": ["†state.a", "†state.b"],
}


UNORDERED = ASKS.model_copy(update={"order": "none"})
"""The room and the call beside it have tools that may change something: both are to be
at work at once."""


async def held_and_room(bridge: Bridge, gates: Gates) -> Run:
    """A run that has a call in flight, and a room that waits for a solution."""
    run = await bridge.run_plan(read_plan(HELD_AND_ROOM))
    await gates.started["one"].wait()
    assert await run.wait() == "needs_solution"
    return run


async def test_what_another_process_answered_in_a_room_is_told_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    async with (
        Bridge(ASKS, toolbox=own_tools(), store=path) as first,
        Bridge(ASKS, toolbox=own_tools(), store=path) as second,
    ):
        run = await waiting_room(first)
        room = await second.run(str(the_request(run)["run"]))
        room.submit(0, {"calls": [{"_tool": "fetch", "name": "x"}], "output": None})
        assert await room.root.wait() == "needs_solution"
        assert the_request(await first.run(run.id))["turn"] == 1


async def test_a_call_that_was_cut_off_goes_on_though_a_room_waits_for_a_solution(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ideas.db"
    gates = Gates()
    async with Bridge(UNORDERED, toolbox=gates.toolbox, store=path) as bridge:
        run_id = (await held_and_room(bridge, gates)).id

    again = Gates()
    async with Bridge(UNORDERED, toolbox=again.toolbox, store=path) as bridge:
        with anyio.fail_after(20):
            run = await bridge.run(run_id)
            await again.started["one"].wait()
            again.opened["one"].set()
            room = await bridge.run(str(the_request(run)["run"]))
            room.submit(0, {"calls": [], "output": "said"})
            assert await run.result() == ["through one", "said"]


async def test_a_room_whose_run_ended_without_it_is_ended_when_it_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    async with Bridge(ASKS, toolbox=own_tools(), store=path) as bridge:
        run = await waiting_room(bridge)
        room_id = str(the_request(run)["run"])

    with Store.open(path) as store:
        # Its process was killed after this event, but before the room ended.
        driver = Driver(store, run.id, "dead")
        driver.take()
        driver.journal([RunEnded("cancelled")])
        driver.release()

    async with Bridge(ASKS, toolbox=own_tools(), store=path) as bridge:
        room = await bridge.run(room_id)
        assert await room.wait() == "cancelled"
        with pytest.raises(FinishedRunError):
            room.submit(0, {"calls": [{"_tool": "fetch", "name": "x"}], "output": None})


async def test_a_run_driven_here_goes_on_when_a_room_driven_elsewhere_ends(tmp_path: Path) -> None:
    path = tmp_path / "ideas.db"
    gates = Gates()
    async with (
        Bridge(UNORDERED, toolbox=gates.toolbox, store=path, lease_seconds=1) as first,
        Bridge(UNORDERED, toolbox=gates.toolbox, store=path, lease_seconds=1) as second,
    ):
        with anyio.fail_after(20):
            run = await held_and_room(first, gates)
            room = await second.run(str(the_request(run)["run"]))
            room.submit(
                0,
                {
                    "calls": [{"_tool": "held", "gate": "two", "_outputPath": "c"}],
                    "output": "†state.c",
                },
            )
            await gates.started["two"].wait()
            # This process sees that the other one is working on the room, so it does not take the
            # run.
            assert (await first.run(run.id)).status == "running"
            gates.opened["one"].set()
            gates.opened["two"].set()
            assert await run.result() == ["through one", "through two"]
