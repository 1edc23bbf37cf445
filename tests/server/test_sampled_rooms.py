"""Plans whose latent steps and clean rooms the client's model answers, in both eras."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.store import Store

from .sampled import Alternating, Model, answer_of, said
from .serving import (
    ERAS,
    TOOLS,
    call,
    configured,
    http_process,
    in_memory,
    over_stdio,
    structured,
    text,
)

pytestmark = pytest.mark.anyio

LATENT = """
from ideabridge.tools import Tool

text = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
said = {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}
spell = Tool("spell", "The number in words.", text, said)
"""
SPELL: dict[str, Any] = {
    "calls": [
        {"_tool": "add", "a": "†input.a", "b": "†input.b", "_outputPath": "sum"},
        {"_tool": "spell", "number": "†state.sum", "_outputPath": "said"},
    ],
    "output": {"words": "†state.said.words"},
}
ROOM: dict[str, Any] = {"_tool": "solve", "_module": "anonymous"}
WORDS = {3: "three", 7: "seven"}


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def with_latent(folder: Path) -> Path:
    (folder / "latent.py").write_text(LATENT)
    return configured(folder, tools=[str(TOOLS), "latent.py"])


@pytest.fixture
def latent(tmp_path: Path) -> Path:
    return with_latent(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Path, str]]:
    """One server over HTTP for what needs none of its own: its configuration and URL."""
    configuration = with_latent(tmp_path_factory.mktemp("rooms"))
    with http_process(configuration) as url:
        yield configuration, url


@pytest.fixture
def url(shared: tuple[Path, str]) -> str:
    return shared[1]


def over_http(url: str, mode: str, **keys: Any) -> Client:
    return Client(url, mode=mode, read_timeout_seconds=60, **keys)


class Thinking(Model):
    """A model whose answers follow from what it is asked: rooms ask side by side."""

    def __init__(self, think: Callable[[str], dict[str, Any]], *, tools: bool = False) -> None:
        super().__init__(tools=tools)
        self.think = think

    async def __call__(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        self.answers = [self.think(said(params))]
        return await super().__call__(context, params)


def spelling(asked: str) -> dict[str, Any]:
    """Answers the latent call: what it is given stands in its Request."""
    number = next(number for number in WORDS if f'"number":{number}' in asked)
    return {"calls": [], "output": {"words": WORDS[number]}}


def authors(configuration: Path, run: str) -> list[tuple[str, str]]:
    with Store.open(configuration.parent / "ideas.sqlite") as store:
        return [(idea.meta.mind, idea.meta.model) for idea in store.ideas.of_run(run)]


async def spelt_by_sampling(client: Client, model: Model, configuration: Path) -> None:
    """The client's model answers the latent step; what it was asked and what is kept of it are as
    they should be.
    """
    done = await call(client, "run_plan", **SPELL, input={"a": 1, "b": 2})
    assert (done["status"], done["output"]) == ("done", {"words": "three"})
    [asked] = model.asked
    assert "Write the result of the call below" in said(asked)
    assert "The number in words." in said(asked)
    # The author of a plan is not a mind, but in the room, there was one.
    assert authors(configuration, done["run"]) == [("", "")]
    assert authors(configuration, f"{done['run']}.1") == [("sampling", "scripted-1")]


@pytest.mark.parametrize("tools", [False, True], ids=["text", "tools"])
async def test_the_clients_model_answers_the_latent_step_of_a_plan(
    era: str, tools: bool, latent: Path
) -> None:
    model = Thinking(spelling, tools=tools)
    async with over_stdio(latent, era, **model.keys) as client:
        await spelt_by_sampling(client, model, latent)


async def test_over_http_one_server_lets_the_models_of_all_clients_answer_it(latent: Path) -> None:
    with http_process(latent) as url:
        for era, tools in product(ERAS, (False, True)):
            model = Thinking(spelling, tools=tools)
            async with over_http(url, era, **model.keys) as client:
                await spelt_by_sampling(client, model, latent)


async def test_clean_rooms_of_a_plan_are_asked_about_together_until_each_is_done(
    era: str, latent: Path
) -> None:
    rooms = [
        {
            **ROOM,
            "task": f"Add to {number}.",
            "tools": ["add"],
            "input": {"n": number},
            "_outputPath": name,
        }
        for number, name in ((10, "one"), (20, "two"))
    ]

    def think(asked: str) -> dict[str, Any]:
        if "†state.sum" in asked.split("JSON Schema")[0]:
            return {"calls": [], "output": "10 and more" if "Add to 10" in asked else "20 and more"}
        return {
            "calls": [{"_tool": "add", "a": "†input.n", "b": 1, "_outputPath": "sum"}],
            "output": None,
        }

    model = Thinking(think)
    async with in_memory(latent, era, **model.keys) as client:
        done = await call(client, "run_plan", calls=rooms, output=["†state.one", "†state.two"])

    assert done["output"] == ["10 and more", "20 and more"]
    assert len(model.asked) == 4


async def test_a_published_plan_asks_the_model_of_whoever_calls_it(
    era: str, shared: tuple[Path, str]
) -> None:
    configuration, url = shared
    model = Thinking(spelling)
    name = f"spelt_{era}"
    async with over_http(url, era, **model.keys) as client:
        taught = await call(client, "run_plan", **SPELL, input={"a": 1, "b": 2})
        await call(client, "publish_idea", idea=taught["run"], name=name, answer="plan")
        result = await client.call_tool(name, {"a": 3, "b": 4})
        assert not result.is_error, text(result)
        assert structured(result) == {"words": "seven"}
        # Called by another plan, the tool is a room, and the room of its latent step is inside that
        # one.
        use = {"_tool": name, "_module": f"idea:{name}", "_outputPath": "s"}
        done = await call(
            client, "run_plan", calls=[{**use, "a": 1, "b": 2}], output="†state.s.words"
        )
        assert done["output"] == "three"
        assert authors(configuration, f"{done['run']}.0.1") == [("sampling", "scripted-1")]
        # The same holds if a mind solves: the mind that answers there also answers here.
        solved = {"calls": [{**use, "a": 3, "b": 4}], "output": "†state.s.words"}
        solving = Thinking(
            lambda asked: spelling(asked) if "of the call below" in asked else solved
        )
        async with over_http(url, era, **solving.keys) as other:
            done = await call(other, "solve", task="Spell 7.", tools=[f"idea:{name}"])

        assert done["output"] == "seven"
        assert len(solving.asked) == 2


async def test_a_published_plan_that_waits_for_a_solution_shows_what_is_asked(
    era: str, latent: Path
) -> None:
    async with in_memory(latent, era) as client:
        taught = await call(client, "run_plan", **SPELL, input={"a": 1, "b": 2})
        assert taught["mind"]["name"] == "turns"
        await call(
            client,
            "submit_solution",
            run=f"{taught['run']}.1",
            turn=0,
            solution=spelling('"number":3'),
        )
        await call(client, "publish_idea", idea=taught["run"], name="spelt")
        result = await client.call_tool("spelt", {"a": 3, "b": 4})
        # There is no output yet, and hosts would check anything else against its schema.
        assert result.is_error
        told = structured(result)
        assert told["status"] == "needs_solution"
        assert f"request of run: {told['run']}.1" in text(result)
        assert "with solve" in text(result)
        done = await call(
            client,
            "submit_solution",
            run=f"{told['run']}.1",
            turn=0,
            solution=spelling('"number":7'),
        )
        assert done["output"] == {"words": "seven"}


async def test_every_round_of_a_plans_room_may_land_on_another_process(latent: Path) -> None:
    model = Thinking(spelling)
    with http_process(latent) as first, http_process(latent) as second:
        transport = Alternating([first, second])
        async with (
            httpx2.AsyncClient(transport=transport, timeout=20) as http,
            Client(
                streamable_http_client(first, http_client=http),
                mode="auto",
                read_timeout_seconds=60,
                **model.keys,
            ) as client,
        ):
            done = await call(client, "run_plan", **SPELL, input={"a": 1, "b": 2})

    assert done["output"] == {"words": "three"}
    assert len(transport.calls) == 2
    assert transport.calls[0] != transport.calls[1]


async def test_a_plan_nobody_waited_for_is_answered_when_it_is_asked_for(
    era: str, latent: Path
) -> None:
    model = Thinking(spelling)
    async with in_memory(latent, era, **model.keys) as client:
        told = await call(client, "run_plan", **SPELL, input={"a": 1, "b": 2}, wait_s=0)
        assert not model.asked

    async with in_memory(latent, era, **model.keys) as client:
        # This also holds after a restart.
        done = await call(client, "check_run", run=told["run"])

    assert done["output"] == {"words": "three"}


async def test_the_person_at_the_client_refuses_for_the_whole_plan(url: str) -> None:
    model = Model(types.ErrorData(code=-1, message="User rejected sampling request"))
    async with over_http(url, "legacy", **model.keys) as client:
        told = await call(client, "run_plan", **SPELL, input={"a": 1, "b": 2})
    assert told["status"] == "cancelled"
    assert "refused to let its model answer" in told["reason"]
    # What was done stays done.
    assert told["state"] == {"sum": 3}


# -- a client that does not come back --------------------------------------------------------------


async def put(client: Client, **arguments: Any) -> tuple[str, list[str]]:
    """Call `run_plan` as a client that does not answer: its state, and the questions it was
    given.
    """
    result = await client.session.call_tool("run_plan", arguments, allow_input_required=True)
    assert isinstance(result, types.InputRequiredResult)
    assert result.request_state is not None
    return result.request_state, list(result.input_requests or {})


async def again(
    client: Client, state: str, arguments: dict[str, Any], responses: dict[str, Any]
) -> types.CallToolResult | types.InputRequiredResult:
    given = {name: answer_of(solution) for name, solution in responses.items()}
    return await client.session.call_tool(
        "run_plan",
        arguments,
        request_state=state,
        input_responses=dict(given),
        allow_input_required=True,
    )


TWO: dict[str, Any] = {
    "calls": [
        {"_tool": "spell", "number": 3, "_outputPath": "one"},
        {"_tool": "spell", "number": 7, "_outputPath": "two"},
    ],
    "output": ["†state.one.words", "†state.two.words"],
}


async def test_of_a_round_what_was_settled_elsewhere_is_told_and_the_rest_is_taken(
    url: str,
) -> None:
    async with over_http(url, "auto", **Model().keys) as client:
        state, questions = await put(client, **TWO)
        assert questions == ["solution-0", "solution-1"]
        run = (await call(client, "check_run"))["runs"][0]["run"]
        by_hand: dict[str, Any] = {"calls": [], "output": {"words": "by hand"}}
        told = await call(client, "submit_solution", run=f"{run}.0", turn=0, solution=by_hand)
        # The other Request has already been sent, so nobody is asked about it a second time.
        assert told["status"] == "needs_solution"
        assert "no answer has arrived" in str(told["notes"])
        late = await again(
            client, state, TWO, {"solution-0": spelling('"number":3'), "solution-1": SEVEN}
        )
        assert isinstance(late, types.CallToolResult)
        assert structured(late)["output"] == ["by hand", "seven"]
        assert "already answered with another solution" in str(structured(late)["notes"])


SEVEN = spelling('"number":7')


async def test_a_refusal_in_rounds_is_told_and_the_run_goes_on_by_turns_or_is_cancelled(
    latent: Path,
) -> None:
    refusing = Model(*[types.ErrorData(code=-1, message="User rejected sampling request")] * 2)
    arguments = {**SPELL, "input": {"a": 3, "b": 4}}
    with http_process(latent) as url:
        async with Client(url, mode="auto", read_timeout_seconds=60, **refusing.keys) as client:
            for _ in range(2):
                with pytest.raises(MCPError, match="User rejected"):
                    await client.call_tool("run_plan", arguments)

            latest = (await call(client, "check_run"))["runs"]
            assert [one["status"] for one in latest] == ["needs_solution"] * 2
            for one in latest:
                assert f"turn 0 of {one['run']}.1 at 20" in one["note"]
                assert "The person may have refused" in one["note"]

            listed = text(await client.call_tool("check_run", {}))
            assert "no answer has arrived" in listed
            # Looking at the run does not make the client ask the person again.
            told = await call(client, "check_run", run=latest[0]["run"])
            assert told["status"] == "needs_solution"
            assert "may have refused" in str(told["notes"])
            assert told["mind"]["name"] == "sampling"
            assert len(refusing.asked) == 2
            [request] = told["requests"]
            done = await call(
                client, "submit_solution", run=request["run"], turn=request["turn"], solution=SEVEN
            )
            assert done["output"] == {"words": "seven"}
            ended = await call(client, "check_run", run=latest[1]["run"], cancel=True)
            assert ended["status"] == "cancelled"
            assert "notes" not in ended
            assert "note" not in str(await call(client, "check_run"))


async def test_an_answer_is_refused_when_somebody_has_given_another_by_turns(url: str) -> None:
    arguments = {**SPELL, "input": {"a": 3, "b": 4}}
    async with over_http(url, "auto", **Model().keys) as client:
        state, _ = await put(client, **arguments)
        run = (await call(client, "check_run"))["runs"][0]["run"]
        by_hand: dict[str, Any] = {"calls": [], "output": {"words": "by hand"}}
        await call(client, "submit_solution", run=f"{run}.1", turn=0, solution=by_hand)
        for late in (SEVEN, "no solution at all"):
            result = await again(client, state, arguments, {"solution-0": late})
            assert isinstance(result, types.CallToolResult)
            assert result.is_error
            assert "turn 0 was already answered" in text(result) or "has ended (done)" in text(
                result
            )
        # The same answer as before gets the same response.
        result = await again(client, state, arguments, {"solution-0": by_hand})
        assert isinstance(result, types.CallToolResult)
        assert structured(result)["output"] == {"words": "by hand"}


async def test_an_answer_counts_though_another_hand_gave_a_malformed_one_meanwhile(
    url: str,
) -> None:
    arguments = {**SPELL, "input": {"a": 3, "b": 4}}
    async with over_http(url, "auto", **Model().keys) as client:
        state, _ = await put(client, **arguments)
        run = (await call(client, "check_run"))["runs"][0]["run"]
        # These are more calls than a run may list, so none of them runs, and the turn stays open.
        bad: dict[str, Any] = {"calls": [{"_tool": "nowhere"}] * 10_001, "output": None}
        result = await client.call_tool(
            "submit_solution", {"run": f"{run}.1", "turn": 0, "solution": bad}
        )
        assert result.is_error
        done = await again(client, state, arguments, {"solution-0": SEVEN})
        assert isinstance(done, types.CallToolResult)
        assert structured(done)["output"] == {"words": "seven"}


async def test_two_that_ask_for_a_plan_put_its_request_to_the_model_once(latent: Path) -> None:
    model = Thinking(spelling)
    shown, go = anyio.Event(), anyio.Event()

    async def then() -> None:
        shown.set()
        await go.wait()

    model.then = then
    results: list[dict[str, Any]] = []
    told: dict[str, Any] = {}

    async def waiting(client: Client) -> None:
        results.append(await call(client, "run_plan", **SPELL, input={"a": 1, "b": 2}))

    with anyio.fail_after(20), http_process(latent) as url:
        async with (
            Client(url, mode="auto", read_timeout_seconds=60, **model.keys) as client,
            Client(url, mode="auto", read_timeout_seconds=60, **model.keys) as other,
            anyio.create_task_group() as group,
        ):
            group.start_soon(waiting, client)
            await shown.wait()
            [latest] = (await call(other, "check_run"))["runs"]
            told.update(await call(other, "check_run", run=latest["run"]))
            go.set()

    assert [one["output"] for one in results] == [{"words": "three"}]
    assert len(model.asked) == 1
    assert told["status"] == "needs_solution"
    assert "or the model may still be working" in str(told["notes"])
