"""Rules hold for direct calls of exposed tools, and every direct call is recorded."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client, types

from ideabridge.bridge.store.direct_calls import MAX_AGE_S, MAX_ROWS, DirectCall
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.main import main
from ideabridge.server.serve import link_to
from tests import preloaded
from tests.server.serving import (
    BIN,
    ERAS,
    all_tools,
    call,
    configured,
    http_process,
    in_memory,
    listening,
    over_stdio,
    plain,
    refused,
    structured,
    text,
)
from tests.ui.serving import without_breaks

pytestmark = pytest.mark.anyio

RULES: dict[str, Any] = {
    "rules": [
        {"tool": "git.delete_*", "then": "deny", "why": "nobody deletes here"},
        {"tool": "WRITE_*", "then": "ask"},
        {"module": "git", "tool": "Commit", "then": "ask"},
    ]
}
LITERAL = "†input.secret and ††"


def guarded(folder: Path, **top: Any) -> Path:
    servers = {"Git": plain(folder, "Git", "Delete_Repo", "commit", "status")}
    return configured(
        folder, mcpServers=servers, expose=["modules", "tools"], **{"approval": RULES, **top}
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("direct")
    with http_process(guarded(folder)) as url:
        yield url, folder


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def recorded(folder: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(folder / "ideas.sqlite")) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM direct_calls ORDER BY number")]


def stored(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("ideas.sqlite*"))


def person(action: str, **content: Any) -> dict[str, Any]:
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action=action, content=content or None)  # pyright: ignore[reportArgumentType]

    return {"elicitation_callback": answer}


async def test_a_denied_tool_cannot_be_called_directly(served: tuple[str, Path], era: str) -> None:
    async with Client(served[0], mode=era, read_timeout_seconds=60) as client:
        said = await refused(client, "delete_repo", x="all")
        assert "denied by the configuration" in said
        assert "nobody deletes here" in said
        # If no rule applies, the host decides for itself.
        assert json.loads(text(await client.call_tool("status", {"x": "now"})))["tool"] == "status"
        assert await call(client, "add", a=1, b=2) == {"result": 3}


async def test_a_direct_call_that_asks_waits_for_a_decision(
    served: tuple[str, Path], era: str, tmp_path: Path
) -> None:
    async with Client(served[0], mode=era, read_timeout_seconds=60) as client:
        result = await client.call_tool(
            "write_note", {"path": str(tmp_path / "note"), "text": LITERAL}
        )
        assert result.is_error
        told = structured(result)
        assert told["status"] == "needs_approval"
        assert not (tmp_path / "note").exists()
        (approval,) = told["approvals"]
        assert approval["call"]["text"] == LITERAL
        assert told["run"] in text(result)
        assert approval["approval"] in text(result)
        decisions = [{"approval": approval["approval"], "decision": "approve"}]
        assert (await call(client, "decide_approval", run=told["run"], decisions=decisions))[
            "status"
        ] == "done"
        assert (tmp_path / "note").read_text() == LITERAL


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_direct_call_that_is_approved_by_a_form_answers_as_the_tool_does(
    served: tuple[str, Path], era: str, transport: str, tmp_path: Path
) -> None:
    yes = person("accept", decision="approve")
    client_of = Client(served[0], mode=era, read_timeout_seconds=60, **yes)
    if transport == "stdio":
        client_of = over_stdio(guarded(tmp_path), era, **yes)

    async with client_of as client:
        result = await client.call_tool(
            "write_note", {"path": str(tmp_path / "note"), "text": LITERAL}
        )
        assert not result.is_error, text(result)
        assert structured(result) == {"result": len(LITERAL)}
        assert (tmp_path / "note").read_text() == LITERAL
        result = await client.call_tool("commit", {"x": LITERAL})
        assert json.loads(text(result)) == {"tool": "commit", "arguments": {"x": LITERAL}}
        assert result.structured_content is None


async def test_a_direct_call_that_a_person_denies_does_not_run(
    served: tuple[str, Path], era: str, tmp_path: Path
) -> None:
    no = person("accept", decision="deny", reason="not today")
    async with Client(served[0], mode=era, read_timeout_seconds=60, **no) as client:
        assert "not today" in await refused(
            client, "write_note", path=str(tmp_path / "note"), text="x"
        )
    assert not (tmp_path / "note").exists()


async def test_where_the_configuration_asks_for_everything_direct_calls_ask_too(
    tmp_path: Path, era: str
) -> None:
    configuration = guarded(
        tmp_path, approval={"default": "ask", "rules": [{"tool": "add", "then": "allow"}]}
    )
    async with in_memory(configuration, era) as client:
        result = await client.call_tool("status", {"x": "now"})
        assert structured(result)["status"] == "needs_approval"
        assert await call(client, "add", a=1, b=2) == {"result": 3}


async def test_a_rule_that_asks_by_the_exposed_name_alone_lets_no_call_through(
    tmp_path: Path,
) -> None:
    long = "read_" + "x" * 60
    reads = {"name": long, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    servers = {"Git": plain(tmp_path, "Git", reads)}
    configuration = configured(tmp_path, mcpServers=servers, expose=["modules"])
    async with in_memory(configuration, "legacy") as client:
        (exposed,) = [name for name in await all_tools(client) if name.startswith("read_x")]
        assert not (await client.call_tool(exposed, {})).is_error

    rules = {"rules": [{"tool": exposed, "then": "ask"}]}
    configuration = configured(tmp_path, mcpServers=servers, expose=["modules"], approval=rules)
    async with in_memory(configuration, "legacy") as client:
        assert "Write the rule for the tool's own name" in await refused(client, exposed)


async def test_a_direct_call_that_asks_takes_no_meta_properties(
    served: tuple[str, Path], era: str
) -> None:
    async with Client(served[0], mode=era, read_timeout_seconds=60) as client:
        assert "no parameter '_each'" in await refused(
            client, "commit", _each=["a", "b"], x="†item"
        )


async def test_every_direct_call_is_recorded(
    tmp_path: Path, era: str, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "correct-horse-7-battery"
    servers = {
        "Git": {**plain(tmp_path, "Git", "Delete_Repo", "status"), "env": {"API_TOKEN": secret}}
    }
    configuration = configured(
        tmp_path, mcpServers=servers, expose=["modules", "tools"], approval=RULES
    )
    began = time.time()
    info = types.Implementation(name=f"host with {secret}", version="1.2")
    with http_process(configuration) as url:
        async with Client(url, mode=era, read_timeout_seconds=60, client_info=info) as client:
            await client.call_tool("status", {"x": secret})
            await client.call_tool("status", {"x": "[secret:API_TOKEN]"})
            await refused(client, "delete_repo", x="all")
            await refused(client, "fail", message="bad luck")
            asked = structured(
                await client.call_tool("write_note", {"path": str(tmp_path / "n"), "text": "x"})
            )
            # Own tools leave runs behind, so they are not direct calls.
            await call(client, "check_run")

    rows = recorded(tmp_path)
    assert [(one["name"], one["module"], one["tool"], one["outcome"]) for one in rows] == [
        ("status", "Git", "status", "ok"),
        ("status", "Git", "status", "ok"),
        ("delete_repo", "Git", "Delete_Repo", "denied"),
        ("fail", None, "fail", "error"),
        ("write_note", None, "write_note", "asked"),
    ]
    assert rows[0]["parameters"] == rows[1]["parameters"] != rows[2]["parameters"]
    assert [one["run"] for one in rows] == [None, None, None, None, asked["run"]]
    assert rows[0]["bytes_in"] == len(json.dumps({"x": secret}, separators=(",", ":")))
    assert rows[0]["bytes_out"] > 20
    assert all(began - 1 <= one["at"] <= time.time() and 0 <= one["seconds"] < 60 for one in rows)
    assert {one["caller"] for one in rows} == {"local"}
    assert {one["client"] for one in rows} == {"host with [secret:API_TOKEN] 1.2"}
    # In the later era, there are no sessions: each request is independent.
    assert all(bool(one["session"]) == (era == "legacy") for one in rows)
    assert secret.encode() not in stored(tmp_path)
    store = ["--store", str(tmp_path / "ideas.sqlite")]
    capsys.readouterr()
    assert (
        await anyio.to_thread.run_sync(main, ["runs", "direct", "--json", "--limit", "2", *store])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["calls"]] == ["write_note", "fail"]
    words = ["runs", "direct", "--json", "--after", told["next"], *store]
    assert await anyio.to_thread.run_sync(main, words) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["calls"]] == ["delete_repo", "status", "status"]
    assert await anyio.to_thread.run_sync(main, ["runs", "direct", *store]) == 0
    assert "denied" in capsys.readouterr().out


async def test_direct_calls_are_recorded_while_the_server_runs(tmp_path: Path) -> None:
    with http_process(guarded(tmp_path)) as url:
        async with Client(url, mode="legacy", read_timeout_seconds=60) as client:
            await client.call_tool("status", {"x": "now"})
            with anyio.fail_after(20):
                while not recorded(tmp_path):
                    await client.call_tool("status", {"x": "now"})


def test_the_record_is_bounded_in_rows_and_age(tmp_path: Path) -> None:
    def made(at: float, count: int) -> list[DirectCall]:
        one = DirectCall(
            at, "ada", "", "", "status", "Git", "status", "0" * 32, 0.1, "ok", None, 1, 2
        )
        return [one] * count

    with Store.open(tmp_path / "store.sqlite") as store:
        store.direct_calls.add(made(1.0, 10), 1.0)
        store.direct_calls.add(made(2.0, 5), 2.0 + MAX_AGE_S)
        assert [one.at for one in store.direct_calls.page(50, caller=SEES_ALL).items] == [2.0] * 5
        store.direct_calls.add(made(3.0, MAX_ROWS), 3.0)
        store.direct_calls.add(made(4.0, 1), 4.0)
        page = store.direct_calls.page(500, caller=SEES_ALL)
        assert page.items[0].at == 4.0
        assert page.items[0].number == MAX_ROWS + 16
        assert store.direct_calls.page(5, "17", caller=SEES_ALL).items == []
        assert store.direct_calls.page(5, caller="bob").items == []


def test_a_denied_tool_cannot_be_called_at_the_command_line_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--config", str(guarded(tmp_path)), "--project", str(tmp_path / "elsewhere")]
    (tmp_path / "elsewhere").mkdir()
    assert main(["servers", "test", "Git", "Delete_Repo", "-i", "x=all", *options]) == 2
    assert "nobody deletes here" in capsys.readouterr().err
    assert main(["servers", "test", "Git", "commit", "-i", "x=all", *options]) == 2
    assert "says ask for tool 'commit'" in capsys.readouterr().err
    assert main(["servers", "test", "Git", "commit", "-i", "x=all", "--yes", *options]) == 0


# -- only persons decide ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def persons(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path]]:
    """A server with the page where only persons decide: its URL, and the folder of its store."""
    folder = tmp_path_factory.mktemp("persons")
    configuration = guarded(folder, approval={"by": "person"})
    start = ["serve", "--http", "127.0.0.1:0", "--ui", "--config", str(configuration)]
    with listening(preloaded.python(BIN / "ideabridge", *start)) as url:
        yield url, folder


@asynccontextmanager
async def asking(url: str | None, folder: Path, era: str, **keys: Any) -> AsyncGenerator[Client]:
    """A client of the server `persons` at its URL; without one, of a server over stdio of its own
    in the folder.
    """
    if url is None:
        configuration = guarded(folder, approval={"by": "person"})
        async with over_stdio(configuration, era, **keys) as client:
            yield client
        return

    async with Client(url, mode=era, read_timeout_seconds=60, **keys) as client:
        yield client


async def decide(folder: Path, decision: str, run: str, *more: str) -> None:
    """A person at a terminal decides."""
    options = ["--config", str(folder / "ideabridge.json"), *more]
    command = preloaded.python(BIN / "ideabridge", "approvals", "decide", decision, run, *options)
    ended = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode in (0, 1), ended.stderr.decode()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_where_only_persons_decide_a_direct_call_waits_for_one(
    persons: tuple[str, Path], tmp_path: Path, era: str, transport: str
) -> None:
    given = {"path": str(tmp_path / "note"), "text": LITERAL}
    url, folder = persons if transport == "http" else (None, tmp_path)
    async with asking(url, folder, era) as client:
        # As in a plan, a tool that only reads runs, and a tool that does not say so asks, wherever
        # it is.
        assert await call(client, "add", a=1, b=2) == {"result": 3}
        told = structured(await client.call_tool("commit", {"x": str(tmp_path)}))
        assert told["status"] == "needs_approval"
        first = await client.call_tool("write_note", given)
        assert first.is_error
        run = structured(first)["run"]
        assert "only the person can decide (approval.by in the configuration)" in text(first)
        assert "ideabridge approvals decide" in text(first)
        assert ("on the page http://" in text(first)) is (transport == "http")
        assert (
            "after the decision, call write_note again with the same arguments to get its result"
            in text(first)
        )
        # Sending the same call again leads to the same run, even at the same time. With other
        # arguments, it is another call.
        again: list[str] = []

        async def repeat() -> None:
            again.append(structured(await client.call_tool("write_note", given))["run"])

        async with anyio.create_task_group() as group:
            group.start_soon(repeat)
            group.start_soon(repeat)
        assert again == [run, run]
        other = structured(await client.call_tool("write_note", {**given, "text": "other"}))["run"]
        assert other != run
        assert not (tmp_path / "note").exists()
        await decide(folder, "approve", run)
        done = await client.call_tool("write_note", given)
        assert (done.is_error, structured(done)) == (False, {"result": len(LITERAL)})
        assert (tmp_path / "note").read_text() == LITERAL
        # The call has been answered, so sending it again is a new call.
        anew = structured(await client.call_tool("write_note", given))
        assert anew["status"] == "needs_approval"
        assert anew["run"] not in (run, other)
        await decide(folder, "deny", anew["run"], "--reason", "once is enough")
        assert "once is enough" in await refused(client, "write_note", **given)
        assert structured(await client.call_tool("write_note", given))["run"] not in (
            run,
            other,
            anew["run"],
        )


async def test_the_same_call_at_once_asks_once(
    persons: tuple[str, Path], tmp_path: Path, era: str
) -> None:
    runs: list[str] = []
    async with asking(*persons, era) as client, anyio.create_task_group() as group:

        async def write() -> None:
            given = {"path": str(tmp_path / "note"), "text": "x"}
            runs.append(structured(await client.call_tool("write_note", given))["run"])

        for _ in range(5):
            group.start_soon(write)

    assert len(runs) == 5
    assert len({*runs}) == 1


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_where_only_persons_decide_a_form_asks_about_a_direct_call(
    persons: tuple[str, Path], tmp_path: Path, era: str, transport: str
) -> None:
    given = {"path": str(tmp_path / "note"), "text": LITERAL}
    url, folder = persons if transport == "http" else (None, tmp_path)
    async with asking(url, folder, era, **person("accept", decision="approve")) as client:
        assert await call(client, "write_note", **given) == {"result": len(LITERAL)}
        made = await client.call_tool("commit", {"x": str(tmp_path)})
        assert json.loads(text(made))["tool"] == "commit"


async def test_rules_hold_where_only_persons_decide(tmp_path: Path, era: str) -> None:
    allow = {
        "by": "person",
        "rules": [{"tool": "commit", "then": "allow"}, {"tool": "delete*", "then": "deny"}],
    }
    async with in_memory(guarded(tmp_path, approval=allow), era) as client:
        assert json.loads(text(await client.call_tool("commit", {"x": "all"})))["tool"] == "commit"
        assert "denied by the configuration" in await refused(client, "delete_repo", x="all")
        assert (
            structured(await client.call_tool("status", {"x": "now"}))["status"] == "needs_approval"
        )

    async with in_memory(
        guarded(tmp_path, approval={"by": "person", "default": "allow"}), era
    ) as client:
        assert json.loads(text(await client.call_tool("commit", {"x": "all"})))["tool"] == "commit"


async def test_direct_calls_stand_on_the_page(
    persons: tuple[str, Path], tmp_path: Path, era: str
) -> None:
    url, folder = persons
    base = url.removesuffix("/mcp")
    given = {"path": str(tmp_path / "note"), "text": LITERAL}
    async with asking(url, folder, era) as client:
        await call(client, "add", a=1, b=2)
        run = structured(await client.call_tool("write_note", given))["run"]
        async with httpx.AsyncClient(base_url=base, follow_redirects=True) as web:
            with Store.open(folder / "ideas.sqlite") as store:
                await web.get(link_to("/ui/", store.owner_links))

            inbox = without_breaks((await web.get("/ui/approvals")).text)
            assert "a direct call of write_note" in inbox
            listed = without_breaks((await web.get("/ui/runs")).text)
            assert "a direct call of write_note" in listed
            assert f'"/ui/runs/{run}"' in listed
            secret = found_in(inbox, r'name="secret" value="([^"]+)"')
            which = found_in(inbox, rf'name="which" value="({run}:[^"]+)"')
            seal = found_in(
                inbox, rf'value="{which}">\s*<input type="hidden" name="seal" value="([^"]+)"'
            )
            form = {"secret": secret, "which": which, "decision": "approve", "seal": seal}
            decided = await web.post("/ui/approvals/decide", data=form, headers={"origin": base})
            assert decided.status_code == 200
            assert await call(client, "write_note", **given) == {"result": len(LITERAL)}
            # It answers when the direct calls before it are written.
            await call(client, "search_ideas")
            page = (await web.get("/ui/runs/direct")).text
            assert f'href="/ui/runs/{run}"' in page
            assert "Add" in page


def found_in(page: str, pattern: str) -> str:
    match = re.search(pattern, page)
    assert match is not None, page
    return match[1]
