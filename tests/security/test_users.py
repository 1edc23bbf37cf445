"""Named users of one server: tokens, and what one user tries to get of another's."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client
from typer.testing import CliRunner

from ideabridge.bridge.configuration import load_workspace
from ideabridge.bridge.store.errors import UserError
from ideabridge.bridge.store.idea import Idea, IdeaMeta, NewPublication
from ideabridge.bridge.store.sqlite import sqlite3
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import read_expiry
from ideabridge.server.callers import token_caller
from ideabridge.server.cli.app import app
from tests.server.serving import (
    ERAS,
    Gate,
    Heard,
    all_tools,
    call,
    configured,
    http_process,
    over_stdio,
    refused,
    text,
)
from tests.trusting import write_trusted

pytestmark = pytest.mark.anyio

OWNER_TOKEN: Final = "the-token-that-was-before"
NAMES: Final = ("alice", "bob", "ada")
PLAN: Final[dict[str, Any]] = {
    "calls": [{"_tool": "add", "a": "†input.a", "b": 2, "_outputPath": "s"}],
    "input": {"a": 1},
    "output": {"sum": "†state.s"},
}
PING: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Team:
    """A server, its store, and a token of each user."""

    def __init__(self, url: str, folder: Path, names: tuple[str, ...] = NAMES) -> None:
        self.url = url
        self.folder = folder
        self.path = folder / "ideas.sqlite"
        with Store.open(self.path) as store:
            self.tokens = {
                name: store.users.add_token(
                    store.users.add(name, "admin" if name == "ada" else "member").name
                )[1]
                for name in names
            }

    @asynccontextmanager
    async def client(self, who: str, mode: str = "auto", **keys: Any) -> AsyncGenerator[Client]:
        async with (
            httpx2.AsyncClient(headers=self.headers(who), timeout=20) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode, **keys) as client,
        ):
            yield client

    def headers(self, who: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens.get(who, who)}"}

    async def status(self, token: str) -> int:
        headers = {**self.headers(token), "accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(headers=headers) as http:
            return (await http.post(self.url, json=PING)).status_code


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Generator[Team]:
    folder = tmp_path_factory.mktemp("team")
    with http_process(configured(folder), IDEABRIDGE_TOKEN=OWNER_TOKEN) as url:
        yield Team(url, folder)


async def published(client: Client, name: str, **keys: Any) -> str:
    run = str((await call(client, "run_plan", **PLAN))["run"])
    await call(client, "publish_idea", idea=run, name=name, answer="plan", **keys)
    return run


# -- tokens ----------------------------------------------------------------------------------------


def test_a_token_is_kept_as_a_hash_alone_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.sqlite") as store:
        users = store.users
        users.add("alice")
        first, second = (
            users.add_token("alice", "laptop")[1],
            users.add_token("alice", "", read_expiry("12h"))[1],
        )
        assert first != second
        for one in (first, second):
            known = users.verify(one)
            assert known is not None
            assert known[0].caller == "user:alice"
            for wrong in (
                one[:-1],
                one[:-1] + ("A" if one[-1] != "A" else "B"),
                one.upper(),
                f" {one}",
                one + "\n",
            ):
                assert users.verify(wrong) is None

        # This is the id of one token with the secret of the other.
        assert users.verify(first[:17] + second[17:]) is None
        store.back_up(tmp_path / "copy")
        dump = (tmp_path / "copy").read_bytes()
        assert b"user_tokens" in dump
        assert first[17:].encode() not in dump
        assert second[17:].encode() not in dump
        users.revoke(first)
        assert users.verify(first) is None
        assert users.verify(second) is not None
        users.change("alice", state="disabled")
        assert users.verify(second) is None
        users.change("alice", state="active")
        assert users.verify(second) is not None
        users.change("alice", state="removed")
        assert users.verify(second) is None
        with pytest.raises(UserError, match="never given to another person"):
            users.add("alice")

        with pytest.raises(UserError, match="no user 'alice'"):
            users.change("alice", state="active")

    with closing(sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE users SET state = 'active'")
        connection.execute(
            "UPDATE user_tokens SET revoked = NULL, expires = '2026-01-01T00:00:00.000+00:00'"
        )

    with Store.open(tmp_path / "s.sqlite") as store:
        assert store.users.verify(second) is None


@pytest.mark.parametrize(
    "name", ["", "Alice", "al ice", "a@b", "me", "all", "local", "x" * 49, "аlice", "a,b", "-a"]
)
def test_names_that_could_be_taken_for_others_are_refused(name: str, tmp_path: Path) -> None:
    with (
        Store.open(tmp_path / "s.sqlite") as store,
        pytest.raises(UserError, match="cannot be a user's name"),
    ):
        store.users.add(name)


def test_the_command_line_shows_a_token_once(tmp_path: Path) -> None:
    def ran(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "s.sqlite")])
        assert result.exit_code == 0, result.output
        return result.stdout

    token = ran("users", "add", "alice", "--role", "admin").strip()
    assert token.startswith("ibt_")
    rotated = ran("users", "token", "add", "alice", "--label", "laptop").strip()
    listed = json.loads(ran("users", "token", "list", "--json"))["tokens"]
    assert [one["label"] for one in listed] == ["first", "laptop"]
    assert (
        json.loads(ran("users", "token", "revoke", listed[0]["id"], "--json"))["state"] == "revoked"
    )
    shown = "".join(
        ran(*words)
        for words in (("users", "list"), ("users", "list", "--json"), ("users", "token", "list"))
    )
    with Store.open(tmp_path / "s.sqlite") as store:
        assert store.users.verify(token) is None
        assert store.users.verify(rotated) is not None

    assert token[17:] not in shown
    assert rotated[17:] not in shown
    for state in ("disable", "enable", "remove"):
        ran("users", state, "alice")

    assert "alice" not in ran("users", "list")


async def _ask_until_refused(client: Client) -> None:
    while True:
        await client.list_tools(cache_mode="bypass")


async def test_from_the_first_user_on_every_request_needs_a_token(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    with http_process(configuration) as url:
        team = Team(url, tmp_path, ())
        async with Client(streamable_http_client(url)) as client:
            run = (await call(client, "run_plan", **PLAN))["run"]
            with Store.open(tmp_path / "ideas.sqlite") as store:
                store.users.add("alice")
                team.tokens["alice"] = store.users.add_token("alice")[1]
            # The server notices its first user within half a second.
            with anyio.fail_after(20), pytest.raises(MCPError, match="error response"):
                await _ask_until_refused(client)

        assert await team.status("nobody-knows-this-token") == 401
        async with team.client("alice") as client:
            assert "unknown run" in await refused(client, "check_run", run=run)

        with Store.open(tmp_path / "ideas.sqlite") as store:
            store.users.change("alice", state="removed")

        assert await team.status("alice") == 401
        async with httpx2.AsyncClient() as http:
            assert (await http.post(url, json=PING)).status_code == 401

    async with over_stdio(configuration, "auto") as owner:
        assert [one["run"] for one in (await call(owner, "check_run"))["runs"]] == [run]


async def test_rotation_keeps_what_is_a_users_and_the_token_from_before_stays_one_user(
    team: Team,
) -> None:
    async with team.client("alice") as client:
        run = await published(client, "rotated")

    with Store.open(team.path) as store:
        old, team.tokens["alice"] = team.tokens["alice"], store.users.add_token("alice", "new")[1]
        store.users.revoke(old)

    assert await team.status(old) == 401
    async with team.client("alice") as client:
        assert (await call(client, "check_run", run=run))["status"] == "done"
        assert "rotated" in await all_tools(client)

    async with team.client(OWNER_TOKEN) as client:
        own = await published(client, "of_the_old_token")
        assert "unknown run" in await refused(client, "check_run", run=run)

    with Store.open(team.path) as store:
        record = store.runs.get(own)
        assert record is not None
        assert record.caller == token_caller(OWNER_TOKEN)


async def test_who_is_disabled_hears_nothing_more_on_streams_that_are_open(team: Team) -> None:
    """A stream may be open for days; it ends with the token, at the server and not when the
    client asks next.
    """
    with Store.open(team.path) as store:
        store.users.add("eve")
        team.tokens["eve"] = store.users.add_token("eve")[1]

    headers = {
        **team.headers("eve"),
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-06-18",
    }
    begin = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        opened = await http.post(team.url, json=begin)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        await http.post(
            team.url,
            json={"jsonrpc": "2.0", "method": "notifications/initialized"},
            headers=session,
        )
        with anyio.fail_after(20):
            async with http.stream("GET", team.url, headers=session) as stream:
                assert stream.status_code == 200
                with Store.open(team.path) as store:
                    store.users.change("eve", state="disabled")
                async for _ in stream.aiter_bytes():
                    pass

        assert (await http.post(team.url, json=PING, headers=session)).status_code == 401


# -- one user tries another's ----------------------------------------------------------------------


async def test_a_session_of_one_user_is_nobody_elses(team: Team) -> None:
    async with (
        httpx2.AsyncClient(headers=team.headers("alice"), timeout=20) as http,
        Client(streamable_http_client(team.url, http_client=http), mode="legacy") as client,
    ):
        await call(client, "run_plan", **PLAN)
        sessions: list[str] = []

        async def note(request: httpx2.Request) -> None:
            sessions.append(request.headers["mcp-session-id"])

        http.event_hooks = {"request": [note]}
        await client.list_tools(cache_mode="bypass")
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-06-18",
        }
        stolen = {**headers, "mcp-session-id": sessions[-1]}
        for who in ("bob", "ada", OWNER_TOKEN):
            async with httpx2.AsyncClient(headers={**stolen, **team.headers(who)}) as thief:
                for asked in ("POST", "GET", "DELETE"):
                    answer = await thief.request(
                        asked, team.url, json=PING if asked == "POST" else None
                    )
                    assert answer.status_code == 404, (asked, answer.text)
        # None of this has ended the session.
        await client.list_tools(cache_mode="bypass")


async def test_a_sealed_state_of_one_user_is_of_no_use_to_another(team: Team) -> None:
    """The approvals of a run go out as forms; another user answers them with the very state
    the server sealed.
    """
    note = team.folder / "sealed.txt"
    calls = [{"_tool": "write_note", "path": str(note), "text": "written"}]
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    params: dict[str, Any] = {"name": "run_plan", "arguments": {"calls": calls}, "_meta": meta}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "run_plan",
    }

    async def ask(who: str, more: dict[str, Any]) -> str:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, **more}}
        async with httpx2.AsyncClient(headers={**headers, **team.headers(who)}, timeout=20) as http:
            return (await http.post(team.url, json=message)).text

    asked = await ask("alice", {})
    assert "requestState" in asked, asked
    start = asked.index("{")
    result = json.loads(asked[start : asked.rindex("}") + 1])["result"]
    [key] = result["inputRequests"]
    fields = result["inputRequests"][key]["params"]["requestedSchema"]["properties"]
    content = {name: "approve" for name, field in fields.items() if "approve" in json.dumps(field)}
    reply = {
        "requestState": result["requestState"],
        "inputResponses": {key: {"action": "accept", "content": content}},
    }
    for who in ("bob", "ada", OWNER_TOKEN):
        answer = await ask(who, reply)
        assert "error" in answer.lower(), answer
        assert not note.exists()

    answer = await ask("alice", reply)
    assert note.read_text() == "written", answer


async def test_no_user_cancels_the_request_of_another(team: Team) -> None:
    """Requests of 2026-07-28 have no session: ids are counted by each client, and easily guessed.
    The SDK passes no such notification on.
    """
    gate = Gate(team.folder, "gate_of_alice")
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
    }
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    async def cancel(who: str) -> None:
        stop = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 77, "_meta": meta},
        }
        sent = {**headers, "mcp-method": "notifications/cancelled", **team.headers(who)}
        async with httpx2.AsyncClient(headers=sent) as http:
            assert (await http.post(team.url, json=stop)).status_code in (200, 202)

    arguments = {"calls": [{"_tool": "hold", "gate": str(gate.path)}]}
    asked = {
        "jsonrpc": "2.0",
        "id": 77,
        "method": "tools/call",
        "params": {"name": "run_plan", "arguments": arguments, "_meta": meta},
    }
    await cancel("bob")
    sent = {**headers, "mcp-method": "tools/call", "mcp-name": "run_plan", **team.headers("alice")}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=20) as http,
        team.client("alice") as client,
        anyio.create_task_group() as group,
    ):
        before = runs = (await call(client, "check_run"))["runs"]
        group.start_soon(partial(http.post, team.url, json=asked))
        with anyio.fail_after(20):
            while runs == before:
                runs = (await call(client, "check_run"))["runs"]

        # Alice's host disappears without a word, but her run continues.
        group.cancel_scope.cancel()

    await cancel("bob")
    gate.open()
    async with team.client("alice") as client:
        run = (await call(client, "check_run"))["runs"][0]["run"]
        assert (await call(client, "check_run", run=run))["status"] == "done"

    gate.close()


@pytest.mark.parametrize("mode", ERAS)
async def test_who_listens_hears_of_nothing_that_is_published_to_others(
    team: Team, mode: str
) -> None:
    """Both on one server, and both ask about the same name."""
    name = f"listened_{mode}"
    heard = Heard()
    others = Heard()
    async with (
        team.client("alice", mode, message_handler=heard) as alice,
        team.client("bob", mode, message_handler=others) as bob,
    ):
        await published(alice, name)
        async with anyio.create_task_group() as group:
            ready = {"alice": anyio.Event(), "bob": anyio.Event()}

            async def listen(who: str, client: Client, hear: Heard) -> None:
                async with client.listen(
                    tools_list_changed=True, resource_subscriptions=[f"idea://{name}"]
                ) as stream:
                    ready[who].set()
                    async for event in stream:
                        hear.note(type(event).__name__)

            for who, client, hear in (("alice", alice, heard), ("bob", bob, others)):
                if mode == "auto":
                    group.start_soon(listen, who, client, hear)
                    await ready[who].wait()
                else:
                    request = types.SubscribeRequest(
                        params=types.SubscribeRequestParams(uri=f"idea://{name}")
                    )
                    await client.session.send_request(request, types.EmptyResult)

            updated = "ResourceUpdated" if mode == "auto" else "notifications/resources/updated"
            if mode == "auto":
                changed = "ToolsListChanged"
            else:
                changed = "notifications/tools/list_changed"

            before = others.methods.count(changed)
            await published(alice, name)
            await heard.until(updated)
            await others.until(changed, before + 1)
            # Make another change, because it is announced after everything that the first one
            # caused.
            await published(bob, f"of_bob_{mode}")
            await others.until(changed, before + 2)
            assert updated not in others.methods
            group.cancel_scope.cancel()


async def test_others_ideas_do_not_take_the_places_of_ones_own_in_a_search(team: Team) -> None:
    async with team.client("bob") as bob, team.client("alice") as alice:
        mine = (
            await call(
                bob, "run_plan", calls=[{"_tool": "count_words", "text": "a rare crowding word"}]
            )
        )["run"]
        await published(bob, "crowding_of_bob")
        for number in range(30):
            plan = {"calls": [{"_tool": "count_words", "text": f"crowding {number}"}]}
            run = (await call(alice, "run_plan", **plan))["run"]
            if number < 20:
                given = {"answer": "recorded", "description": "Crowding crowding."}
                await call(alice, "publish_idea", idea=run, name=f"crowding_{number}", **given)
        found = await call(bob, "search_ideas", words="count_words", limit=2)
        assert mine in [one.get("run") for one in found["ideas"]]
        newest = await call(bob, "search_ideas", tool="count_words", limit=2)
        assert [one["run"] for one in newest["ideas"]] == [mine]
        tools = await call(bob, "search_tools", words="crowding", limit=2)
        assert "crowding_of_bob" in [one["name"] for one in tools["tools"]]


async def test_an_idea_that_was_imported_is_the_owners_until_it_is_published(team: Team) -> None:
    with Store.open(team.path) as store:
        idea = Idea(
            [{"role": "user", "content": "the imported secret"}],
            {"type": "string"},
            {"calls": [], "output": "x"},
        )
        imported = store.ideas.save(idea, IdeaMeta(title="the imported secret"))
    for who, sees in (("alice", False), ("ada", True), (OWNER_TOKEN, True)):
        async with team.client(who) as client:
            assert (
                "imported" in str(await call(client, "search_ideas", words="imported secret"))
            ) is sees
            if not sees:
                for ref in (imported, imported[:8]):
                    told = await refused(client, "solve", task="Say it.", idea=ref)
                    assert told == (
                        await refused(client, "solve", task="Say it.", idea="0" * len(ref))
                    ).replace("0" * len(ref), ref)


async def test_who_has_the_same_idea_is_told_when_they_made_it_and_not_when_others_did(
    team: Team,
) -> None:
    plan = {"calls": [{"_tool": "count_words", "text": "both of them"}]}
    async with team.client("alice") as alice, team.client("bob") as bob:
        first, second = [(await call(one, "run_plan", **plan))["run"] for one in (alice, bob)]
        with Store.open(team.path) as store:
            [made] = store.ideas.of_run(first)
            [again] = store.ideas.of_run(second)
            assert made.id == again.id
        found = await call(bob, "search_ideas", words="count_words", limit=100)
        [told] = [one for one in found["ideas"] if one["idea"] == made.id]
        assert told["run"] == second
        assert told["time"] == again.meta.time != made.meta.time


# -- sharing ---------------------------------------------------------------------------------------


async def seen(team: Team, who: str, name: str) -> bool:
    async with team.client(who) as client:
        listed = name in await all_tools(client)
        answer = await client.call_tool(name, {"a": 5})
        assert answer.is_error is not listed, text(answer)
        try:
            await client.read_resource(f"idea://{name}")
            read = True
        except MCPError:
            read = False
        assert read is listed
        return listed


async def test_an_idea_is_published_to_oneself_to_users_or_to_all(team: Team) -> None:
    async with team.client("alice") as alice:
        for to, who in (
            (None, []),
            ("me", []),
            ("bob", ["bob"]),
            ("ada, bob", ["ada", "bob"]),
            ("all", [*NAMES]),
        ):
            name = f"shared_{'_'.join(who) or 'not'}_{to == 'me'}".lower()
            await published(alice, name, **({} if to is None else {"to": to}))
            for one in (*NAMES, OWNER_TOKEN):
                assert await seen(team, one, name) is (
                    one == "alice" or one in who or to == "all"
                ), (name, one)
        for wrong, why in (
            ("carol", "no user 'carol'"),
            ("me,bob", "expected 'me', 'all'"),
            (" , ", "expected 'me', 'all'"),
        ):
            run = (await call(alice, "run_plan", **PLAN))["run"]
            told = await refused(alice, "publish_idea", idea=run, name="not_shared", to=wrong)
            assert why in told
        assert "not_shared" not in await all_tools(alice)
    async with team.client("bob") as bob:
        definition = (await all_tools(bob))["shared_bob_false"]
        assert "Published by the user alice" in str(definition.description)


async def test_what_is_shared_changes_hands_by_nobody_but_its_owner_and_admins(team: Team) -> None:
    async with team.client("alice") as alice, team.client("bob") as bob, team.client("ada") as ada:
        await published(alice, "kept", to="all")
        await published(alice, "kept_private")
        for client, name in ((bob, "kept"), (bob, "kept_private"), (ada, "kept_private")):
            run = (await call(client, "run_plan", **{**PLAN, "output": "†state.s"}))["run"]
            told = await refused(client, "publish_idea", idea=run, name=name)
            assert "another owner has published" in told
        run = (await call(ada, "run_plan", **{**PLAN, "output": "†state.s"}))["run"]
        assert "who decides who" in await refused(
            ada, "publish_idea", idea=run, name="kept", to="ada"
        )
        assert (await call(ada, "publish_idea", idea=run, name="kept"))["version"] == 2
        # The name still belongs to alice, and is still for everybody.
        assert (await call(bob, "kept", a=1))["result"] == 3
        await published(alice, "kept", to="me")
    for who in ("bob", "ada", OWNER_TOKEN):
        assert not await seen(team, who, "kept")
        async with team.client(who) as client:
            assert "unknown tool" in await refused(client, "kept@1", a=1)


async def test_the_owner_shares_by_the_command_line_and_what_was_for_all_is_taken_back_in_every_version(
    team: Team,
) -> None:
    with Store.open(team.path) as store:
        idea = Idea(
            [{"role": "user", "content": "x"}], {"type": "string"}, {"calls": [], "output": "x"}
        )
        number = store.ideas.save(idea, IdeaMeta())
        told: dict[str, Any] = {
            "description": "Says x.",
            "answer": "recorded",
            "input_schema": None,
        }
        for _ in range(2):
            store.publications.publish(
                NewPublication(
                    name="of_the_owner",
                    idea_id=number,
                    **told,
                    output_schema=None,
                    annotations={},
                    recorded={"input": {}, "output": "x"},
                )
            )

    def share(to: str) -> str:
        words = ["ideas", "share", "of_the_owner", "--to", to, "--store", str(team.path)]
        result = CliRunner().invoke(app, words)
        return result.stdout if result.exit_code == 0 else f"{result.exit_code}"

    async def seeing(version: str = "") -> list[str]:
        found: list[str] = []
        for who in NAMES:
            async with team.client(who) as client:
                if not (await client.call_tool(f"of_the_owner{version}", {})).is_error:
                    found.append(who)
        return found

    assert await seeing() == await seeing("@1") == [*NAMES]
    share("bob")
    assert await seeing() == await seeing("@1") == ["bob"]
    share("me")
    assert await seeing() == await seeing("@1") == []
    assert share("nobody_of_that_name") == "2"
    share("all")
    assert await seeing() == [*NAMES]
    # Sharing a later version does not share an earlier one that was withdrawn.
    assert await seeing("@1") == []


async def test_the_configuration_may_leave_sharing_to_admins(tmp_path: Path) -> None:
    with http_process(configured(tmp_path, users={"share": "admins"})) as url:
        team = Team(url, tmp_path)
        async with team.client("alice") as alice, team.client("ada") as ada:
            run = (await call(alice, "run_plan", **PLAN))["run"]
            for to in ("all", "bob"):
                assert "only admins" in await refused(
                    alice, "publish_idea", idea=run, name="mine", to=to
                )
            await published(alice, "mine", to="me")
            await published(ada, "ours", to="all")
            assert "ours" in await all_tools(alice)


# -- rates -----------------------------------------------------------------------------------------


async def test_who_asks_too_often_is_told_when_to_ask_again_and_others_are_served(
    tmp_path: Path,
) -> None:
    with http_process(configured(tmp_path, users={"requests_per_minute": 20})) as url:
        team = Team(url, tmp_path)
        began = time.monotonic()
        statuses = Counter([await team.status("alice") for _ in range(30)])
        # One more request is allowed every 3 seconds.
        more = int((time.monotonic() - began) / 3) + 1
        assert 30 - 20 - more <= statuses[429] <= 30 - 20
        async with httpx2.AsyncClient(headers=team.headers("alice")) as http:
            answer = await http.post(url, json=PING)
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 3
            assert "20 in 60 s" in answer.json()["error_description"]
        assert await team.status("bob") != 429
        # Nobody can use up another's share with an invalid token.
        assert {await team.status("ibt_" + "0" * 12 + "_" + "x" * 43) for _ in range(30)} == {401}


async def test_one_user_has_so_many_runs_at_work_and_no_more(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    hold = {"calls": [{"_tool": "hold", "gate": str(gate.path)}], "wait_s": 0}
    with http_process(configured(tmp_path, users={"runs": 2})) as url:
        team = Team(url, tmp_path)
        async with team.client("alice") as alice, team.client("bob") as bob:
            runs = [(await call(alice, "run_plan", **hold))["run"] for _ in range(2)]
            assert "2 active runs" in await refused(alice, "run_plan", **hold)
            assert "2 active runs" in await refused(alice, "solve", task="More.")
            await call(bob, "run_plan", **PLAN)
            await call(alice, "check_run", run=runs[0], cancel=True)
            await call(alice, "run_plan", **PLAN)
            await call(alice, "check_run", run=runs[1], cancel=True)

    gate.close()


def test_a_project_file_says_nothing_of_who_may_use_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one that a person has trusted, for its servers say."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    project = tmp_path / "project"
    project.mkdir()
    auth = {"issuer": "https://evil.example", "audience": "x"}
    file = write_trusted(project, {"auth": auth, "users": {"share": "admins"}, "expose": ["tools"]})
    configuration = load_workspace(file, project=project)
    assert configuration.expose == ("tools",)
    assert configuration.auth is None
    assert configuration.users.share == "members"
    assert (
        len([line for line in configuration.refused if "belongs in your own configuration" in line])
        == 2
    )


async def test_more_names_than_anybody_means_are_not_looked_up(team: Team) -> None:
    async with team.client("alice") as alice:
        run = (await call(alice, "run_plan", **PLAN))["run"]
        many = ",".join(f"bob{number}" for number in range(100_000))
        told = await refused(alice, "publish_idea", idea=run, name="for_many", to=many)
        assert "at most 100 names" in told
