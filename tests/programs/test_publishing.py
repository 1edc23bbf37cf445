"""Programs become tools: what is stored, what a call does, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import MeantToolError, PublicationError
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.bridge.store.versions import differences
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError, ValueMismatchError
from ideabridge.tools.toolbox import Toolbox
from tests.lifting.runs import checked

pytestmark = pytest.mark.anyio

FREE = Configuration(approval="allow_all")

PAGES = """
import tools
found = []
page = 0
while True:
    part = await tools.page(number=page, size=input["size"])
    found += [one for one in part if one.startswith(input.get("prefix", "a"))]
    if len(part) < input["size"]:
        break
    page += 1
for one in found:
    await tools.mark(name=one)
{"found": found, "pages": page + 1}
"""


class Library:
    """Tools, and what was marked."""

    def __init__(self) -> None:
        self.names = ["anna", "bert", "axel", "cora", "alma"]
        self.marked: list[str] = []

        @tool(read_only=True)
        async def page(number: int, size: int) -> list[str]:
            """A page of names."""
            return self.names[number * size : (number + 1) * size]

        @tool
        async def mark(name: str) -> None:
            """Mark a name."""
            if name == "nobody":
                raise ActivityError("there is no such name")
            self.marked.append(name)

        self.toolbox = Toolbox(page, mark)


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
async def bridge(library: Library) -> AsyncIterator[Bridge]:
    async with Bridge(FREE, toolbox=library.toolbox) as opened:
        yield opened


async def ended(bridge: Bridge, program: str, given: JSONObject | None = None) -> Run:
    run = await bridge.run_program(program, input=given)
    with anyio.fail_after(30):
        assert await run.wait() == "done", run.errors()
    return run


async def called(bridge: Bridge, name: str, arguments: JSONObject) -> JSON:
    replay = await bridge.start_idea(name, arguments)
    assert replay.run is not None
    with anyio.fail_after(30):
        assert await replay.run.wait() == "done", replay.run.errors()
    return replay.run.given()


async def test_a_program_becomes_a_tool_that_runs_it_with_new_input(
    bridge: Bridge, library: Library
) -> None:
    run = await ended(bridge, PAGES, {"size": 2})
    published = await bridge.publish(run.id, "find_names")
    assert published.answer == "program"
    assert published.input_schema == {
        "type": "object",
        "properties": {"size": {"type": "number"}, "prefix": {"type": "string", "default": "a"}},
        "required": ["size"],
        "additionalProperties": False,
    }
    assert published.annotations["readOnlyHint"] is False
    assert published.description == "Calls page, mark and gives found, pages."
    assert checked(published) == "self-consistent"
    library.marked.clear()
    assert await called(bridge, "find_names", {"size": 3, "prefix": "b"}) == {
        "found": ["bert"],
        "pages": 2,
    }
    assert library.marked == ["bert"]
    with pytest.raises(ValueMismatchError, match="prefx"):
        await bridge.start_idea("find_names", {"size": 1, "prefx": "b"})


async def test_a_program_without_a_value_gives_null(bridge: Bridge, library: Library) -> None:
    run = await ended(
        bridge, "import tools\nawait tools.mark(name=input['name'])\nNone", {"name": "anna"}
    )
    assert run.given() is None
    await bridge.publish(run.id, "mark_name")
    assert await called(bridge, "mark_name", {"name": "bert"}) is None
    assert library.marked == ["anna", "bert"]
    (verdict,) = await bridge.verify()
    assert verdict.faults == []


async def test_it_pins_what_it_may_call_and_verify_runs_it_with_its_results(
    bridge: Bridge, library: Library
) -> None:
    run = await ended(bridge, PAGES, {"size": 2})
    published = await bridge.publish(run.id, "find_names")
    plan = published.plan or {}
    pins = plan["pins"]
    assert isinstance(pins, list)
    assert [one["tool"] for one in pins if isinstance(one, dict)] == ["mark", "page"]
    assert plan["names"] == {"modules": {"tools": {"page": [None, "page"], "mark": [None, "mark"]}}}
    library.marked.clear()
    (verdict,) = await bridge.verify()
    assert verdict.faults == []
    replayed = "with the recorded results, it does what its run did"
    assert verdict.notes == [replayed, "not run: calls.0 (mark) may do more than read"]
    assert library.marked == []
    (verdict,) = await bridge.verify(effects=True)
    assert (verdict.faults, verdict.notes) == ([], [replayed, "run again"])
    assert library.marked == ["anna", "axel", "alma"]


async def test_a_program_may_call_a_published_program(bridge: Bridge, library: Library) -> None:
    run = await ended(bridge, PAGES, {"size": 2})
    await bridge.publish(run.id, "find_names")
    outer = """
