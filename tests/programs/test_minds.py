"""Minds of every kind answer with programs: streamed by a mind in this process, from a model
endpoint, from a recording, and from the model of a client.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ideabridge.bridge import Bridge, Store
from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.errors import PlanError, RejectedSolutionError
from ideabridge.bridge.loop.event import CallProposed, ProgramProposed, SolutionClosed
from ideabridge.bridge.minds.model import ModelMind
from ideabridge.bridge.minds.recorded import Recorded
from ideabridge.bridge.minds.settings import ModelConfiguration
from ideabridge.bridge.programs.names import LISTED_CHARACTERS
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import ActivityError
from ideabridge.tools.toolbox import Toolbox
from tests.asking import ASKS
from tests.minds.fake import FakeEndpoint, endpoint, say
from tests.server.sampled import Model, said
from tests.server.serving import ERAS, call, configured, over_stdio, refused

pytestmark = pytest.mark.anyio

INTEGER: JSONObject = {"type": "integer"}


@tool(read_only=True)
def price(item: str) -> int:
    """The price of an item."""
    if item == "nothing":
        raise ActivityError("there is no such item")
    return len(item)


@tool(read_only=True)
def page(number: int) -> list[str]:
    """A page of items."""
    return [["pen", "ink"], ["paper"], []][number]


LOOP = """
import asyncio, tools

items = []
number = 0
while found := await tools.page(number=number):
    items += found
    number += 1
