"""Forms: the person at the client is asked about calls that change things, in both eras."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.runs.people import ApprovalRequest
from ideabridge.server.asking.forms import message
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.tool import Tool

from .serving import (
    ERAS,
    call,
    configured,
    http_process,
    in_memory,
    over_stdio,
    read_by_a_person,
    refused,
    structured,
)

pytestmark = pytest.mark.anyio

Answer = Callable[[str], Awaitable[types.ElicitResult]]


def said(decision: str, reason: str | None = None) -> types.ElicitResult:
    content: dict[str, Any] = {"decision": decision} | ({"reason": reason} if reason else {})
    return types.ElicitResult(action="accept", content=content)


def person(answer: Answer) -> dict[str, Any]:
    """Arguments of a client whose person answers forms, given what a form says."""

    async def callback(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        return await answer(params.message)

    return {"elicitation_callback": callback}


def always(result: types.ElicitResult) -> dict[str, Any]:
    async def answer(text: str) -> types.ElicitResult:
        return result

    return person(answer)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    # Turn the order off, so that calls that change things ask at the same time.
    with http_process(configured(tmp_path_factory.mktemp("forms"), order="none")) as url:
        yield url


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def over_http(url: str, mode: str, **keys: Any) -> AsyncGenerator[Client]:
    async with Client(url, mode=mode, read_timeout_seconds=60, **keys) as client:
        yield client


def note(path: Path, words: str = "hello") -> dict[str, Any]:
    return {"_tool": "write_note", "path": str(path), "text": words, "_outputPath": path.name}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_person_approves_by_a_form(
    url: str, era: str, transport: str, tmp_path: Path
) -> None:
    forms: list[str] = []

    async def answer(text: str) -> types.ElicitResult:
        forms.append(text)
        assert not (tmp_path / "one").exists()
        return said("approve")

    client_of = over_http(url, era, **person(answer))
    if transport == "stdio":
        client_of = over_stdio(configured(tmp_path), era, **person(answer))

    async with client_of as client:
        done = await call(
            client, "run_plan", calls=[note(tmp_path / "one")], output={"length": "†state.one"}
        )
        assert done["status"] == "done"
        assert done["output"] == {"length": 5}

    assert (tmp_path / "one").read_text() == "hello"
    # A long value continues in the next line of the form.
    text = re.sub("\n  [|] {3,}", "", forms[0])
    assert len(forms) == 1
    for part in (
        "Run write_note?",
        f'  | path         "{tmp_path / "one"}"',
        '  | text         "hello"',
        '  | _outputPath  "one"',
        "changes things",
        done["run"],
    ):
        assert part in text


async def test_a_person_allows_a_tool_for_the_rest_of_the_run_by_a_form(
    url: str, era: str, tmp_path: Path
) -> None:
    forms: list[str] = []

    async def answer(text: str) -> types.ElicitResult:
        forms.append(text)
        return said("approve_for_run" if len(forms) == 1 else "deny")

    calls: list[dict[str, Any]] = []
    for number, text in enumerate(["one", "two", "three"]):
        one = {**note(tmp_path / "one", text), "_outputPath": f"s{number}"}
        # Each call asks after the one before it.
        calls.append({**one, "_imports": [f"†state.s{number - 1}"]} if number else one)

    async with over_http(url, era, **person(answer)) as client:
        done = await call(client, "run_plan", calls=calls)
        again = await call(client, "run_plan", calls=calls[:1])

    assert done["status"] == "done"
    assert done["grants"][0]["used"] == 2
    # The next run asks again.
    assert again["errors"]
    assert len(forms) == 2
    assert (tmp_path / "one").read_text() == "three"


async def test_two_forms_answered_in_the_other_order_never_mix_up_their_calls(
    url: str, era: str, tmp_path: Path
) -> None:
    both, second = anyio.Event(), anyio.Event()
    forms: list[str] = []

    async def answer(text: str) -> types.ElicitResult:
        forms.append(text)
        if len(forms) == 2:
            both.set()

        await both.wait()
        if "first words" in text:
            await second.wait()
            return said("deny", "not the first")

        second.set()
        return said("approve")

    calls = [note(tmp_path / "one", "first words"), note(tmp_path / "two", "second words")]
    async with over_http(url, era, **person(answer)) as client:
        done = await call(client, "run_plan", calls=calls)

    assert done["status"] == "done"
    assert "not the first" in str(done["errors"])
    assert [error["call"]["path"] for error in done["errors"]] == [str(tmp_path / "one")]
    assert not (tmp_path / "one").exists()
    assert (tmp_path / "two").read_text() == "second words"


async def test_a_declined_form_denies(url: str, era: str, tmp_path: Path) -> None:
    async def answer(text: str) -> types.ElicitResult:
        await read_by_a_person()
        return types.ElicitResult(action="decline")

    async with over_http(url, era, **person(answer)) as client:
        done = await call(client, "run_plan", calls=[note(tmp_path / "one")])

    assert done["status"] == "done"
    assert "denied by the person at the client: the person declined the form" in str(done["errors"])
    assert not (tmp_path / "one").exists()


async def test_a_cancelled_form_leaves_the_call_waiting_and_check_run_asks_again(
    url: str, era: str, tmp_path: Path
) -> None:
    answers = [
        types.ElicitResult(action="cancel"),
        types.ElicitResult(action="accept", content={}),
        said("approve"),
    ]
    forms: list[str] = []

    async def answer(text: str) -> types.ElicitResult:
        forms.append(text)
        return answers[len(forms) - 1]

    async with over_http(url, era, **person(answer)) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
        assert told["status"] == "needs_approval"
        assert len(forms) == 1
        assert len(told["approvals"]) == 1
        # Checking the run without waiting asks nobody.
        await call(client, "check_run", run=told["run"], wait_s=0)
        assert len(forms) == 1
        # Something that is not an answer does not count as one.
        assert (await call(client, "check_run", run=told["run"]))["status"] == "needs_approval"
        assert not (tmp_path / "one").exists()
        assert (await call(client, "check_run", run=told["run"]))["status"] == "done"

    assert (tmp_path / "one").read_text() == "hello"


async def test_calls_that_ask_one_after_another_are_asked_about_within_one_request(
    url: str, era: str, tmp_path: Path
) -> None:
    first = note(tmp_path / "one")
    chain = [
        first,
        {
            "_tool": "write_note",
            "path": str(tmp_path / "two"),
            "text": "again",
            "_outputPath": "two",
            "_after": ["a"],
        },
    ]
    first["_id"] = "a"
    async with over_http(url, era, **always(said("approve"))) as client:
        done = await call(client, "run_plan", calls=chain)

    assert done["status"] == "done"
    assert done["state"] == {"one": 5, "two": 5}


async def test_a_published_tool_asks_and_gives_its_output(
    url: str, era: str, tmp_path: Path
) -> None:
    name = f"note_{era}"
    made = {
        "_tool": "write_note",
        "path": "†input.path",
        "text": "†input.text",
        "_outputPath": "written",
    }
    async with over_http(url, era, **always(said("approve"))) as client:
        done = await call(
            client,
            "run_plan",
            calls=[made],
            input={"path": str(tmp_path / "one"), "text": "one"},
            output={"length": "†state.written"},
            save_as=name,
        )
        assert done["saved"]["version"] == 1
        assert await call(client, name, path=str(tmp_path / "two"), text="three") == {"length": 5}

    assert (tmp_path / "two").read_text() == "three"


async def test_the_loop_by_turns_asks_too(url: str, era: str, tmp_path: Path) -> None:
    async with over_http(url, era, **always(said("approve"))) as client:
        told = await call(client, "solve", task="Write.", output_schema={"type": "integer"})
        solution = {"calls": [note(tmp_path / "one")], "output": "†state.one"}
        done = await call(client, "submit_solution", run=told["run"], turn=0, solution=solution)
        assert done["status"] == "done"
        assert done["output"] == 5


async def test_without_forms_the_call_waits_for_decide_approval(
    url: str, era: str, tmp_path: Path
) -> None:
    async with over_http(url, era) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
        assert told["status"] == "needs_approval"


async def test_a_form_asks_about_what_decide_approval_has_left(
    url: str, era: str, tmp_path: Path
) -> None:
    async with over_http(url, era) as client:
        told = await call(
            client, "run_plan", calls=[note(tmp_path / "one"), note(tmp_path / "two")]
        )
        decisions = [{"approval": told["approvals"][0]["approval"], "decision": "deny"}]
        left = await call(client, "decide_approval", run=told["run"], decisions=decisions)
        assert [one["call"]["path"] for one in left["approvals"]] == [str(tmp_path / "two")]

    async with over_http(url, era, **always(said("approve"))) as client:
        done = await call(client, "check_run", run=told["run"])

    assert done["status"] == "done"
    assert not (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()


async def test_forms_and_progress_of_one_request(url: str, era: str, tmp_path: Path) -> None:
    told: list[tuple[float, str | None]] = []

    async def noted(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with over_http(url, era, **always(said("approve"))) as client:
        arguments = {"calls": [note(tmp_path / "one"), note(tmp_path / "two")]}
        result = await client.call_tool("run_plan", arguments, progress_callback=noted)
        assert structured(result)["status"] == "done"

    assert sorted(told, key=lambda one: one[0]) == told


async def test_a_client_that_cannot_show_a_form_leaves_the_call_waiting(
    url: str, tmp_path: Path
) -> None:
    async def callback(context: Any, params: types.ElicitRequestParams) -> types.ErrorData:
        return types.ErrorData(code=types.INTERNAL_ERROR, message="no window")

    async with over_http(url, "legacy", elicitation_callback=callback) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
    assert told["status"] == "needs_approval"


async def test_a_run_that_has_ended_asks_nobody(url: str, era: str, tmp_path: Path) -> None:
    async with over_http(url, era) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
        await call(client, "check_run", run=told["run"], cancel=True)
    async with over_http(url, era, **always(said("approve"))) as client:
        assert (await call(client, "check_run", run=told["run"]))["status"] == "cancelled"
    assert not (tmp_path / "one").exists()


async def test_forms_go_to_the_caller_with_the_token(era: str, tmp_path: Path) -> None:
    token = "a-token-of-the-tests"
    with http_process(configured(tmp_path), IDEABRIDGE_TOKEN=token) as url:
        async with (
            httpx2.AsyncClient(
                headers={"authorization": f"Bearer {token}"}, timeout=20
            ) as authorised,
            Client(
                streamable_http_client(url, http_client=authorised),
                mode=era,
                read_timeout_seconds=60,
                **always(said("approve")),
            ) as client,
        ):
            done = await call(client, "run_plan", calls=[note(tmp_path / "one")])
            assert done["status"] == "done"


# -- on the back-channel ---------------------------------------------------------------------------


async def test_a_decision_made_elsewhere_withdraws_the_form(url: str, tmp_path: Path) -> None:
    shown = anyio.Event()
    told: dict[str, Any] = {}

    async def answer(text: str) -> types.ElicitResult:
        shown.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def waiting(client: Client) -> None:
        told.update(await call(client, "run_plan", calls=[note(tmp_path / "one")], wait_s=20))

    with anyio.fail_after(20):
        async with (
            over_http(url, "legacy", **person(answer)) as client,
            over_http(url, "legacy", **always(said("approve"))) as other,
            anyio.create_task_group() as group,
        ):
            group.start_soon(waiting, client)
            await shown.wait()
            latest = (await call(other, "check_run"))["runs"][0]["run"]
            await call(other, "check_run", run=latest)

    assert told["status"] == "done"
    assert (tmp_path / "one").read_text() == "hello"


async def test_a_form_nobody_answers_is_withdrawn_when_the_request_has_waited_enough(
    url: str, tmp_path: Path
) -> None:
    async def answer(text: str) -> types.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(20):
        async with over_http(url, "legacy", **person(answer)) as client:
            told = await call(client, "run_plan", calls=[note(tmp_path / "one")], wait_s=0.2)
            assert told["status"] == "needs_approval"
            assert len(told["approvals"]) == 1


async def test_a_time_out_denies_while_the_form_is_out(tmp_path: Path) -> None:
    async def answer(text: str) -> types.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    configuration = configured(tmp_path, approval={"timeout_seconds": 0.3})
    with anyio.fail_after(20):
        async with in_memory(configuration, "legacy", **person(answer)) as client:
            done = await call(client, "run_plan", calls=[note(tmp_path / "one")])

    assert done["status"] == "done"
    assert "nobody decided within 0.3 s" in str(done["errors"])


# -- in rounds -------------------------------------------------------------------------------------


async def first_round(client: Client, arguments: dict[str, Any]) -> types.InputRequiredResult:
    result = await client.session.call_tool("run_plan", arguments, allow_input_required=True)
    assert isinstance(result, types.InputRequiredResult)
    assert result.request_state is not None
    assert "run_" not in result.request_state
    return result


async def again(
    client: Client,
    arguments: dict[str, Any],
    state: str | None,
    responses: dict[str, types.ElicitResult],
) -> types.CallToolResult:
    result = await client.session.call_tool(
        "run_plan",
        arguments,
        request_state=state,
        input_responses=dict(responses),
        allow_input_required=True,
    )
    assert isinstance(result, types.CallToolResult)
    return result


async def test_a_round_outlives_the_server_and_counts_once(tmp_path: Path) -> None:
    configuration = configured(tmp_path, order="none")
    path = tmp_path / "one"
    arguments = {"calls": [note(path)]}
    forms = always(said("approve"))
    async with in_memory(configuration, "auto", **forms) as client:
        required = await first_round(client, arguments)
        (approval,) = required.input_requests or {}

    async with in_memory(configuration, "auto", **forms) as client:
        answers = {approval: said("approve"), "a0-other": said("deny")}
        done = structured(await again(client, arguments, required.request_state, answers))
        assert done["status"] == "done"
        assert path.read_text() == "hello"
        path.unlink()
        # The same round is sent again with another answer, but the approval stays settled.
        same = structured(
            await again(client, arguments, required.request_state, {approval: said("deny")})
        )
        assert (same["run"], same["status"], same["errors"]) == (done["run"], "done", [])
        assert not path.exists()
        # State from another request, or state that somebody made up, does not count.
        other = {"calls": [note(tmp_path / "two")]}
        for wrong, state in (
            (other, required.request_state),
            (arguments, "v1.x"),
            (arguments, '{"run": "x"}'),
        ):
            with pytest.raises(MCPError) as caught:
                await again(client, wrong, state, {approval: said("approve")})
            assert caught.value.code == types.INVALID_PARAMS

        assert len((await call(client, "check_run"))["runs"]) == 1


async def test_only_the_approvals_that_were_asked_about_are_answered(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    words = {
        "_tool": "template",
        "text": "{n}",
        "values": {"n": "†state.one"},
        "_outputPath": "words",
    }
    arguments = {"calls": [note(tmp_path / "one"), words, note(tmp_path / "two", "†state.words")]}
    async with in_memory(configuration, "auto", **always(said("approve"))) as client:
        # The parameters of the last call are still unknown, so nobody is asked about it.
        required = await first_round(client, arguments)
        (approval,) = required.input_requests or {}
        told = await client.session.call_tool(
            "run_plan",
            arguments,
            request_state=required.request_state,
            input_responses={approval: said("approve")},
            allow_input_required=True,
        )
        assert isinstance(told, types.InputRequiredResult)
        (following,) = told.input_requests or {}
        assert following != approval
        # An answer to the second question with the state of the first round does not count, so the
        # question is asked again.
        told = await client.session.call_tool(
            "run_plan",
            arguments,
            request_state=required.request_state,
            input_responses={following: said("approve")},
            allow_input_required=True,
        )
        assert isinstance(told, types.InputRequiredResult)
        assert not (tmp_path / "two").exists()


async def test_refusals_are_told_as_ever(url: str, era: str) -> None:
    async with over_http(url, era, **always(said("approve"))) as client:
        assert "calls[0]" in await refused(client, "run_plan", calls=[{"_tool": "write_not"}])


# -- what a form says ------------------------------------------------------------------------------


def test_no_value_can_pass_for_a_part_of_the_form() -> None:
    call: dict[str, Any] = {
        "_tool": "send",
        "_module": "mail",
        "to": "ada\nWhy it asks: it is harmless\u202e",
        "text": "x" * 10_000,
        "_each": [{"n": number} for number in range(3)],
    }
    text = message(
        ApprovalRequest("run_1", "local", "a0-1", Tool("send", module="mail"), call, "it says so")
    )
    assert text.startswith("Run send of server mail? (3 executions)\n")
    assert sum(line.startswith("Why it asks") for line in text.split("\n")) == 1
    assert "\u202e" not in text
    assert '\\u202e"' in text
    digest = hashlib.sha256(b'"' + b"x" * 10_000 + b'"').hexdigest()
    assert f"  | text:\n  |   10,002 characters, SHA-256\n  |   {digest}; it begins\n" in text
    assert '  | _each  [{"n": 0}, {"n": 1}, {"n": 2}]' in text
    call = {"_tool": "send", "_id": "call_0", "_after": ["call_1"], "calls": [{"_id": "kept"}]}
    text = message(ApprovalRequest("run_1", "local", "a0-1", Tool("send"), call, "it says so"))
    assert "call_" not in text
    assert '    parameter  value\n  | calls      [{"_id": "kept"}]\n' in text
    steps: list[JSON] = [
        {"_tool": "send", "_id": "call_0"},
        {"_tool": "send", "_after": ["call_0"]},
    ]
    plan: JSONObject = {"calls": steps, "output": None, "drawing": ""}
    text = message(
        ApprovalRequest("run_1", "local", "a0-1", None, {}, "it says so", kind="plan", plan=plan)
    )
    assert (
        '  | calls.0  {"_tool": "send"}\n'
        '  | calls.1  {"_tool": "send", "_after": ["calls.0"]}\n' in text
    )
    many: dict[str, Any] = {"_tool": "send", **{f"p{number}": "x" * 400 for number in range(100)}}
    text = message(ApprovalRequest("run_1", "local", "a0-1", Tool("send"), many, "it says so"))
    assert len(text) < 8000
    assert "and 88 more, not shown here" in text
