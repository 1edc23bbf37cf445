"""Distilling: programs that minds write for recorded runs, and how the recordings judge them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import anyio
import pytest
from mcp import Client

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import ProgramRefusedError, PublicationError
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.server import Front
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests.bridge.test_minds import Scripted, solution
from tests.lifting.runs import checked
from tests.server.serving import call, refused, structured, text

pytestmark = pytest.mark.anyio

FREE = Configuration(approval="allow_all")

RIGHT = """
import tools
found = []
page = 0
while True:
    part = await tools.page(number=page, size=2)
    found += [one for one in part if one.startswith(input["prefix"])]
    if len(part) < 2:
        break
    page += 1
for one in found:
    await tools.mark(name=one)
{"found": found}
"""
OTHER_CALLS = RIGHT.replace("size=2", "size=3")
FEWER_CALLS = RIGHT.replace("await tools.mark(name=one)", "pass")
OTHER_ORDER = RIGHT.replace("for one in found:", "for one in reversed(found):")
OTHER_OUTPUT = RIGHT.replace('{"found": found}', '{"found": found[:1]}')
COPIED = """
import tools
for number in range(3):
    await tools.page(number=number, size=2)
for name in ["anna", "axel", "alma"]:
    await tools.mark(name=name)
{"found": ["anna", "axel", "alma"]}
"""


class Register:
    """Names in pages, and those that were marked."""

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
            if name not in self.names:
                raise ActivityError("there is no such name")
            self.marked.append(name)

        self.toolbox = Toolbox(page, mark)


@pytest.fixture
def register() -> Register:
    return Register()


@pytest.fixture
async def bridge(register: Register) -> AsyncIterator[Bridge]:
    async with Bridge(FREE, toolbox=register.toolbox) as opened:
        yield opened


async def worked(bridge: Bridge, names: list[str]) -> str:
    """A run that a mind made step by step: all pages, then a mark for each of these names."""
    calls: list[JSON] = [{"_tool": "page", "number": number, "size": 2} for number in range(3)]
    calls.extend({"_tool": "mark", "name": name} for name in names)
    run = await bridge.run_plan({"calls": calls, "output": {"found": list[JSON](names)}})
    with anyio.fail_after(30):
        assert await run.wait() == "done"
    return run.id


def answer(
    program: str, inputs: list[JSON] | None = None
) -> list[str | Callable[[], Awaitable[None]]]:
    """What a mind writes: the output is an object with the program."""
    if inputs is None:
        output: JSONObject = {"program": program}
    else:
        output = {"program": program, "inputs": inputs}
    return solution([], output)


A: list[JSON] = [{"prefix": "a"}]


async def test_a_right_program_becomes_the_tool(bridge: Bridge, register: Register) -> None:
    run = await worked(bridge, ["anna", "axel", "alma"])
    published = await bridge.publish(run, "mark_names", program=RIGHT, inputs=A)
    assert published.answer == "program"
    assert (published.input_schema or {})["required"] == ["prefix"]
    report = published.report or {}
    assert (report["reproduces"], report["copied"]) == ([run], [])
    rows = cast("list[JSONObject]", report["rows"])
    assert [(row["name"], row["example"], row["otherwise"]) for row in rows] == [
        ("prefix", '"a"', "required")
    ]
    register.marked.clear()
    replay = await bridge.start_idea("mark_names", {"prefix": "c"})
    assert replay.run is not None
    assert await replay.run.wait() == "done"
    assert (replay.run.given(), register.marked) == ({"found": ["cora"]}, ["cora"])


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (OTHER_CALLS, r"its call 0, page .*3}, is not in the run; the run called page .*2}"),
        (FEWER_CALLS, r'the program does not make the call mark {"name": "anna"}, and 2 more'),
        (
            OTHER_ORDER,
            r'mark {"name": "alma"}, comes before mark {"name": "anna"}, which the run made first',
        ),
        (OTHER_OUTPUT, r"its output differs: "),
        (
            RIGHT.replace("tools.page", "tools.pages"),
            r"line 6, column 18: Module `tools` has no member `pages`",
        ),
        (
            RIGHT.replace("part =", "part = part +"),
            r"the program ends with an error: line 6: NameError",
        ),
        (
            RIGHT + "raise ValueError('no')",
            r"the program ends with an error: line 14: ValueError: no",
        ),
        ("import tools\nawait tools.page(number=0, size=2)\n" * 2 + RIGHT, ""),
        (
            RIGHT.replace(
                "await tools.mark(name=one)", "[await tools.mark(name=one) for _ in '12']"
            ),
            "is made more often",
        ),
        ("this is no program", "line 1"),
    ],
)
async def test_the_recording_judges(bridge: Bridge, program: str, why: str) -> None:
    run = await worked(bridge, ["anna", "axel", "alma"])
    if not why:
        # Reading something a second time changes nothing.
        assert (
            await bridge.publish(run, "mark_names", program=program, inputs=A)
        ).answer == "program"
        return
    with pytest.raises(ProgramRefusedError, match=why):
        await bridge.publish(run, "mark_names", program=program, inputs=A)


async def test_copied_values_are_named_and_another_run_refuses_them(bridge: Bridge) -> None:
    first = await worked(bridge, ["anna", "axel", "alma"])
    second = await worked(bridge, ["bert"])
    published = await bridge.publish(first, "mark_names", program=COPIED)
    report = published.report or {}
    copied = report["copied"]
    assert isinstance(copied, list)
    assert copied[0] == 'line 5: "anna" is also in the result of calls.0 (page) at 0'
    with pytest.raises(
        ProgramRefusedError, match=rf"given the results of run {second}, its call 3, mark .*anna"
    ):
        await bridge.publish(first, "mark_names", program=COPIED, choices={"runs": [second]})

    confirmed = await bridge.publish(
        first,
        "mark_names",
        program=RIGHT,
        inputs=[{"prefix": "a"}, {"prefix": "b"}],
        choices={"runs": [second]},
    )
    assert checked(confirmed) == "confirmed"
    report = confirmed.report or {}
    assert (report["reproduces"], report["copied"]) == ([first, second], [])


async def test_inputs_are_those_of_the_runs(bridge: Bridge) -> None:
    run = await worked(bridge, ["anna", "axel", "alma"])
    with pytest.raises(
        ProgramRefusedError, match="inputs: expected one input for each of the 1 runs, found 2"
    ):
        await bridge.publish(run, "mark_names", program=RIGHT, inputs=[{}, {}])

    with pytest.raises(
        ProgramRefusedError, match="the program ends with an error: line 7: KeyError"
    ):
        await bridge.publish(run, "mark_names", program=RIGHT)

    solved = await bridge.run_plan(
        {"calls": [{"_tool": "page", "number": 0, "size": 1}], "input": {"n": 1}}
    )
    assert await solved.wait() == "done"
    with pytest.raises(
        ProgramRefusedError, match=r"inputs\.0\.n: the input of the run already has this member"
    ):
        await bridge.publish(solved.id, "one", program="1", inputs=[{"n": 2}])


async def test_calls_that_failed_may_be_left_out(bridge: Bridge) -> None:
    run = await bridge.solve("Mark a name.", output_schema={"type": "object"})
    run.submit(0, {"calls": [{"_tool": "mark", "name": "nobody"}], "output": None})
    with anyio.fail_after(30):
        await run.wait()
        run.submit(1, {"calls": [{"_tool": "mark", "name": "anna"}], "output": {"marked": "anna"}})
        assert await run.wait() == "done"

    program = "import tools\nawait tools.mark(name=input['name'])\n{'marked': input['name']}"
    assert (
        await bridge.publish(run.id, "mark_one", program=program, inputs=[{"name": "anna"}])
    ).answer == "program"
    caught = """