sum(await asyncio.gather(*[tools.price(item=one) for one in items]))
"""
"""Its output is 11."""

LOOKS = "import tools\nfirst = await tools.page(number=0)\nprint('saw', first)"
MISSPELLED = "import tools\nawait tools.prize(item='pen')"
FAILS = "import tools\nawait tools.price(item='nothing')"
RIGHT = "import tools\n(await tools.price(item='pen')) + 8"


class Scripted:
    """A mind that streams prepared answers, in pieces of `size` characters."""

    name = "scripted"

    def __init__(self, *answers: JSON, size: int = 7) -> None:
        self.answers = [one if isinstance(one, str) else json.dumps(one) for one in answers]
        self.size = size
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> AsyncIterator[str]:
        self.requests.append(request)
        text = self.answers.pop(0)
        for start in range(0, len(text), self.size):
            yield text[start : start + self.size]

    def told(self, number: int) -> str:
        """The texts of a Request."""
        return "\n".join(str(text["content"]) for text in self.requests[number].texts)


async def solved(bridge: Bridge, **more: Any) -> Run:
    run = await bridge.solve("What do all items cost?", output_schema=INTEGER, **more)
    with anyio.fail_after(30):
        await run.wait()
    return run


def scripted(mind: Scripted, **settings: Any) -> Bridge:
    return Bridge(parse_configuration(settings), toolbox=Toolbox(page, price), mind=mind)


# -- a mind that streams ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000])
async def test_a_streamed_program_runs_when_its_text_is_complete(size: int) -> None:
    mind = Scripted({"program": LOOP}, size=size)
    async with scripted(mind) as bridge:
        run = await solved(bridge)
        assert (run.status, run.given(), len(run.calls())) == ("done", 11, 6)
        idea = bridge.store.ideas.get(run.id, caller=SEES_ALL)
        assert idea.idea.solution == {"program": LOOP}
        assert idea.meta.mind == "scripted"
        events = [event async for event in run]

    kinds = [type(one) for one in events]
    assert kinds.index(ProgramProposed) < kinds.index(CallProposed) < kinds.index(SolutionClosed)
    assert kinds.count(SolutionClosed) == 1


async def test_what_went_wrong_is_in_the_next_request() -> None:
    mind = Scripted(
        {"program": LOOKS}, {"program": MISSPELLED}, {"program": FAILS}, {"program": RIGHT}
    )
    async with scripted(mind) as bridge:
        run = await solved(bridge)
        assert (run.status, run.given()) == ("done", 11)
        ideas = bridge.store.ideas.of_run(run.id)
        assert [one.meta.mind for one in ideas] == ["scripted"] * 4

    told = [mind.told(number) for number in range(4)]
    assert "saw ['pen', 'ink']" in told[1]
    assert "0 page: done" in told[1]
    assert "failed" not in told[1]
    # A Request does not refer to an earlier one, so it shows the program that the line belongs to.
    assert MISSPELLED in told[2]
    assert "line 2, column 7: Module `tools` has no member `prize`" in told[2]
    assert "saw" not in told[2]
    assert FAILS in told[3]
    assert "line 2: RuntimeError: price: there is no such item" in told[3]
    assert MISSPELLED not in told[3]


async def test_a_program_that_only_prints_shows_what_the_mind_wants_to_see() -> None:
    looks: list[JSON] = [{"program": f"print(input['rows'][{number}])"} for number in range(3)]
    mind = Scripted(*looks, {"program": "len(input['rows'])"})
    async with scripted(mind) as bridge:
        run = await solved(bridge, input={"rows": [f"row {number}" for number in range(3)]})
        assert (run.status, run.given(), run.calls()) == ("done", 3, [])

    assert [
        f"The last program printed:\nrow {number}" in mind.told(number + 1) for number in range(3)
    ] == [True] * 3
    assert "neither calls nor an output" not in mind.told(1)
    # A program that shows nothing is not progress.
    idle = Scripted({"program": "None"}, {"program": "None"})
    async with scripted(idle) as bridge:
        assert (await solved(bridge)).status == "stalled"

    assert "neither calls nor an output" in idle.told(1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"program": RIGHT, "output": 5}, "leave out calls and output"),
        ({"program": 5}, "program: found 5, expected text"),
        ({"program": f"1{' ' * 100_000}"}, "100,001 characters; the limit is 100,000"),
        ('{"program": "1', "it ended inside a value of 'program'"),
    ],
)
async def test_a_malformed_answer_runs_nothing_and_is_told(answer: JSON, error: str) -> None:
    mind = Scripted(answer, {"program": RIGHT}, size=1000)
    async with scripted(mind) as bridge:
        run = await solved(bridge)
        assert (run.status, run.given(), len(run.calls())) == ("done", 11, 1)
    assert error in mind.told(1)


async def test_a_program_beside_calls_that_have_begun_does_not_run() -> None:
    begun: JSON = [{"_tool": "price", "item": "pencil", "_outputPath": "n"}]
    mind = Scripted(
        {"calls": begun, "output": None, "program": RIGHT}, {"calls": [], "output": "†state.n"}
    )
    async with scripted(mind) as bridge:
        run = await solved(bridge)
        assert (run.status, run.given(), len(run.calls())) == ("done", 6, 1)
    assert "leave out calls and output" in mind.told(1)


async def test_a_mind_may_answer_with_calls_and_then_with_a_program() -> None:
    begun: JSON = [{"_tool": "price", "item": "pencil", "_outputPath": "n"}]
    mind = Scripted(
        {"calls": begun, "output": None}, {"calls": [], "output": None, "program": "state['n'] + 1"}
    )
    async with scripted(mind) as bridge:
        run = await solved(bridge)
        assert (run.status, run.given()) == ("done", 7)
        assert [one.meta.mind for one in bridge.store.ideas.of_run(run.id)] == [
            "scripted",
            "scripted",
        ]


@pytest.mark.parametrize("lazy", [True, False])
async def test_a_program_is_refused_where_it_cannot_mean_anything(lazy: bool) -> None:
    mind = Scripted({"program": "1"}, {"calls": [], "output": 4 if lazy else {"a": 4, "b": 4}})
    async with scripted(mind) as bridge:
        states: list[JSON] = [
            {"type": "state", "state": {"x": 1}, "_instance": one} for one in ("a", "b")
        ]
        given: dict[str, Any] = {"planning": "lazy"} if lazy else {"context": states}
        await solved(bridge, **given)

    error = "nobody can accept its calls" if lazy else "a run with instances cannot have a program"
    assert error in mind.told(1)
    assert "write a list of calls instead" in mind.told(1)


# -- a model endpoint, a recording -----------------------------------------------------------------


async def by_endpoint(*answers: JSON, cut: int = 5) -> tuple[Run, FakeEndpoint]:
    """Solve the task with a model behind HTTP, which streams these answers in pieces
    of `cut` bytes.
    """
    async with endpoint(*[say(json.dumps(answer), cut=cut) for answer in answers]) as fake:
        bridge = Bridge(ASKS, toolbox=Toolbox(page, price))
        bridge.mind = ModelMind(
            ModelConfiguration(name="openai:tiny-1", base_url=fake.base_url), bridge.secrets
        )
        async with bridge:
            run = await solved(bridge)
            assert [one.meta.model for one in bridge.store.ideas.of_run(run.id)][-1] == "tiny-1"
            return run, fake


@pytest.mark.parametrize("cut", [1, 64])
async def test_a_model_answers_with_programs(cut: int) -> None:
    run, fake = await by_endpoint(
        {"program": MISSPELLED}, {"program": LOOP, "calls": [], "output": None}, cut=cut
    )
    assert (run.status, run.given(), len(fake.bodies)) == ("done", 11, 2)
    assert run.answer()["usage"] == {"requests": 2, "tokens": 2468}
    assert "has no member `prize`" in fake.texts(1)


async def test_a_model_writes_a_malformed_answer_again_before_anything_runs() -> None:
    run, fake = await by_endpoint({"program": LOOP, "output": 4}, {"program": LOOP})
    assert (run.status, run.given(), len(fake.bodies)) == ("done", 11, 2)
    # This is a single Request: the second answer continues the conversation.
    assert run.turn == 0
    assert "That cannot be read: program: a program makes its own calls and output" in fake.texts(1)


async def test_recorded_programs_run_again() -> None:
    with Store.open(":memory:") as store:
        async with Bridge(ASKS, toolbox=Toolbox(page, price), store=store) as bridge:
            run = await bridge.solve("What do all items cost?", output_schema=INTEGER)
            for turn, program in enumerate((LOOKS, MISSPELLED, FAILS, LOOP)):
                run.submit(turn, {"program": program})
                await run.wait()
            assert (run.status, run.given()) == ("done", 11)
            recorded = [one.id for one in bridge.store.ideas.of_run(run.id)]
        async with Bridge(ASKS, toolbox=Toolbox(page, price), mind=Recorded(store)) as bridge:
            again = await solved(bridge)
            assert (again.status, again.given(), len(again.calls())) == ("done", 11, 8)
            assert [one.id for one in bridge.store.ideas.of_run(again.id)] == recorded


async def test_a_run_of_a_model_continues_after_its_process_has_died(tmp_path: Path) -> None:
    """The journal of a streamed program is folded by another process, which asks the mind
    for what follows.
    """
    path = tmp_path / "ideas.sqlite"
    asks = "import tools\nawait tools.order(item='pen')\nprint('ordered')"
    ordered: list[str] = []

    @tool
    def order(item: str) -> str:
        """Order an item."""
        ordered.append(item)
        return item

    async with Bridge(
        ASKS, toolbox=Toolbox(price, order), store=path, mind=Scripted({"program": asks})
    ) as bridge:
        run = await bridge.solve("Order a pen.", output_schema=INTEGER)
        with anyio.fail_after(30):
            assert await run.wait() == "needs_approval"

    mind = Scripted({"program": RIGHT})
    async with Bridge(ASKS, toolbox=Toolbox(price, order), store=path, mind=mind) as bridge:
        again = await bridge.run(run.id)
        [question] = again.questions()
        again.decide(question.approval, "approve", by="me")
        with anyio.fail_after(30):
            assert await again.wait() == "done"

        assert (again.given(), ordered) == (11, ["pen"])

    assert "The last program printed:\nordered" in mind.told(0)


# -- what minds are told, and the setting ----------------------------------------------------------


def properties_of(schema: JSONObject) -> dict[str, Any]:
    properties = schema["properties"]
    assert isinstance(properties, dict)
    return dict(properties)


def program_in(schema: JSONObject) -> Any:
    return properties_of(schema).get("program")


async def first_request(*, programs: bool = True, **more: Any) -> tuple[JSONObject, str]:
    """The schema of the first Request of a run by turns, and its instructions."""
    async with Bridge(
        parse_configuration({"programs": programs}), toolbox=Toolbox(page, price)
    ) as bridge:
        run = await bridge.solve("What do all items cost?", **more)
        [request] = run.answer()["requests"]
        return request["schema"], request["instructions"]


async def test_a_mind_is_told_how_to_write_programs() -> None:
    schema, told = await first_request(tools=["page", "price"])
    assert schema["oneOf"] == [{"required": ["calls", "output"]}, {"required": ["program"]}]
    described = program_in(schema)["description"]
    # The schema of calls describes the parameters and results.
    assert described.endswith("Tools:\ntools: page, price")
    for words in ("gather(return_exceptions=True)", "inheritance", "TypedDict", "RuntimeError"):
        assert words in described

    assert "asks a mind" not in described
    assert '{"program": TEXT}' in told
    # This is what every Request costs, in characters of JSON.
    assert len(json.dumps(described)) < 800


async def test_the_names_of_tools_have_a_bound() -> None:
    def named(number: int) -> Any:
        @tool(read_only=True, name=f"tool_{number}_with_a_long_name")
        def look(first: str, second: int, third: list[str]) -> dict[str, int]:
            """Look."""
            return {}

        return look

    async with Bridge(ASKS, toolbox=Toolbox(*map(named, range(300)))) as bridge:
        run = await bridge.solve("x")
        [request] = run.answer()["requests"]

    described = program_in(request["schema"])["description"]
    assert "tools: " in described
    assert "tool_99_with_a_long_name" in described
    assert len(described) < LISTED_CHARACTERS + 800
    assert re.search(r"\n\.\.\. 1\d\d more, named in the same way$", described)


@pytest.mark.parametrize("given", [{"programs": False}, {"planning": "lazy"}, {"tools": []}])
async def test_programs_are_offered_only_where_they_can_run(given: dict[str, Any]) -> None:
    schema, told = await first_request(**given)
    assert program_in(schema) is None
    assert "program" not in told
    if "programs" in given:
        offered, offered_told = await first_request()
        # Nothing else that is shown depends on it.
        without = {name: one for name, one in properties_of(offered).items() if name != "program"}
        rest = {name: part for name, part in offered.items() if name != "oneOf"}
        assert schema == {**rest, "properties": without, "required": ["calls", "output"]}
        assert offered_told.startswith(told)


async def test_models_and_clients_are_told_too() -> None:
    for programs in (True, False):
        async with endpoint(say('{"calls": [], "output": 1}')) as fake:
            bridge = Bridge(
                parse_configuration({"programs": programs}), toolbox=Toolbox(page, price)
            )
            bridge.mind = ModelMind(
                ModelConfiguration(name="openai:tiny-1", base_url=fake.base_url), bridge.secrets
            )
            async with bridge:
                await solved(bridge)
        assert ("page, price" in fake.texts(0)) is programs
        assert ("program" in fake.texts(0)) is programs
        assert ("program" in json.dumps(fake.bodies[0]["response_format"])) is programs


async def test_where_programs_are_off_they_are_refused() -> None:
    off = "the configuration turns programs off"
    mind = Scripted({"program": RIGHT}, {"calls": [], "output": 3})
    async with scripted(mind, programs=False) as bridge:
        run = await solved(bridge)
        assert (run.status, run.given(), run.calls()) == ("done", 3, [])
        assert off in mind.told(1)
        by_turns = await bridge.solve("x", mind="turns")
        with pytest.raises(RejectedSolutionError, match=off):
            by_turns.submit(0, {"program": "1"})

        assert by_turns.status == "needs_solution"
        for start in (bridge.run_plan, bridge.dry_run):
            with pytest.raises(PlanError, match=off):
                await start({"program": "1"})

        with pytest.raises(PlanError, match=off):
            await bridge.run_program("1")


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_without_programs_does_not_offer_them(era: str, tmp_path: Path) -> None:
    async with over_stdio(configured(tmp_path, programs=False), era) as client:
        [run_plan] = [one for one in (await client.list_tools()).tools if one.name == "run_plan"]
        assert "program" not in run_plan.model_dump_json()
        assert "the configuration turns programs off" in await refused(
            client, "run_plan", program="1"
        )


# -- the model of a client -------------------------------------------------------------------------

SUMS = (
    "import tools\ntotal = 0\nfor n in input['numbers']:\n    "
    "total = await tools.add(a=total, b=n)\ntotal"
)


@pytest.mark.parametrize("tools", [False, True], ids=["text", "tools"])
@pytest.mark.parametrize("era", ERAS)
async def test_the_model_of_a_client_answers_with_programs(
    era: str, tools: bool, tmp_path: Path
) -> None:
    model = Model(
        {"program": SUMS, "output": 6},
        {"program": SUMS.replace("b=n", "c=n")},
        {"program": SUMS, "calls": [], "output": None},
        tools=tools,
    )
    async with over_stdio(configured(tmp_path), era, **model.keys) as client:
        done = await call(
            client,
            "solve",
            task="Add the numbers.",
            input={"numbers": [1, 2, 3]},
            output_schema=INTEGER,
            tools=["add"],
        )

    assert (done["status"], done["output"], done["mind"]["name"]) == ("done", 6, "sampling")
    assert not model.answers
    # The first answer is handed back, and the second is a Solution that failed.
    assert "leave out calls and output" in said(model.asked[1])
    assert "Argument `c` does not match any known parameter" in said(model.asked[2])
    assert "leave out calls and output" not in said(model.asked[2])
