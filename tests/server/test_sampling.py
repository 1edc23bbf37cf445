"""The client's model as the mind, in both eras, over stdio and HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client import InputRequiredRoundsExceededError
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.minds.recorded import recording
from ideabridge.bridge.runs import control
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.server import Front

from .sampled import (
    FIRST,
    MALFORMED,
    OUTPUT,
    SCRIPT,
    SECOND,
    Alternating,
    Model,
    answer_of,
    prepare,
    said,
)
from .serving import (
    ERAS,
    call,
    configured,
    http_process,
    in_memory,
    over_stdio,
    refused,
    structured,
    text,
)

pytestmark = pytest.mark.anyio

ADD: dict[str, Any] = {
    "task": "Add.",
    "output_schema": {"type": "integer"},
    "tools": ["add", "write_note"],
}
SUM = {"calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}], "output": "†state.sum"}
UNREADABLE = '{"calls": [{"_tool": "add", '
IDLE = {"calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"}], "output": None}


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with http_process(configured(tmp_path_factory.mktemp("sampling"))) as url:
        yield url


@asynccontextmanager
async def over_http(url: str, mode: str, **keys: Any) -> AsyncGenerator[Client]:
    async with Client(url, mode=mode, read_timeout_seconds=60, **keys) as client:
        yield client


def minds_of(configuration: Path, run: str) -> list[tuple[str, str]]:
    with Store.open(configuration.parent / "ideas.sqlite") as store:
        return [(idea.meta.mind, idea.meta.model) for idea in store.ideas.of_run(run)]


# -- the same task through every mind --------------------------------------------------------------


async def solved_by_sampling(
    client: Client, task: dict[str, Any], model: Model, configuration: Path
) -> None:
    """The client's model solves the task; what it was asked and what is kept of it are as
    they should be.
    """
    done = await call(client, "solve", **task)
    assert done["status"] == "done"
    assert done["output"] == OUTPUT
    assert done["mind"]["name"] == "sampling"
    assert "the client allows requests to its own model" in done["mind"]["why"]
    assert not model.answers
    first, repaired, second = model.asked
    assert "Count the words" in said(first)
    assert "unknown tool 'count_wrods'" in said(repaired)
    assert "count_wrods" in said(repaired)
    assert "nowhere" in said(second)
    assert first.max_tokens == 16_384
    if model.tools:
        assert first.tool_choice is not None
        assert first.tool_choice.mode == "required"
        assert first.tools is not None
        assert [tool.name for tool in first.tools] == ["solution"]
        assert first.tools[0].input_schema["required"] == ["calls", "output"]
        assert "$ref" not in str(first.tools[0].input_schema)
    else:
        assert first.tools is None
        assert '"count_words"' in said(first)

    assert minds_of(configuration, done["run"]) == [("sampling", "scripted-1")] * 3


@pytest.mark.parametrize("tools", [False, True], ids=["text", "tools"])
async def test_the_clients_model_solves_a_task_over_two_modules_and_a_tool(
    era: str, tools: bool, tmp_path: Path
) -> None:
    configuration, task = prepare(tmp_path)
    model = Model(*SCRIPT, tools=tools)
    async with over_stdio(configuration, era, **model.keys) as client:
        await solved_by_sampling(client, task, model, configuration)


async def test_over_http_one_server_lets_the_models_of_all_clients_solve_it(tmp_path: Path) -> None:
    configuration, task = prepare(tmp_path)
    with http_process(configuration) as url:
        for era, tools in product(ERAS, (False, True)):
            model = Model(*SCRIPT, tools=tools)
            async with over_http(url, era, **model.keys) as client:
                await solved_by_sampling(client, task, model, configuration)


async def test_the_name_a_client_gives_its_model_is_kept_as_far_as_it_is_one(
    era: str, tmp_path: Path
) -> None:
    configuration = configured(tmp_path)
    named = answer_of(SUM).model_copy(update={"model": "\x1b" + "m" * 100_000})
    async with in_memory(configuration, era, **Model(named).keys) as client:
        done = await call(client, "solve", **ADD)
        assert done["output"] == 3
    assert minds_of(configuration, done["run"]) == [("sampling", "m" * 200)]


async def test_reasoning_is_asked_for_before_the_calls_by_a_setting(tmp_path: Path) -> None:
    configuration = configured(tmp_path, thought_process=True)
    thinking = {"thought_process": "One and two.", **SUM}
    model = Model(thinking)
    async with in_memory(configuration, "auto", **model.keys) as client:
        done = await call(client, "solve", **ADD)
        assert done["output"] == 3

    assert "thought_process" in said(model.asked[0])
    with Store.open(tmp_path / "ideas.sqlite") as store:
        assert store.ideas.get(done["run"], caller=SEES_ALL).idea.solution == thinking


async def test_by_turns_the_same_task_has_the_same_output(tmp_path: Path) -> None:
    configuration, task = prepare(tmp_path)
    with http_process(configuration) as url:
        for era in ERAS:
            async with over_http(url, era) as client:
                told = await call(client, "solve", **task)
                assert told["mind"]["name"] == "turns"
                run = told["run"]
                told = await call(client, "submit_solution", run=run, turn=0, solution=MALFORMED)
                assert "Did you mean" in str(told["requests"])
                told = await call(client, "submit_solution", run=run, turn=1, solution=FIRST)
                assert told["turn"] == 2
                done = await call(client, "submit_solution", run=run, turn=2, solution=SECOND)
                assert done["output"] == OUTPUT
            assert minds_of(configuration, run) == [("turns", "")] * 3


async def test_a_recording_of_the_sampled_run_has_the_same_output(tmp_path: Path) -> None:
    configuration, task = prepare(tmp_path)
    async with in_memory(configuration, "auto", **Model(*SCRIPT).keys) as client:
        done = await call(client, "solve", **task)

    with recording(tmp_path / "ideas.sqlite") as mind:
        async with Bridge(load_configuration(configuration), store=":memory:", mind=mind) as bridge:
            run = await bridge.solve(
                task["task"],
                input=task["input"],
                output_schema=task["output_schema"],
                tools=task["tools"],
            )
            assert await run.wait(20) == "done"
            assert run.given() == OUTPUT == done["output"]
            assert run.idea is not None
            with Store.open(tmp_path / "ideas.sqlite") as store:
                assert run.idea in [one.id for one in store.ideas.of_run(done["run"])]


# -- any worker ------------------------------------------------------------------------------------


async def test_every_round_may_land_on_another_process(tmp_path: Path) -> None:
    configuration, task = prepare(tmp_path)
    model = Model(*SCRIPT)
    with http_process(configuration) as first, http_process(configuration) as second:
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
            done = await call(client, "solve", **task)

    assert done["output"] == OUTPUT
    assert len(transport.calls) == 4
    assert all(
        one != other for one, other in zip(transport.calls, transport.calls[1:], strict=False)
    )


# -- retries ---------------------------------------------------------------------------------------


async def retried(
    client: Client,
    arguments: dict[str, Any],
    state: str | None = None,
    solution: dict[str, Any] | str | None = None,
) -> types.CallToolResult | types.InputRequiredResult:
    responses = {} if solution is None else {"solution-0": answer_of(solution)}
    return await client.session.call_tool(
        "solve",
        arguments,
        request_state=state,
        input_responses=dict(responses) if state else None,
        allow_input_required=True,
    )


def state_of(result: types.CallToolResult | types.InputRequiredResult) -> str:
    assert isinstance(result, types.InputRequiredResult)
    assert list(result.input_requests or {}) == ["solution-0"]
    assert result.request_state is not None
    assert "run_" not in result.request_state
    return result.request_state


def refusal_of(result: types.CallToolResult | types.InputRequiredResult) -> str:
    assert isinstance(result, types.CallToolResult)
    assert result.is_error
    return text(result)


@asynccontextmanager
async def served(transport: str, configuration: Path, **keys: Any) -> AsyncGenerator[Client]:
    """A client of a server process of its own."""
    if transport == "stdio":
        async with over_stdio(configuration, "auto", **keys) as client:
            yield client
    else:
        with http_process(configuration) as url:
            async with over_http(url, "auto", **keys) as client:
                yield client


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_duplicate_late_tampered_and_replayed_retries(transport: str, tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    keys = Model().keys
    async with served(transport, configuration, **keys) as client:
        first = state_of(await retried(client, ADD))
        # No Solution can be read, so the Request is sent again. Sending the same answer twice
        # counts only once.
        again = state_of(await retried(client, ADD, first, UNREADABLE))
        assert "already arrived" in refusal_of(await retried(client, ADD, first, UNREADABLE))

    async with served(transport, configuration, **keys) as client:
        # The server was restarted in between.
        second = state_of(await retried(client, ADD, again, IDLE))
        # Repeating the answer to a settled turn gets the same response, and a different answer is
        # refused.
        same = state_of(await retried(client, ADD, again, IDLE))
        assert "already answered with another" in refusal_of(await retried(client, ADD, again, SUM))
        for wrong, state in (
            ({**ADD, "task": "Subtract."}, second),
            (ADD, second[:-3] + "xyz"),
            (ADD, "v1.x"),
        ):
            with pytest.raises(MCPError) as caught:
                await retried(client, wrong, state, SUM)
            assert caught.value.code == types.INVALID_PARAMS

        done = await retried(client, ADD, second, SUM)
        assert isinstance(done, types.CallToolResult)
        assert structured(done)["output"] == 3
        # The answer comes late, once the same and once a different one.
        late = await retried(client, ADD, same, SUM)
        assert isinstance(late, types.CallToolResult)
        assert structured(late)["run"] == structured(done)["run"]
        assert "already answered with another" in refusal_of(await retried(client, ADD, same, IDLE))
        assert len((await call(client, "check_run"))["runs"]) == 1


async def test_an_answer_after_the_run_was_cancelled_is_refused(url: str) -> None:
    async with over_http(url, "auto", **Model().keys) as client:
        state = state_of(await retried(client, ADD))
        run = (await call(client, "check_run"))["runs"][0]["run"]
        await call(client, "check_run", run=run, cancel=True)
        assert "has ended (cancelled)" in refusal_of(await retried(client, ADD, state, SUM))


async def test_a_client_that_comes_back_without_an_answer_is_told(url: str) -> None:
    async with over_http(url, "auto", **Model().keys) as client:
        state = state_of(await retried(client, ADD))
        result = await retried(client, ADD, state)
        assert isinstance(result, types.CallToolResult)
        told = structured(result)
        assert told["status"] == "needs_solution"
        assert "without an answer from its model" in str(told["notes"])
        done = await call(client, "submit_solution", run=told["run"], turn=0, solution=SUM)
        assert done["output"] == 3


# -- what may go wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        types.ErrorData(code=-1, message="User rejected sampling request"),
        types.ErrorData(code=-32000, message="The user has denied permission to call this method."),
    ],
)
async def test_a_refusal_of_the_person_ends_the_run(url: str, error: types.ErrorData) -> None:
    model = Model(error)
    async with over_http(url, "legacy", **model.keys) as client:
        told = await call(client, "solve", **ADD)
        assert told["status"] == "cancelled"
        assert "refused to let its model answer" in told["reason"]
        assert error.message in told["reason"]
        assert "requests" not in told


async def test_a_refusal_in_rounds_leaves_the_run_where_it_stands(url: str) -> None:
    model = Model(types.ErrorData(code=-1, message="User rejected sampling request"))
    async with over_http(url, "auto", **model.keys) as client:
        # The client itself ends the request. The server is not told, and asks nobody else.
        with pytest.raises(MCPError, match="User rejected"):
            await client.call_tool("solve", ADD)
        latest = (await call(client, "check_run"))["runs"][0]
        assert latest["status"] == "needs_solution"


async def test_an_error_of_the_client_is_told_as_one_and_check_run_asks_again(url: str) -> None:
    model = Model(types.ErrorData(code=types.INTERNAL_ERROR, message="no model is loaded"), SUM)
    async with over_http(url, "legacy", **model.keys) as client:
        told = await call(client, "solve", **ADD)
        assert told["status"] == "needs_solution"
        assert "could not ask its model (-32603: no model is loaded)" in str(told["notes"])
        done = await call(client, "check_run", run=told["run"])
        assert done["output"] == 3


async def test_a_limit_on_tokens_holds_before_the_clients_model_is_asked(
    url: str, era: str
) -> None:
    model = Model(SUM)
    async with over_http(url, era, **model.keys) as client:
        letter = "word " * 10_000
        told = await call(
            client, "solve", task="Add.", input={"letter": letter}, limits={"tokens": 1000}
        )
        assert told["status"] == "limit"
        assert "the next request has at least" in told["reason"]
        assert "†input.letter" in told["reason"]
        assert model.asked == []


async def test_a_context_too_large_for_the_clients_model_is_told_with_its_largest_message(
    url: str,
) -> None:
    model = Model(
        types.ErrorData(
            code=types.INTERNAL_ERROR, message="prompt is too long: 213462 tokens > 200000"
        ),
        SUM,
    )
    async with over_http(url, "legacy", **model.keys) as client:
        told = await call(client, "solve", task="Add.", input={"letter": "word " * 10_000})
        notes = str(told["notes"])
        assert "prompt is too long" in notes
        assert "(most of it is †input.letter, 50,002 bytes)" in notes


async def test_nonsense_is_answered_with_what_was_expected_until_it_is_enough(
    url: str, era: str
) -> None:
    image = types.ImageContent(data="aGk=", mime_type="image/png")
    nonsense = types.CreateMessageResult(role="assistant", content=image, model="scripted-1")
    model = Model("I would rather not say.", nonsense, UNREADABLE)
    async with over_http(url, era, **model.keys) as client:
        result = await client.call_tool("solve", ADD)
        told = structured(result)
        assert told["status"] == "needs_solution"
        assert "3 malformed solutions" in str(told["notes"])
        assert "with solve" in text(result)
        assert "I would rather not say." in said(model.asked[1])
        assert "expected JSON" in said(model.asked[1])
        assert "expected text with one JSON object, found image" in said(model.asked[2])
        assert len(model.asked) == 3
        done = await call(client, "submit_solution", run=told["run"], turn=0, solution=SUM)
        assert done["output"] == 3


def called(*uses: tuple[str, dict[str, Any]]) -> types.CreateMessageResultWithTools:
    """An answer that calls tools."""
    blocks = [
        types.ToolUseContent(name=name, id=f"use-{n}", input=given)
        for n, (name, given) in enumerate(uses)
    ]
    return types.CreateMessageResultWithTools(
        role="assistant", content=[*blocks], model="scripted-1"
    )


async def test_an_answer_that_calls_other_tools_is_told_what_came_instead(
    url: str, era: str
) -> None:
    twice = called(("solution", SUM), ("solution", IDLE))
    result = types.ToolResultContent(tool_use_id="use-1", content=[types.TextContent(text="3")])
    given = types.CreateMessageResultWithTools(role="assistant", content=result, model="scripted-1")
    for answer, told in (
        (called(("git_log", {"repo": "ours"})), 'a call of \'git_log\' with {"repo": "ours"}'),
        (twice, "a call of 'solution' with {\"calls\""),
        (given, "tool_result"),
    ):
        model = Model(answer, SUM)
        async with over_http(url, era, **model.keys) as client:
            assert (await call(client, "solve", **ADD))["output"] == 3

        # The text appears both as what the model wrote and as what is wrong with it.
        assert said(model.asked[1]).count(told) >= 2
        assert (
            "expected exactly one call to the tool solution" in said(model.asked[1])
            or told == "tool_result"
        )


async def test_an_answer_that_is_too_large_is_refused_as_that(url: str, era: str) -> None:
    long = "x" * 9_000_000
    for answer, told in (
        (
            answer_of({"output": long}),
            "the answer has 9,000,014 characters; the limit is 8,388,608",
        ),
        (
            called(("solution", {"output": long})),
            "the answer has 9,000,013 bytes; the limit is 8,388,608",
        ),
    ):
        model = Model(answer, SUM)
        async with over_http(url, era, **model.keys) as client:
            assert (await call(client, "solve", **ADD))["output"] == 3
        assert told in said(model.asked[1])
        assert len(said(model.asked[1])) < 100_000


async def test_an_answer_that_was_cut_is_told_so(url: str, era: str) -> None:
    content = types.TextContent(text='{"calls": [{"_tool": "add", "a": 1')
    cut = types.CreateMessageResult(
        role="assistant", content=content, model="scripted-1", stop_reason="maxTokens"
    )
    model = Model(cut, SUM)
    async with over_http(url, era, **model.keys) as client:
        assert (await call(client, "solve", **ADD))["output"] == 3
    assert "cut off at its token limit" in said(model.asked[1])


async def test_lenient_reading_holds_for_what_a_model_writes(url: str, era: str) -> None:
    model = Model(
        'Here you are:\n```json\n{"calls": [{"_tool": "add", "a": 4, "b": 5}], '
        '"output": "†results.0"}\n```'
    )
    async with over_http(url, era, **model.keys) as client:
        assert (await call(client, "solve", **ADD))["output"] == 9


async def test_after_eight_rounds_the_caller_is_asked_before_its_client_gives_up(
    url: str, era: str
) -> None:
    model = Model(*[IDLE] * 8, SUM)
    async with over_http(url, era, **model.keys) as client:
        told = await call(client, "solve", **ADD)
        assert told["status"] == "needs_solution"
        assert told["turn"] == 8
        assert "asked 8 times within this request" in str(told["notes"])
        assert told["requests"][0]["instructions"]
        # What the caller hands in counts, and the model is asked the next question.
        again = await call(client, "submit_solution", run=told["run"], turn=8, solution=IDLE)
        assert again["output"] == 3

    assert len(model.asked) == 9


async def test_a_client_that_gives_up_after_fewer_rounds_finds_the_run_waiting(url: str) -> None:
    # A client does not say how many rounds it accepts. Ten is what SDKs do.
    model = Model(IDLE, IDLE, IDLE, SUM)
    async with over_http(url, "auto", input_required_max_rounds=2, **model.keys) as client:
        with pytest.raises(InputRequiredRoundsExceededError):
            await client.call_tool("solve", ADD)

        assert len(model.asked) == 2
        [latest, *_] = (await call(client, "check_run"))["runs"]
        assert latest["status"] == "needs_solution"
        assert "the client may have ended the call" in latest["note"]
        told = await call(client, "check_run", run=latest["run"])
        assert told["turn"] == 2
        # The caller hands in the step that the model was not asked for, and the rounds of that call
        # are counted from the beginning.
        done = await call(client, "submit_solution", run=latest["run"], turn=2, solution=IDLE)
        assert done["output"] == 3

    assert len(model.asked) == 4


async def test_the_model_is_asked_about_what_a_form_let_run(
    url: str, era: str, tmp_path: Path
) -> None:
    note = {
        "_tool": "write_note",
        "path": str(tmp_path / "one"),
        "text": "hello",
        "_outputPath": "n",
    }
    model = Model({"calls": [note], "output": None}, {"calls": [], "output": "†state.n"})

    async def approve(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async with over_http(url, era, elicitation_callback=approve, **model.keys) as client:
        assert (await call(client, "solve", **ADD))["output"] == 5

    assert (tmp_path / "one").read_text() == "hello"


async def test_the_model_answers_the_requests_of_rooms_too(url: str, era: str) -> None:
    rooms = [
        {"_tool": "solve", "_module": "anonymous", "task": f"Say {word}.", "_outputPath": word}
        for word in ("one", "two")
    ]

    class Rooms(Model):
        async def __call__(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
            word = next((word for word in ("one", "two") if f"Say {word}." in said(params)), None)
            self.answers = [
                {"output": word}
                if word
                else {"calls": rooms, "output": ["†state.one", "†state.two"]}
            ]
            return await super().__call__(context, params)

    model = Rooms()
    async with over_http(url, era, **model.keys) as client:
        done = await call(
            client,
            "solve",
            task="Both.",
            output_schema={"type": "array"},
            tools=["anonymous.solve"],
        )

    assert done["output"] == ["one", "two"]
    assert len(model.asked) == 3


# -- who answers -----------------------------------------------------------------------------------


async def test_an_explicit_choice_wins(url: str, era: str) -> None:
    model = Model(SUM)
    async with over_http(url, era, **model.keys) as client:
        told = await call(client, "solve", **ADD, mind="turns")
        assert told["status"] == "needs_solution"
        assert told["mind"] == {"name": "turns", "why": "the caller requested it"}
        assert not model.asked
        assert (await call(client, "solve", **ADD, mind="sampling"))["output"] == 3
        assert "no model is configured here" in await refused(client, "solve", **ADD, mind="model")

    async with over_http(url, era) as client:
        assert "declares the capability" not in str(await call(client, "solve", **ADD))
        assert "needs a client that declares" in await refused(
            client, "solve", **ADD, mind="sampling"
        )


async def test_another_client_of_the_caller_is_told_who_answers(url: str, era: str) -> None:
    model = Model(SUM)
    async with over_http(url, era, **model.keys) as client:
        told = await call(client, "solve", **ADD, wait_s=0)
        assert told["status"] == "needs_solution"
        assert "nobody can be asked, because this call does not wait (wait_s)" in str(told["notes"])
        run = told["run"]

    async with over_http(url, era) as client:
        told = await call(client, "check_run", run=run)
        assert told["mind"]["name"] == "sampling"
        assert "this client does not declare sampling" in str(told["notes"])

    async with over_http(url, era, **model.keys) as client:
        assert (await call(client, "check_run", run=run))["output"] == 3


async def test_a_solution_handed_in_meanwhile_withdraws_the_question(url: str) -> None:
    model = Model(IDLE)
    shown = anyio.Event()
    told: dict[str, Any] = {}

    async def then() -> None:
        shown.set()
        await anyio.sleep_forever()

    model.then = then

    async def waiting(client: Client) -> None:
        told.update(await call(client, "solve", **ADD))

    with anyio.fail_after(20):
        async with (
            over_http(url, "legacy", **model.keys) as client,
            over_http(url, "legacy") as other,
            anyio.create_task_group() as group,
        ):
            group.start_soon(waiting, client)
            await shown.wait()
            run = (await call(other, "check_run"))["runs"][0]["run"]
            await call(other, "submit_solution", run=run, turn=0, solution=SUM)

    assert told["output"] == 3


async def test_an_answer_that_does_not_come_in_time_leaves_the_turn_open(url: str) -> None:
    model = Model(SUM)
    model.then = anyio.sleep_forever
    with anyio.fail_after(20):
        async with over_http(url, "legacy", **model.keys) as client:
            told = await call(client, "solve", **ADD, wait_s=0.2)
            assert told["status"] == "needs_solution"
            assert "did not arrive within 0.2 s" in str(told["notes"])


async def test_wishes_for_the_model_are_passed_on(era: str, tmp_path: Path) -> None:
    wishes = {
        "max_tokens": 1000,
        "models": ["sonnet", "gpt"],
        "temperature": 0.5,
        "cost_priority": 0.25,
    }
    model = Model(SUM)
    async with in_memory(configured(tmp_path, sampling=wishes), era, **model.keys) as client:
        assert (await call(client, "solve", **ADD))["output"] == 3

    (asked,) = model.asked
    assert (asked.max_tokens, asked.temperature) == (1000, 0.5)
    preferences = asked.model_preferences
    assert preferences is not None
    assert [hint.name for hint in preferences.hints or []] == ["sonnet", "gpt"]
    assert preferences.cost_priority == 0.25


async def test_an_answer_that_comes_before_the_driver_has_left_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "FOLLOWS_SECONDS", 0.01)
    configuration = load_configuration(configured(tmp_path))
    model = Model({"calls": [], "output": 42})
    async with (
        Bridge(configuration) as driver,
        Bridge(configuration) as bridge,
        anyio.create_task_group() as group,
    ):
        read = bridge.store.runs.get
        looked_often = anyio.Event()
        looks: list[str] = []

        def look(run_id: str) -> RunRecord | None:
            looks.append(run_id)
            if len(looks) == 20:
                looked_often.set()
            return read(run_id)

        async def leave(held: Run) -> None:
            await looked_often.wait()
            held.driver.release()

        async def hold() -> None:
            """As a process that has made the Request, and has not returned the lease yet."""
            [found] = driver.runs()
            held = await driver.run(str(found["run"]))
            assert held.driver.take()
            monkeypatch.setattr(bridge.store.runs, "get", look)
            group.start_soon(leave, held)

        model.then = hold
        front = Front(bridge, group, "0")
        async with Client(front.server, mode="legacy", **model.keys) as client:
            answer = await call(
                client, "solve", task="think", output_schema={"type": "integer"}, wait_s=20
            )

        assert (answer["status"], answer["output"]) == ("done", 42)
        assert len(model.asked) == 1
        group.cancel_scope.cancel()
