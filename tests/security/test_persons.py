"""The model does not approve for the person: the attacks, in both eras, where it makes a difference
over real transports.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests import preloaded
from tests.server.serving import (
    BIN,
    ERAS,
    Heard,
    all_tools,
    call,
    configured,
    http_process,
    in_memory,
    listening,
    over_stdio,
    read_by_a_person,
    refused,
    text,
)

pytestmark = pytest.mark.anyio

ASKS = Path(__file__).parent.parent / "modules" / "servers" / "asks.py"
UNHURRIED = Path(__file__).parent / "launch_unhurried.py"
Answer = Callable[[str], Awaitable[types.ElicitResult]]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with http_process(configured(tmp_path_factory.mktemp("persons"), order="none")) as url:
        yield url


def person(answer: Answer) -> dict[str, Any]:
    async def callback(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        return await answer(params.message)

    return {"elicitation_callback": callback}


async def never(text: str) -> types.ElicitResult:
    await anyio.sleep_forever()
    raise AssertionError


def note(path: Path, words: str = "hello") -> dict[str, Any]:
    return {"_tool": "write_note", "path": str(path), "text": words, "_outputPath": path.name}


@asynccontextmanager
async def over_http(url: str, mode: str, **keys: Any) -> AsyncGenerator[Client]:
    async with Client(url, mode=mode, read_timeout_seconds=60, **keys) as client:
        yield client


def unhurried(configuration: Path, mode: str, **keys: Any) -> AbstractAsyncContextManager[Client]:
    def start(path: Path) -> list[str]:
        return preloaded.python(UNHURRIED, str(path))

    return over_stdio(configuration, mode, start=start, **keys)


def decision(told: dict[str, Any], made: str = "approve", **more: Any) -> list[dict[str, Any]]:
    return [{"approval": told["approvals"][0]["approval"], "decision": made, **more}]


def journaled(folder: Path, run: str) -> list[Any]:
    """Who decided in a run, as the journal says it."""
    with Store.open(folder / "ideas.sqlite") as store:
        return [event["by"] for _, event in store.runs.events(run) if "by" in event]


# -- while a form is out ---------------------------------------------------------------------------


async def test_the_model_cannot_decide_while_the_form_is_before_the_person(
    era: str, tmp_path: Path
) -> None:
    client: Client
    said: list[str] = []

    async def answer(form: str) -> types.ElicitResult:
        run, approval = form.rsplit("Run ", 1)[1].removesuffix(".").split(", approval ")
        for made in (
            {"decision": "approve"},
            {"decision": "edit", "call": note(tmp_path / "other")},
        ):
            decisions = [{"approval": approval, **made}]
            said.append(await refused(client, "decide_approval", run=run, decisions=decisions))
        return types.ElicitResult(action="accept", content={"decision": "deny", "reason": "no"})

    async with over_stdio(configured(tmp_path), era, **person(answer)) as client:
        assert "decide_approval" not in await all_tools(client)
        done = await call(client, "run_plan", calls=[note(tmp_path / "one")])

    assert len(said) == 2
    for one in said:
        assert "only the person can decide: in the form" in one
        assert "ideabridge approvals decide" in one

    assert done["status"] == "done"
    assert "denied by the person at the client: no" in str(done["errors"])
    assert done["decided"] == ["call 0 (write_note): deny by the person at the client"]
    assert not (tmp_path / "one").exists()
    assert not (tmp_path / "other").exists()
    assert journaled(tmp_path, done["run"]) == [{"kind": "person", "via": "form", "user": "local"}]


async def test_the_model_cannot_decide_what_the_person_left_open(
    url: str, era: str, tmp_path: Path
) -> None:
    async def answer(form: str) -> types.ElicitResult:
        return types.ElicitResult(action="cancel")

    async with over_http(url, era, **person(answer)) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
        assert told["status"] == "needs_approval"
        assert told["decides"].startswith("only the person can decide: in the form")
        said = await refused(client, "decide_approval", run=told["run"], decisions=decision(told))
        assert "nothing was decided: only the person can decide" in said

    assert not (tmp_path / "one").exists()


async def test_the_model_cannot_accept_a_plan_or_answer_a_module_for_the_person(
    era: str, tmp_path: Path
) -> None:
    client: Client
    said: list[str] = []

    async def answer(form: str) -> types.ElicitResult:
        run, approval = form.rsplit("Run ", 1)[1].removesuffix(".").split(", approval ")
        made: dict[str, Any] = {"decision": "approve"}
        if form.startswith("Server asks asks"):
            made = {"decision": "value", "value": {"name": "Eve", "seats": 5}}

        decisions = [{"approval": approval, **made}]
        said.append(await refused(client, "decide_approval", run=run, decisions=decisions))
        if form.startswith("Server asks asks"):
            return types.ElicitResult(action="accept", content={"name": "Ann", "seats": 2})
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    configuration = configured(tmp_path, mcpServers={"asks": preloaded.module(ASKS)})
    async with in_memory(configuration, era, **person(answer)) as client:
        told = await call(
            client, "solve", task="Book.", planning="lazy", output_schema={"type": "string"}
        )
        calls = [{"_tool": "book", "who": "ann", "_outputPath": "got"}]
        solution = {"calls": calls, "output": "†state.got"}
        done = await call(client, "submit_solution", run=told["run"], turn=0, solution=solution)

    assert len(said) == 2
    assert all("only the person can decide: in the form" in one for one in said)
    assert '"content": {"name": "Ann", "seats": 2}' in done["output"]
    assert done["decided"] == [
        "the plan: approve by the person at the client",
        "call 0 (book): accept by the person at the client",
    ]


# -- through another session -----------------------------------------------------------------------


async def test_another_session_of_the_same_user_cannot_decide_what_a_form_asks(
    url: str, tmp_path: Path
) -> None:
    shown = anyio.Event()

    async def answer(form: str) -> types.ElicitResult:
        shown.set()
        return await never(form)

    async def waiting(client: Client) -> None:
        await call(client, "run_plan", calls=[note(tmp_path / "one")], wait_s=20)

    with anyio.fail_after(20):
        async with (
            over_http(url, "legacy", **person(answer)) as client,
            over_http(url, "legacy") as other,
            anyio.create_task_group() as group,
        ):
            group.start_soon(waiting, client)
            await shown.wait()
            latest = (await call(other, "check_run"))["runs"][0]["run"]
            told = await call(other, "check_run", run=latest)
            assert "this run belongs to a client that shows forms" in told["decides"]
            said = await refused(other, "decide_approval", run=latest, decisions=decision(told))
            assert "this run belongs to a client that shows forms" in said
            group.cancel_scope.cancel()

    assert not (tmp_path / "one").exists()


async def test_a_session_in_another_process_cannot_decide_about_a_run_begun_where_forms_are_shown(
    era: str, tmp_path: Path
) -> None:
    configuration = configured(tmp_path)
    async with over_stdio(configuration, era, **person(never)) as client:
        # The client asks for nothing to be shown, so no form is sent.
        started = await call(client, "run_plan", calls=[note(tmp_path / "one")], wait_s=0)

    async with over_stdio(configuration, era) as other:
        assert "decide_approval" in await all_tools(other)
        told = await call(other, "check_run", run=started["run"])
        assert told["status"] == "needs_approval"
        said = await refused(other, "decide_approval", run=started["run"], decisions=decision(told))
        assert "this run belongs to a client that shows forms" in said

    assert not (tmp_path / "one").exists()


# -- where no forms are shown ----------------------------------------------------------------------


async def test_where_no_forms_are_shown_the_assistant_decides_and_is_named(
    era: str, tmp_path: Path
) -> None:
    async with in_memory(configured(tmp_path), era) as client:
        result = await client.call_tool("run_plan", {"calls": [note(tmp_path / "one")]})
        told: Any = result.structured_content
        for shown in (told["decides"], text(result)):
            assert "you may decide with decide_approval; ask the person first" in shown
        done = await call(
            client, "decide_approval", run=told["run"], decisions=decision(told, "deny")
        )
        assert "denied by the assistant" in str(done["errors"])
        assert "the journal names the assistant as the one who decided" in done["notes"][0]
    assert journaled(tmp_path, done["run"]) == [
        {"kind": "assistant", "via": "tool", "user": "local"}
    ]


async def test_approval_by_person_leaves_only_the_terminal(era: str, tmp_path: Path) -> None:
    configuration = configured(tmp_path, approval={"by": "person"})
    async with in_memory(configuration, era) as client:
        assert "decide_approval" not in await all_tools(client)
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
        assert told["status"] == "needs_approval"
        assert (
            "approval.by in the configuration), on the page that `ideabridge ui` opens, "
            "or at a terminal: ideabridge approvals decide" in told["decides"]
        )
        said = await refused(client, "decide_approval", run=told["run"], decisions=decision(told))
        assert "approval.by in the configuration" in said
        assert not (tmp_path / "one").exists()
        words = ["approvals", "decide", "approve", told["run"], "--config", str(configuration)]
        command = preloaded.python(BIN / "ideabridge", *words)
        ended = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
        assert ended.returncode == 0, ended.stderr.decode()
        assert (await call(client, "check_run", run=told["run"]))["status"] == "done"

    assert (tmp_path / "one").read_text() == "hello"
    # Nobody typed this at a prompt, so an assistant with a shell could have done it.
    assert journaled(tmp_path, told["run"]) == [
        {"kind": "person", "via": "command", "user": "local"}
    ]


async def test_over_http_the_answer_names_the_page_and_the_command(
    era: str, tmp_path: Path
) -> None:
    configuration = configured(tmp_path, approval={"by": "person"})
    start = ["serve", "--http", "127.0.0.1:0", "--config", str(configuration)]
    for page in (True, False):
        program = preloaded.python(BIN / "ideabridge", *start, *(["--ui"] if page else []))
        with listening(program) as url:
            async with Client(url, mode=era, read_timeout_seconds=60) as client:
                run = await client.call_tool("run_plan", {"calls": [note(tmp_path / "one")]})
                told: Any = run.structured_content
                again = f"--config {configuration} --project {Path.cwd()}"
                where = f"on the page that `ideabridge ui {again}` opens, or "
                if page:
                    where = f"on the page {url.removesuffix('/mcp')}/ui/approvals, or "
                terminal = f"at a terminal: ideabridge approvals decide --config {configuration}"
                for said in (told["decides"], text(run)):
                    assert (
                        "only the person can decide (approval.by in the configuration), "
                        f"{where}{terminal}"
                    ) in said

                said = await refused(
                    client, "decide_approval", run=told["run"], decisions=decision(told)
                )
                assert f"{where}{terminal}" in said
                assert "key=" not in text(run)

            if page:
                async with httpx.AsyncClient(follow_redirects=True) as web:
                    inbox = await web.get(f"{url.removesuffix('/mcp')}/ui/approvals")
                assert told["run"] in inbox.text


async def test_a_named_user_is_told_no_folder_of_the_server(era: str, tmp_path: Path) -> None:
    configuration = configured(tmp_path, approval={"by": "person"})
    with Store.open(tmp_path / "ideas.sqlite") as store:
        store.users.add("ann")
        _, token = store.users.add_token("ann")

    program = preloaded.python(
        BIN / "ideabridge", "serve", "--http", "127.0.0.1:0", "--ui", "--config", str(configuration)
    )
    with listening(program) as url, anyio.fail_after(20):
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as web,
            Client(streamable_http_client(url, http_client=web), mode=era) as client,
        ):
            told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
            assert (
                f"on the page {url.removesuffix('/mcp')}/ui/approvals, or at a terminal"
                in told["decides"]
            )
            assert str(tmp_path) not in told["decides"]


# -- a client that declines by itself --------------------------------------------------------------


async def declined(form: str) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


async def test_a_form_declined_at_once_was_shown_to_nobody(era: str, tmp_path: Path) -> None:
    async with unhurried(configured(tmp_path), era, **person(declined)) as client:
        assert "decide_approval" not in await all_tools(client)
        told = await call(
            client, "run_plan", calls=[note(tmp_path / "one"), note(tmp_path / "two")]
        )
        assert (told["status"], len(told["approvals"]), told["errors"]) == ("needs_approval", 2, [])
        assert len(told["notes"]) == 1
        assert told["notes"][0].startswith("nobody was asked: the client declined the form at once")
        assert "you may decide with decide_approval" in told["decides"]
        assert "decide_approval" in await all_tools(client)
        approve = [
            {"approval": one["approval"], "decision": "approve"} for one in told["approvals"]
        ]
        done = await call(client, "decide_approval", run=told["run"], decisions=approve)
        assert done["status"] == "done"
        assert done["decided"] == [
            f"call {number} (write_note): approve by the assistant" for number in range(2)
        ]
        # From now on, the session shows no forms.
        told = await call(client, "run_plan", calls=[note(tmp_path / "three")])
        assert told["status"] == "needs_approval"
        assert "notes" not in told
    assert {one["kind"] for one in journaled(tmp_path, done["run"])} == {"assistant"}


async def test_many_forms_that_a_client_declines_one_by_one_were_shown_to_nobody(
    era: str, tmp_path: Path
) -> None:
    """The last of them comes back long after it was sent, and each at once behind
    the one before.
    """
    turn = anyio.Lock()

    async def one_by_one(form: str) -> types.ElicitResult:
        async with turn:
            await anyio.sleep(0.04)
        return types.ElicitResult(action="decline")

    async with in_memory(configured(tmp_path, order="none"), era, **person(one_by_one)) as client:
        told = await call(
            client, "run_plan", calls=[note(tmp_path / str(number)) for number in range(20)]
        )
        assert (told["status"], len(told["approvals"]), told["errors"]) == (
            "needs_approval",
            20,
            [],
        )
        assert "decided" not in told
        assert "you may decide with decide_approval" in told["decides"]

    assert journaled(tmp_path, told["run"]) == []


async def test_who_reads_the_first_of_many_forms_and_then_declines_all_denies(
    era: str, tmp_path: Path
) -> None:
    async def answer(form: str) -> types.ElicitResult:
        await anyio.sleep(1.5)
        return types.ElicitResult(action="decline")

    async with in_memory(configured(tmp_path, order="none"), era, **person(answer)) as client:
        done = await call(
            client, "run_plan", calls=[note(tmp_path / str(number)) for number in range(8)]
        )
        assert (done["status"], len(done["decided"])) == ("done", 8)

    assert {one["kind"] for one in journaled(tmp_path, done["run"])} == {"person"}


async def test_a_client_that_declines_at_once_is_told_of_the_tool(tmp_path: Path) -> None:
    heard = Heard()
    forms = person(declined)
    async with unhurried(configured(tmp_path), "legacy", message_handler=heard, **forms) as client:
        await call(client, "run_plan", calls=[note(tmp_path / "one")])
        await heard.until("notifications/tools/list_changed")


async def test_approval_by_person_holds_where_forms_are_declined_at_once(
    era: str, tmp_path: Path
) -> None:
    configuration = configured(tmp_path, approval={"by": "person"})
    async with unhurried(configuration, era, **person(declined)) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
        assert told["status"] == "needs_approval"
        assert "decide_approval" not in await all_tools(client)
        said = await refused(client, "decide_approval", run=told["run"], decisions=decision(told))
        assert "approval.by in the configuration" in said

    assert not (tmp_path / "one").exists()


async def test_over_http_a_client_without_a_session_takes_nothing_from_others(
    tmp_path: Path,
) -> None:
    """In 2026-07-28 nothing tells two clients of one user apart: one that declines at once must not
    take the forms, and with them the decision, from a person at another.
    """
    forms: list[str] = []

    async def answer(form: str) -> types.ElicitResult:
        forms.append(form)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    with listening(preloaded.python(UNHURRIED, str(configured(tmp_path)), "0")) as url:
        async with over_http(url, "auto", **person(declined)) as client:
            told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
            assert "you may decide with decide_approval" in told["decides"]
        async with over_http(url, "auto", **person(answer)) as client:
            assert "decide_approval" not in await all_tools(client)
            assert (await call(client, "run_plan", calls=[note(tmp_path / "two")]))[
                "status"
            ] == "done"

    assert len(forms) == 1


async def test_a_round_that_comes_back_to_another_process_is_declined_at_once_all_the_same(
    tmp_path: Path,
) -> None:
    """Two servers share a store; the form goes out from one, and the answer comes to the other."""
    configuration = configured(tmp_path)
    program = preloaded.python(UNHURRIED, str(configuration), "0")
    arguments = {"calls": [note(tmp_path / "one")]}
    with listening(program) as first, listening(program) as second:
        async with over_http(first, "auto", **person(declined)) as client:
            required = await client.session.call_tool(
                "run_plan", arguments, allow_input_required=True
            )
            assert isinstance(required, types.InputRequiredResult)
            [approval] = required.input_requests or {}

        async with over_http(second, "auto", **person(declined)) as client:
            result = await client.session.call_tool(
                "run_plan",
                arguments,
                request_state=required.request_state,
                input_responses={approval: types.ElicitResult(action="decline")},
            )
            told: Any = result.structured_content
            assert told["notes"][0].startswith("nobody was asked")
            assert "you may decide with decide_approval" in told["decides"]
            done = await call(
                client, "decide_approval", run=told["run"], decisions=decision(told, "deny")
            )
            assert "denied by the assistant" in str(done["errors"])


@pytest.mark.parametrize("transport", ["session", "none"])
async def test_a_client_that_declines_at_once_does_not_take_a_run_from_a_person(
    transport: str, tmp_path: Path
) -> None:
    """One client of the user has a person before it, who has left a form open. Another, of the same
    user, declines the form of that run at once: its model does not get to decide.
    """
    mode = "legacy" if transport == "session" else "auto"

    async def leave(form: str) -> types.ElicitResult:
        return types.ElicitResult(action="cancel")

    with listening(preloaded.python(UNHURRIED, str(configured(tmp_path)), "0")) as url:
        async with (
            over_http(url, mode, **person(leave)) as client,
            over_http(url, mode, **person(declined)) as other,
        ):
            told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
            for _ in range(2):
                seen = await call(other, "check_run", run=told["run"])
                assert seen["status"] == "needs_approval"
                said = await refused(
                    other, "decide_approval", run=told["run"], decisions=decision(told)
                )
                assert "nothing was decided: only the person can decide" in said

            assert "in the form" in (await call(client, "check_run", run=told["run"]))["decides"]
            # A run that this client started itself is a different matter.
            mine = await call(other, "run_plan", calls=[note(tmp_path / "two")])
            assert (
                await call(other, "decide_approval", run=mine["run"], decisions=decision(mine))
            )["status"] == "done"

    assert not (tmp_path / "one").exists()


async def test_a_person_who_declines_denies(era: str, tmp_path: Path) -> None:
    async def answer(form: str) -> types.ElicitResult:
        await read_by_a_person()
        return types.ElicitResult(action="decline")

    async with in_memory(configured(tmp_path), era, **person(answer)) as client:
        done = await call(client, "run_plan", calls=[note(tmp_path / "one")])
        assert "denied by the person at the client: the person declined the form" in json.dumps(
            done["errors"]
        )
        assert "decide_approval" not in await all_tools(client)


# -- at the terminal -------------------------------------------------------------------------------


async def waiting_run(configuration: Path, call_: dict[str, Any]) -> dict[str, Any]:
    async with in_memory(configuration, "auto") as client:
        return await call(client, "run_plan", calls=[call_])


async def ideabridge(*words: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = preloaded.python(BIN / "ideabridge", *map(str, words))
    return await anyio.run_process(command, input=given, check=False)


async def test_answers_from_a_pipe_are_no_answers_of_a_person(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    told = await waiting_run(configuration, note(tmp_path / "one"))
    ended = await ideabridge("approvals", "decide", "--config", configuration, given=b"y\n" * 100)
    assert ended.returncode == 2
    assert b"without a terminal" in ended.stderr
    for words in (["resume", told["run"]], ["run", "-"]):
        if words[0] == "run":
            given = json.dumps({"calls": [note(tmp_path / "two")]}).encode()
        else:
            given = b"y\n" * 100
        ended = await ideabridge(*words, "--config", configuration, given=given)
        assert ended.returncode == 4, ended.stderr.decode()

    assert not (tmp_path / "one").exists()
    assert not (tmp_path / "two").exists()


async def test_the_terminal_shows_all_of_a_call_and_obeys_nothing_in_it(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    hidden = "\x1b[2J\x1b[8m\r\u202e\U000e0041\u3164\u200b"
    words = "# harmless" + "." * 20_000 + hidden + " " * 300 + "rm -rf ~"
    told = await waiting_run(configuration, note(tmp_path / "one", words))
    ended = await ideabridge("approvals", "list", told["run"], "--config", configuration)
    shown = ended.stdout.decode()
    assert ended.returncode == 0
    assert not {one for one in hidden if not one.isprintable() or one == "\u3164"} & set(shown)
    assert " " * 100 not in shown
    assert "." * 20_000 in shown.replace("\n", "").replace("    ", "")
    assert "\\u202e\\udb40\\udc41\\u3164\\u200b" in shown
    assert 'rm -rf ~"' in shown


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals there")
@pytest.mark.parametrize("lazy", [False, True])
def test_the_person_at_a_terminal_sees_all_of_a_call_or_a_plan(lazy: bool, tmp_path: Path) -> None:
    """The drawing of a plan shortens names and values, so it is not all that is shown."""
    from tests.cli.terminal import Terminal

    configuration = configured(tmp_path)
    words = "# harmless" + "." * 700 + "\x1b[2J\u202e\U000e0041" + "rm -rf ~"
    (tmp_path / "plan.json").write_text(json.dumps({"calls": [note(tmp_path / "one", words)]}))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [
        "run",
        str(tmp_path / "plan.json"),
        "--config",
        str(configuration),
        *(["--lazy"] if lazy else []),
    ]
    terminal = Terminal(elsewhere, command)
    terminal.read_until("e(dit): ")
    shown = terminal.seen
    terminal.type("n no")
    code, _ = terminal.end()
    assert code == 1
    lines = shown.replace("\r", "").split("\n")
    assert '.\\u001b[2J\\u202e\\udb40\\udc41rm -rf ~"' in "".join(
        line.strip().removeprefix("| ") for line in lines
    )
    # No text from outside begins a line that the terminal itself produces.
    assert not [line for line in lines if line.startswith(".")]
    with Store.open(tmp_path / "ideas.sqlite") as store:
        [run] = store.runs.newest(caller=SEES_ALL)

    assert journaled(tmp_path, run.id) == [{"kind": "person", "via": "terminal", "user": "local"}]