import ideas
first = ideas.find_names(size=input["size"])
second = ideas.find_names(size=1, prefix="b")
[(await first)["pages"], (await second)["found"]]
"""
    run = await ended(bridge, outer, {"size": 2})
    assert run.given() == [3, ["bert"]]
    published = await bridge.publish(run.id, "both")
    assert published.annotations["readOnlyHint"] is False
    assert await called(bridge, "both", {"size": 5}) == [2, ["bert"]]
    with pytest.raises(PublicationError, match="it would call itself: find_names -> find_names"):
        await bridge.publish(run.id, "find_names", answer="program")


async def test_a_changed_tool_is_noticed(library: Library, tmp_path: Path) -> None:
    async with Bridge(FREE, toolbox=library.toolbox, store=tmp_path / "store.db") as bridge:
        run = await ended(
            bridge, "import tools\nlen(await tools.page(number=0, size=input['n']))", {"n": 2}
        )
        published = await bridge.publish(run.id, "count_names")
        assert published.annotations["readOnlyHint"] is True
        document = bridge.export_idea("count_names", caller=SEES_ALL)

    @tool(read_only=True)
    async def page(number: int, size: int, order: str) -> list[str]:
        """A page of names."""
        return [order] * size * number

    async with Bridge(toolbox=Toolbox(page), store=tmp_path / "store.db") as other:
        with pytest.raises(
            MeantToolError, match=r"(?s)count_names cannot be called: page has changed: .*order"
        ):
            await other.start_idea("count_names", {"n": 1})

    async with Bridge(toolbox=Toolbox(page)) as other:
        with pytest.raises(
            PublicationError, match="line 2, column 11: No argument provided for required parameter"
        ):
            await other.import_idea(document, publish=True)


async def test_it_travels_as_a_document(library: Library, bridge: Bridge) -> None:
    run = await ended(bridge, PAGES, {"size": 2})
    await bridge.publish(run.id, "find_names")
    document = bridge.export_idea("find_names", caller=SEES_ALL, results=True)
    async with Bridge(FREE, toolbox=Library().toolbox) as other:
        await other.import_idea(document, publish=True)
        assert await called(other, "find_names", {"size": 4, "prefix": "c"}) == {
            "found": ["cora"],
            "pages": 2,
        }
        # The run stays in the store where it was made, which is not a fault of the program.
        (verdict,) = await other.verify()
        assert verdict.faults == []
        assert any("its run cannot be read: " in note for note in verdict.notes)

    published = document["publication"]
    assert isinstance(published, dict)
    plan = published["plan"]
    assert isinstance(plan, dict)
    calls = plan["calls"]
    assert isinstance(calls, list)
    # This document declares less than its program may call.
    hidden: JSONObject = {**plan, "calls": calls[:1]}
    edited: JSONObject = {**document, "publication": {**published, "plan": hidden}}
    async with Bridge(FREE, toolbox=Library().toolbox) as other:
        with pytest.raises(PublicationError, match=r"calls: .*page.* is missing, although"):
            await other.import_idea(edited, publish=True, edited=True)


async def test_another_version_shows_the_lines_that_differ(bridge: Bridge) -> None:
    first = await bridge.publish(
        (await ended(bridge, "n = input['n']\nn + 1", {"n": 2})).id, "more"
    )
    second = await bridge.publish(
        (await ended(bridge, "n = input['n']\nn + 2", {"n": 2})).id, "more"
    )
    lines = differences(first, second)
    assert "- program: n + 1" in lines
    assert "+ program: n + 2" in lines


async def test_input_that_is_used_as_a_whole_keeps_every_member(bridge: Bridge) -> None:
    run = await ended(bridge, "sorted(input.items())[0][1]", {"b": "x", "a": 5})
    published = await bridge.publish(run.id, "first_of")
    assert published.input_schema == {
        "type": "object",
        "properties": {"b": {"type": "string"}, "a": {"type": "number"}},
        "required": ["b", "a"],
    }
    assert await called(bridge, "first_of", {"a": 1, "b": "x", "0": 7}) == 7


async def test_a_schema_that_was_given_stays(bridge: Bridge) -> None:
    schema: JSONObject = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "required": ["n"],
    }
    run = await bridge.run_plan(
        {"program": "input['n'] * 2", "input": {"n": 2}, "input_schema": schema}
    )
    assert await run.wait() == "done"
    published = await bridge.publish(run.id, "twice")
    assert published.input_schema == schema


async def test_parameters_get_descriptions_and_defaults(bridge: Bridge) -> None:
    run = await ended(bridge, "input['n'] * input['m']", {"n": 2, "m": 3})
    published = await bridge.publish(
        run.id,
        "times",
        parameters={
            "m": {"description": "How often.", "default": 3},
            "n": {"description": "What."},
        },
    )
    schema = published.input_schema or {}
    assert schema["required"] == ["n"]
    assert await called(bridge, "times", {"n": 5}) == 15
    with pytest.raises(
        PublicationError, match=r"parameters\.m: expected description, required or default"
    ):
        await bridge.publish(run.id, "times", parameters={"m": {"rename": "count"}})

    with pytest.raises(
        PublicationError, match=r"parameters\.k: the program reads no input with this name"
    ):
        await bridge.publish(run.id, "times", parameters={"k": {"required": True}})


async def test_a_replay_says_that_a_program_answered(bridge: Bridge) -> None:
    await bridge.publish((await ended(bridge, "input['n'] + 1", {"n": 2})).id, "more")
    replay = await bridge.start_idea("more", {"n": 5})
    assert replay.run is not None
    assert replay.answer == "program"
    assert await replay.run.wait() == "done"
    assert (replay.run.way, replay.run.given()) == ("program", 6)


async def test_other_runs_of_it_confirm_it(bridge: Bridge) -> None:
    first = await ended(bridge, PAGES, {"size": 2})
    second = await ended(bridge, PAGES, {"size": 4, "prefix": "c"})
    published = await bridge.publish(first.id, "find_names", choices={"runs": [second.id]})
    assert checked(published) == "confirmed"


async def test_what_a_person_changed_is_no_program(bridge: Bridge) -> None:
    run = await bridge.run_plan({"calls": [{"_tool": "page", "number": 0, "size": 2}]})
    assert await run.wait() == "done"
    with pytest.raises(PublicationError, match="because no program made its calls"):
        await bridge.publish(run.id, "page_one", answer="program")


async def test_an_error_that_the_program_caught_is_caught_again(bridge: Bridge) -> None:
    program = """
import tools
try:
    await tools.mark(name=input["name"])
    how = "marked"
except RuntimeError as error:
    how = str(error)
how
"""
    run = await ended(bridge, program, {"name": "nobody"})
    assert "there is no such name" in str(run.given())
    published = await bridge.publish(run.id, "try_mark")
    assert published.answer == "program"
    assert await called(bridge, "try_mark", {"name": "anna"}) == "marked"