import tools
for name in input["names"]:
    try:
        await tools.mark(name=name)
        break
    except RuntimeError:
        pass
{"marked": name}
"""
    given: list[JSON] = [{"names": ["nobody", "anna"]}]
    assert (
        await bridge.publish(run.id, "mark_first", program=caught, inputs=given)
    ).answer == "program"


async def test_a_mind_gets_the_differences_and_tries_again(register: Register) -> None:
    mind = Scripted(answer(OTHER_CALLS, A), answer(OTHER_OUTPUT, A), answer(RIGHT, A))
    async with Bridge(FREE, toolbox=register.toolbox, mind=mind) as bridge:
        run = await worked(bridge, ["anna", "axel", "alma"])
        request = PublishRequest(run, "mark_names", description="Marks names.")
        published, refused = await bridge.publisher.distill(request)

    assert published.answer == "program"
    assert published.description.startswith("Marks names.")
    assert [one.program for one in refused] == [OTHER_CALLS, OTHER_OUTPUT]
    assert "is not in the run" in refused[0].why
    asked = json.dumps(mind.requests[0].context_json, ensure_ascii=False)
    assert "tools.page(number: int, size: int) -> list[str]" in asked
    assert "call 3: tools.mark(name='anna') -> null" in asked
    again = json.dumps(mind.requests[2].context_json, ensure_ascii=False)
    assert "is not in the run" in again
    assert "its output differs" in again


async def test_after_three_programs_it_is_given_up_and_nothing_is_published(
    register: Register,
) -> None:
    mind = Scripted(*[answer(OTHER_OUTPUT, A)] * 3)
    async with Bridge(FREE, toolbox=register.toolbox, mind=mind) as bridge:
        run = await worked(bridge, ["anna", "axel", "alma"])
        with pytest.raises(
            PublicationError,
            match=r"none of the 3 programs does what the runs did; .*its output differs",
        ):
            await bridge.publisher.distill(PublishRequest(run, "mark_names"))
        assert bridge.store.publications.page(10, caller=SEES_ALL).items == []


async def test_without_a_mind_the_error_says_what_to_do(bridge: Bridge) -> None:
    run = await worked(bridge, ["anna"])
    with pytest.raises(PublicationError, match="no mind is configured; write the program yourself"):
        await bridge.publisher.distill(PublishRequest(run, "mark_names"))


async def test_an_assistant_asks_what_to_write_and_hands_it_in(register: Register) -> None:
    async with (
        Bridge(FREE, toolbox=register.toolbox, store=":memory:") as bridge,
        anyio.create_task_group() as group,
        Client(Front(bridge, group, "0").server) as client,
    ):
        run = await worked(bridge, ["anna", "axel", "alma"])
        wanted = await client.call_tool(
            "publish_idea", {"idea": run, "name": "mark_names", "program": "?"}
        )
        assert "call 3: tools.mark(name='anna') -> null" in text(wanted)
        assert structured(wanted)["schema"]["required"] == ["program"]
        error = await refused(
            client, "publish_idea", idea=run, name="mark_names", program=OTHER_OUTPUT, inputs=A
        )
        assert "its output differs" in error
        made = await call(
            client, "publish_idea", idea=run, name="mark_names", program=RIGHT, inputs=A
        )
        assert made["answer"] == "program"
        assert "bert" in text(await client.call_tool("mark_names", {"prefix": "b"}))
        group.cancel_scope.cancel()


async def test_a_run_that_is_no_plan_comes_back_with_what_is_open_and_what_to_write(
    register: Register,
) -> None:
    async with (
        Bridge(FREE, toolbox=register.toolbox, store=":memory:") as bridge,
        anyio.create_task_group() as group,
        Client(Front(bridge, group, "0").server) as client,
    ):
        note: JSONObject = {"type": "data", "kind": "note", "data": {"first": "anna"}}
        run = await bridge.solve(
            "Mark the name in the note.", context=[note], output_schema={"type": "object"}
        )
        run.submit(
            0,
            {
                "calls": [{"_tool": "mark", "name": "†data.note.first"}],
                "output": {"marked": "anna"},
            },
        )
        with anyio.fail_after(30):
            assert await run.wait() == "done"
        made = await client.call_tool("publish_idea", {"idea": run.id, "name": "mark_one"})
        assert "not a plan: its context contains what a plan cannot contain" in text(made)
        wanted = structured(made)["needs_program"]
        assert [point["kind"] for point in wanted["open"]] == ["no_plan"]
        described = wanted["request"]
        assert "call 0: tools.mark(name='anna') -> null" in described
        assert "task: Mark the name in the note." in described
        assert 'data note, which a program does not see: {"first":"anna"}' in described
        program = "import tools\nawait tools.mark(name=input['name'])\n{'marked': input['name']}"
        given = [{"name": "anna"}]
        again = await call(
            client, "publish_idea", idea=run.id, name="mark_one", program=program, inputs=given
        )
        assert (again["answer"], again["version"]) == ("program", 2)
        group.cancel_scope.cancel()
