"""Profiles: a session sees only its part, and no method and no tool leads out of it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client
from typer.testing import CliRunner

from ideabridge.bridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration
from ideabridge.bridge.errors import DecisionError, PlanError
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.errors import UnknownRunError
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, in_profile
from ideabridge.server import server
from ideabridge.server.cli.app import app
from ideabridge.server.own_tools import OWN_NAMES
from ideabridge.tools.encoding import JSONObject
from tests import preloaded
from tests.modules.starting import Starting
from tests.operations.test_workers import working
from tests.server.serving import (
    ERAS,
    all_tools,
    call,
    configured,
    http_process,
    listening,
    over_stdio,
    plain,
    refused,
    served,
    text,
)
from tests.server.test_skills import AnyResult
from tests.ui.serving import served as page_of

pytestmark = pytest.mark.anyio

REFERENCE: Final = Path(__file__).parents[1] / "conformance" / "reference.py"

PROFILES: Final[dict[str, Any]] = {
    "review": {"servers": ["docs"], "tools": ["docs.*", "add"], "ideas": ["shared_*"]},
    "docs": {"servers": ["docs"]},
    "vault": {"servers": ["vault"]},
}
PING: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
NAMED: Final = "not in profile 'review'"
CURSORS: Final = ("0", "1", "vault", "test_simple_text", "ideas:private_secret")
PLAYGROUND: Final = "/ui/playground"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def configuration(folder: Path, **top: Any) -> Path:
    servers = {
        "docs": plain(folder, "docs", "lookup"),
        "vault": preloaded.module(REFERENCE),
    }
    top = {"expose": ["modules", "tools"], "approval": "allow_all", **top}
    return configured(folder, mcpServers=servers, profiles=PROFILES, **top)


class Outside:
    """A server with profiles, and what a session without a profile left there.

    Attributes:
        url: the address without a profile.
        run: a run that called a tool of the vault.
        waiting: a run that waits for a solution.
        idea: the id of the idea of `run`.
        words: descriptions and contents that only the vault has.
    """

    url: str
    run: str
    waiting: str
    idea: str
    words: set[str]


@pytest.fixture(scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Outside]:
    folder = tmp_path_factory.mktemp("profiles")
    found = Outside()
    with http_process(configuration(folder)) as found.url:
        async with Client(found.url, read_timeout_seconds=20) as client:
            secret = {"_tool": "test_simple_text", "_module": "vault", "_outputPath": "secret"}
            ran = await call(client, "run_plan", calls=[secret], output="†state.secret")
            found.run = ran["run"]
            for name in ("shared_secret", "private_secret"):
                await call(client, "publish_idea", idea=found.run, name=name, description="Tell.")

            hits = (await call(client, "search_ideas", words="secret"))["ideas"]
            found.idea = next(hit["idea"] for hit in hits if hit.get("run") == found.run)
            waiting = await call(client, "solve", task="open it", tools=["test_simple_text"])
            found.waiting = waiting["run"]
            tools = (await all_tools(client)).values()
            found.words = {
                tool.description or "" for tool in tools if tool.name.startswith("test_")
            }
            resources = (await client.list_resources()).resources
            found.words |= {
                entry.description or "" for entry in resources if entry.uri.startswith("test:")
            }
            found.words |= {str(ran["output"]), "test_image_content", "test://watched-resource"}

        found.words = {word for word in found.words if len(word) > 12 and "secret" not in word}
        yield found


@asynccontextmanager
async def within(url: str, mode: str, profile: str = "review") -> AsyncGenerator[Client]:
    async with Client(f"{url}/p/{profile}", mode=mode, read_timeout_seconds=20) as client:
        yield client


class Raw(types.Request[Any, Any]):
    method: str
    params: Any


async def said(client: Client, method: str, params: dict[str, Any]) -> str:
    """The whole answer to a request, or its whole error."""
    try:
        result = await client.session.send_request(Raw(method=method, params=params), AnyResult)
    except MCPError as error:
        return f"{error} {error.error.data}"
    return result.model_dump_json(by_alias=True)


def calls(outside: Outside) -> dict[str, list[dict[str, Any]]]:
    """Arguments with names of the vault for every own tool."""
    secret: dict[str, Any] = {"_tool": "test_simple_text", "_module": "vault"}
    defined = {
        "name": "mine",
        "parameters": {"type": "object", "properties": {"_module": {"const": "vault"}}},
        "_module": "vault",
        "_activity": "test_simple_text",
    }
    code = {"name": "mine", "_activity": "write_note"}
    program = "import vault\nawait vault.test_simple_text()"
    approval = {"approval": "a0-000000000000", "decision": "approve"}
    solution = {"calls": [secret], "output": None}
    return {
        "search_tools": [
            {"words": "test simple text image"},
            {"words": ""},
            {"words": "test_simple_text"},
            {"words": ["vault.test_simple_text", "private_secret"]},
            {"words": "text", "module": "vault"},
        ],
        "run_plan": [
            {"calls": [secret]},
            {"calls": [{"_tool": "test_simple_text"}]},
            {"calls": [{"_tool": "vault.test_simple_text"}]},
            {"calls": [{"_tool": "vault_test_simple_text"}]},
            {"calls": [secret], "dry_run": True},
            {"calls": [{"_tool": "private_secret"}]},
            {"calls": [{"_tool": "private_secret", "_module": "idea:private_secret"}]},
            {"calls": [{"_tool": "private_secret", "_module": "idea:private_secret@1"}]},
            {"calls": [{"_tool": "add", "a": 1, "b": 2, "_activity": "write_note"}]},
            {"calls": [{"_tool": "mine"}], "tools": [defined]},
            {"calls": [{"_tool": "mine"}], "tools": [code]},
            {"calls": [{"_tool": "run_program", "program": program}]},
            {"program": program},
            {"program": "from servers import vault\nawait vault.test_simple_text()"},
            {"program": "import ideas\nawait ideas.private_secret()"},
            {"program": "import tools\nawait tools.write_note(path='x', text='y')"},
            {"calls": [secret], "save_as": "shared_mine"},
        ],
        "solve": [
            {"task": "open it", "tools": ["*"]},
            {"task": "open it", "tools": ["test_simple_text"]},
            {"task": "open it", "tools": ["vault.*"]},
            {"task": "open it", "tools": ["idea:private_secret"]},
            {"task": "open it", "idea": "private_secret"},
            {"task": "open it", "idea": outside.idea[:12]},
            {"context": [{"type": "tool", "tool": "test_simple_text"}]},
            {"context": [{"type": "tool", "tool": defined}]},
            {"run": outside.waiting, "turn": 0, "solution": solution},
        ],
        "submit_solution": [{"run": outside.waiting, "turn": 0, "solution": solution}],
        "check_run": [
            {},
            {"run": outside.run},
            {"run": outside.run, "paths": ["†state.secret"]},
            {"run": outside.waiting, "cancel": True},
        ],
        "decide_approval": [{"run": outside.waiting, "decisions": [approval]}],
        "search_ideas": [{}, {"words": "secret"}, {"words": "simple text"}, {"module": "vault"}],
        "publish_idea": [
            {"idea": outside.run, "name": "shared_stolen"},
            {"idea": outside.idea, "name": "shared_stolen"},
            {"idea": "private_secret", "name": "shared_stolen"},
            {"idea": "session", "name": "shared_stolen"},
            {"idea": {"context": ["x"], "solution": solution}, "name": "shared_stolen"},
            {
                "idea": {"context": ["x"], "solution": {"calls": [{"_tool": "test_simple_text"}]}},
                "name": "shared_stolen",
            },
            {"idea": {"context": ["x"], "program": program}, "name": "shared_stolen"},
        ],
        "view_run": [{"run": outside.run}],
    }


def requests(outside: Outside) -> dict[str, list[dict[str, Any]]]:
    """Parameters with names of the vault for every method of the server."""
    prompt = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    template = {"type": "ref/resource", "uri": "test://template/{id}/data"}
    ideas = {"type": "ref/resource", "uri": "idea://{name}"}
    argument = {"name": "arg1", "value": "t"}
    return {
        "tools/list": [{}, *({"cursor": cursor} for cursor in CURSORS)],
        "tools/call": [
            {"name": "test_simple_text", "arguments": {}},
            {"name": "vault_test_simple_text", "arguments": {}},
            {"name": "private_secret", "arguments": {}},
            {"name": "private_secret@1", "arguments": {}},
            {"name": "write_note", "arguments": {"path": "x", "text": "y"}},
        ],
        "resources/list": [{}, *({"cursor": cursor} for cursor in CURSORS)],
        "resources/templates/list": [{}, *({"cursor": cursor} for cursor in CURSORS)],
        "resources/read": [
            {"uri": "test://static-text"},
            {"uri": "test://template/7/data"},
            {"uri": "idea://private_secret"},
            {"uri": "idea://private_secret/1"},
            {"uri": "skill://private_secret/SKILL.md"},
            {"uri": "ui://vault/view"},
        ],
        "resources/subscribe": [
            {"uri": "test://watched-resource"},
            {"uri": "idea://private_secret"},
        ],
        "resources/unsubscribe": [{"uri": "test://watched-resource"}],
        "prompts/list": [{}, *({"cursor": cursor} for cursor in CURSORS)],
        "prompts/get": [
            {"name": "test_simple_prompt"},
            {"name": "vault_test_simple_prompt"},
            {"name": "private_secret"},
        ],
        "completion/complete": [
            {"ref": prompt, "argument": {"name": "arg1", "value": ""}},
            {"ref": template, "argument": {"name": "id", "value": ""}},
            {"ref": template, "argument": {"name": "id", "value": "7"}},
            {"ref": {**prompt, "name": "vault_test_prompt_with_arguments"}, "argument": argument},
            {"ref": {**prompt, "name": "private_secret"}, "argument": argument},
            {"ref": ideas, "argument": {"name": "name", "value": "private"}},
        ],
        "tasks/get": [{"taskId": outside.run}],
        "tasks/update": [{"taskId": outside.waiting, "inputResponses": {}}],
        "tasks/cancel": [{"taskId": outside.waiting}],
        "skills/list": [{}],
        "skills/get": [{"uri": "skill://private_secret/SKILL.md"}],
        "logging/setLevel": [{"level": "debug"}],
    }


def test_the_walk_knows_every_method_and_every_own_tool() -> None:
    found = Outside()
    found.run = found.waiting = found.idea = "run_0"
    source = Path(server.__file__).read_text()
    methods = {*re.findall(r'add_request_handler\(\s*"([^"]+)"', source)}
    assert len(methods) > 12
    assert methods <= requests(found).keys()
    assert calls(found).keys() == set(OWN_NAMES)


@pytest.mark.parametrize("mode", ERAS)
async def test_no_method_and_no_tool_leaves_a_profile(outside: Outside, mode: str) -> None:
    async with within(outside.url, mode) as client:
        answers: dict[str, str] = {}
        for method, variants in requests(outside).items():
            for params in variants:
                answers[f"{method} {json.dumps(params)}"] = await said(client, method, params)

        for tool, variants in calls(outside).items():
            for arguments in variants:
                params = {"name": tool, "arguments": arguments}
                answers[f"{tool} {json.dumps(arguments)}"] = await said(
                    client, "tools/call", params
                )

        for asked, answer in answers.items():
            leaked = [word for word in outside.words if word in answer]
            # The session may get back what it wrote itself.
            assert [word for word in leaked if word not in asked] == [], (asked, answer)
            assert '"secret":' not in answer, (asked, answer)

        # The runs outside are unchanged.
        assert "unknown run" in await refused(client, "check_run", run=outside.waiting)

    async with Client(outside.url, mode=mode, read_timeout_seconds=20) as client:
        waiting = await call(client, "check_run", run=outside.waiting)
        assert waiting["status"] == "needs_solution"
        listed = await all_tools(client)
        assert not {"shared_stolen", "shared_mine"} & listed.keys()


async def test_what_is_refused_is_told_apart_from_what_is_unknown(outside: Outside) -> None:
    async with within(outside.url, "auto") as client:
        assert NAMED in await refused(client, "test_simple_text")
        assert "unknown tool" in await refused(client, "test_nothing")
        assert NAMED in await refused(client, "private_secret")
        for secret in (
            {"_tool": "test_simple_text"},
            {"_tool": "test_simple_text", "_module": "vault"},
            {"_tool": "private_secret"},
            {"_tool": "private_secret", "_module": "idea:private_secret"},
        ):
            assert NAMED in await refused(client, "run_plan", calls=[secret])

        unknown = await refused(client, "run_plan", calls=[{"_tool": "test_nothing"}])
        assert "unknown tool" in unknown
        assert "profile" not in unknown
        program = "import vault\nawait vault.test_simple_text()"
        assert NAMED in await refused(client, "run_plan", program=program)
        tools = ["test_simple_text"]
        assert NAMED in await refused(client, "solve", task="x", tools=tools)
        found = await call(client, "search_tools", words="test_simple_text")
        assert NAMED in found["refused"][0]["why"]
        assert NAMED in await refused(client, "search_tools", words="x", module="vault")
        assert NAMED in await said(client, "resources/read", {"uri": "idea://private_secret"})
        assert NAMED in await said(client, "prompts/get", {"name": "private_secret"})
        mine = await refused(client, "publish_idea", idea="shared_secret", name="mine")
        assert NAMED in mine


async def test_a_profile_has_its_servers_tools_and_ideas(outside: Outside) -> None:
    async with within(outside.url, "auto") as client:
        listed = await all_tools(client)
        assert {"lookup", "add", "shared_secret"} <= listed.keys()
        assert not {"write_note", "test_simple_text", "private_secret"} & listed.keys()
        assert "profile 'review'" in (client.instructions or "")
        assert "lookup" in text(await client.call_tool("lookup", {"x": "1"}))
        plan = [{"_tool": "lookup", "_module": "docs", "x": "1", "_outputPath": "found"}]
        assert (await call(client, "run_plan", calls=plan))["state"]["found"]
        # An idea that the profile names uses the tools with which it was published.
        answer = await client.call_tool("shared_secret", {})
        assert "simple text response" in text(answer)
        inner = [{"_tool": "shared_secret", "_outputPath": "text"}]
        assert "simple text" in (await call(client, "run_plan", calls=inner))["state"]["text"]

    async with within(outside.url, "auto", "docs") as client:
        listed = await all_tools(client)
        # Without `ideas`, a profile contains the ideas that call only tools of the profile.
        assert not {"shared_secret", "private_secret", "test_simple_text"} & listed.keys()
        assert {"lookup", "write_note"} <= listed.keys()
        assert "not in profile 'docs'" in await refused(client, "shared_secret")

    async with within(outside.url, "auto", "vault") as client:
        assert {"shared_secret", "private_secret", "test_simple_text"} <= (
            await all_tools(client)
        ).keys()
        assert "not in profile 'vault'" in await refused(client, "lookup", x="1")


@pytest.mark.parametrize("mode", ERAS)
async def test_runs_stay_in_their_profile(outside: Outside, mode: str) -> None:
    async with within(outside.url, mode) as client:
        asked = await call(client, "solve", task="read", tools=["*"])
        schema = json.dumps(asked["requests"])
        assert "lookup" in schema
        assert "test_simple_text" not in schema

    async with within(outside.url, mode, "vault") as client:
        assert "unknown run" in await refused(client, "check_run", run=asked["run"])

    async with within(outside.url, mode) as client:
        solution = {"calls": [{"_tool": "test_simple_text", "_module": "vault"}], "output": None}
        answer = await call(client, "solve", run=asked["run"], turn=0, solution=solution)
        assert "unknown" in json.dumps(answer["errors"])

    async with Client(outside.url, mode=mode, read_timeout_seconds=20) as client:
        # Without a profile, the same person finds the run.
        assert (await call(client, "check_run", run=asked["run"]))["run"] == asked["run"]


async def test_an_unknown_profile_is_refused_with_the_nearest(outside: Outside) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{outside.url}/p/revew", json=PING)
        assert answer.status_code == 404
        assert "Did you mean 'review'?" in answer.text


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_on_stdio_is_restricted(tmp_path: Path, mode: str) -> None:
    file = configuration(tmp_path)

    def start(path: Path) -> list[str]:
        return served(path, "--profile", "review")

    async with over_stdio(file, mode, start) as client:
        listed = await all_tools(client)
        assert {"lookup", "add"} <= listed.keys()
        assert not {"write_note", "test_simple_text"} & listed.keys()
        assert NAMED in await refused(client, "test_simple_text")
        assert "not in profile" in await refused(
            client, "run_plan", calls=[{"_tool": "write_note", "path": "x", "text": "y"}]
        )


@pytest.mark.parametrize("mode", ERAS)
async def test_a_refused_plan_starts_no_server_outside_the_profile(
    tmp_path: Path, mode: str
) -> None:
    vault = Starting(tmp_path, "vault", start="lazy")
    docs = Starting(tmp_path, "docs", start="lazy")
    file = configured(
        tmp_path,
        approval="allow_all",
        mcpServers={"vault": vault.entry, "docs": docs.entry},
        profiles={"review": {"servers": ["docs"]}},
    )

    def start(path: Path) -> list[str]:
        return served(path, "--profile", "review")

    def tally(server: str) -> list[dict[str, Any]]:
        return [{"_tool": "tally", "_module": server, "_outputPath": "n"}]

    async with over_stdio(file, mode, start) as client:
        assert NAMED in await refused(client, "run_plan", calls=tally("vault"))
        assert NAMED in await refused(client, "run_plan", program="await vault.tally()")
        assert vault.starts == 0
        # The same plan starts a server that is in the profile.
        await call(client, "run_plan", calls=tally("docs"))
        assert docs.starts == 1


class Tokens:
    """A server, and tokens for a profile and for none."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        with Store.open(folder / "ideas.sqlite") as store:
            store.users.add("ann")
            self.bound = store.users.add_token("ann", "for reviews", profile="review")[1]
            self.free = store.users.add_token("ann")[1]
            self.stale = store.users.add_token("ann", profile="gone")[1]

    async def status(self, token: str, path: str = "") -> tuple[int, str]:
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
            answer = await http.post(f"{self.url}{path}", json=PING)
            return answer.status_code, answer.text

    @asynccontextmanager
    async def client(self, token: str, path: str = "") -> AsyncGenerator[Client]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20) as http,
            Client(streamable_http_client(f"{self.url}{path}", http_client=http)) as client,
        ):
            yield client


@pytest.fixture
def tokens(tmp_path: Path) -> Generator[Tokens]:
    with http_process(configuration(tmp_path)) as url:
        yield Tokens(url, tmp_path)


async def test_a_token_is_bound_to_its_profile(tokens: Tokens) -> None:
    async with tokens.client(tokens.bound) as client:
        assert not {"write_note", "test_simple_text"} & (await all_tools(client)).keys()
        assert NAMED in await refused(client, "test_simple_text")
        ran = await call(client, "run_plan", calls=[{"_tool": "add", "a": 1, "b": 2}])

    async with tokens.client(tokens.bound, "/p/review") as client:
        assert (await call(client, "check_run", run=ran["run"]))["status"] == "done"

    status, why = await tokens.status(tokens.bound, "/p/vault")
    assert status == 403
    assert "'review' and 'vault'" in why
    assert (await tokens.status("ibt_0", "/p/review"))[0] == 401
    # If the profile of a token has since been removed, the token gives access to nothing.
    async with tokens.client(tokens.stale) as client:
        assert {"lookup", "add"}.isdisjoint(await all_tools(client))
        assert "not in profile 'gone'" in await refused(client, "lookup", x="1")

    async with tokens.client(tokens.free, "/p/vault") as client:
        assert "test_simple_text" in await all_tools(client)
        assert "not in profile 'vault'" in await refused(client, "lookup", x="1")
        assert "unknown run" in await refused(client, "check_run", run=ran["run"])

    async with tokens.client(tokens.free) as client:
        assert {"lookup", "test_simple_text"} <= (await all_tools(client)).keys()


def approval_of(run: Run) -> str:
    """The only approval that a run waits for."""
    (asked,) = run.approvals()
    assert isinstance(asked, dict)
    return str(asked["approval"])


async def test_calls_that_only_an_idea_may_make_are_not_edited(tmp_path: Path) -> None:
    profile = {"tools": ["add"], "ideas": ["shared_*"]}
    file = configured(tmp_path, profiles={"review": profile})
    note = tmp_path / "note"
    written: dict[str, Any] = {"_tool": "write_note", "path": str(note), "text": "as published"}
    async with Bridge(load_configuration(file)) as bridge:
        first = await bridge.run_plan(calls=[written])
        await first.wait()
        first.decide(approval_of(first), "approve", by="ann")
        await first.wait()
        await bridge.publish(first.id, "shared_note")

        reviewer = in_profile("review", LOCAL)
        with pytest.raises(PlanError, match=NAMED):
            await bridge.run_plan(calls=[written], caller=reviewer)

        replay = await bridge.start_idea("shared_note", caller=reviewer)
        assert replay.run is not None
        await replay.run.wait()
        approval = approval_of(replay.run)
        other = {**written, "text": "something else"}
        with pytest.raises(DecisionError, match=NAMED):
            replay.run.decide(approval, "edit", call=other, by="ann")
        replay.run.decide(approval, "approve", by="ann")
        assert await replay.run.wait() == "done"

    assert note.read_text() == "as published"


def test_a_token_is_made_for_a_profile_that_exists(tmp_path: Path) -> None:
    file = configured(tmp_path, profiles={"review": {"tools": ["add"]}})
    runner = CliRunner()
    added = runner.invoke(
        app, ["users", "add", "ann", "--profile", "review", "--config", str(file), "--json"]
    )
    assert added.exit_code == 0, added.output
    assert json.loads(added.stdout)["token"]["profile"] == "review"
    refusal = runner.invoke(
        app, ["users", "add", "bob", "--profile", "revew", "--config", str(file)]
    )
    assert refusal.exit_code != 0
    assert "Did you mean 'review'?" in str(refusal.exception) + refusal.output


async def test_the_page_shows_and_calls_nothing_outside_a_profile(tmp_path: Path) -> None:
    file = str(configuration(tmp_path))
    with page_of(tmp_path, "--config", file, command="serve") as url:
        base = url.removesuffix("/ui/")
        tokens = Tokens(f"{base}/mcp", tmp_path)
        async with (
            httpx2.AsyncClient(base_url=base, follow_redirects=True, timeout=60) as http,
            tokens.client(tokens.free) as free,
        ):
            await http.post("/ui/sign-in", data={"token": tokens.bound})
            servers = (await http.get("/ui/modules")).text
            assert "/ui/modules/docs" in servers
            assert "/ui/modules/vault" not in servers
            assert "/ui/modules/vault" not in (await http.get("/ui/home")).text
            refused_page = html.unescape((await http.get("/ui/modules/vault")).text)
            assert NAMED in refused_page
            with anyio.fail_after(60):
                # The server may still be starting.
                while "lookup" not in (await http.get("/ui/modules/docs")).text:  # noqa: ASYNC110 - no event tells it
                    await anyio.sleep(0.05)

            secret = re.search(r'name="secret" value="([^"]+)"', (await http.get(PLAYGROUND)).text)
            assert secret is not None

            async def send(where: str, **fields: str) -> str:
                headers = {"Origin": base, "Referer": f"{base}{PLAYGROUND}"}
                form = {"secret": secret[1], **fields}
                response = await http.post(where, data=form, headers=headers)
                return f"{response.url.path} {html.unescape(response.text)}"

            outside = {
                "/ui/modules/vault/call": {"tool": "test_simple_text"},
                "/ui/modules/docs/call": {"tool": "test_simple_text"},
                "/ui/modules/own/call": {"tool": "write_note", "path": "x", "text": "y"},
            }
            for path, fields in outside.items():
                answer = await send(path, **fields)
                assert "/ui/runs/" not in answer.partition(" ")[0]
                assert NAMED in answer or "has no tool" in answer or "unknown" in answer, (
                    path,
                    answer,
                )

            plan = json.dumps({"calls": [{"_tool": "test_simple_text", "_module": "vault"}]})
            answer = await send(
                PLAYGROUND, kind="plan", text=plan, input="", title="", action="run"
            )
            assert NAMED in answer

            answer = await send("/ui/modules/docs/call", tool="lookup", x="1")
            # The page of the tool shows what the call returned.
            assert answer.startswith("/ui/modules/docs/tools/lookup ")
            [run] = re.findall('href="/ui/runs/(run_[0-9a-f]+)"', answer)
            path = f"/ui/runs/{run}"
            async with tokens.client(tokens.bound) as bound:
                assert (await call(bound, "check_run", run=run, wait_s=20))["status"] == "done"
            assert '"tool"' in html.unescape((await http.get(path)).text)

            # A run that the same person made outside of any profile is not found in one.
            ran = await call(free, "run_plan", calls=[{"_tool": "add", "a": 1, "b": 2}])
            assert ran["run"] not in (await http.get("/ui/runs")).text
            assert (await http.get(f"/ui/runs/{ran['run']}")).status_code == 404


async def test_a_worker_keeps_to_the_profile_of_a_run(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    with working(file), listening(served(file, "--http", "0", "--workers")) as url:
        async with within(url, "auto") as client:
            plan = [{"_tool": "lookup", "_module": "docs", "x": "1", "_outputPath": "text"}]
            ran = await call(client, "run_plan", calls=plan, wait_s=20)
            assert ran["status"] == "done"
            assert ran["state"]["text"]

            asked = await call(client, "solve", task="read", tools=["*"])
            solution = {"calls": [{"_tool": "test_simple_text", "_module": "vault"}]}
            turn = {"run": asked["run"], "turn": 0, "solution": solution, "wait_s": 20}
            assert "unknown" in json.dumps((await call(client, "solve", **turn))["errors"])


async def test_a_run_that_is_resumed_keeps_its_profile(tmp_path: Path) -> None:
    configured_with = load_configuration(configuration(tmp_path))
    reviewer = in_profile("review", LOCAL)
    secret: JSONObject = {"_tool": "test_simple_text", "_module": "vault"}
    async with Bridge(configured_with) as bridge:
        await bridge.modules.settled(20)
        run = await bridge.solve("read", tools=["*"], caller=reviewer)
        assert "test_simple_text" not in {tool.name for tool in run.machine.catalogue.tools}
        run_id = run.id

    async with Bridge(configured_with) as bridge:
        await bridge.modules.settled(20)
        with pytest.raises(UnknownRunError):
            await bridge.run(run_id, caller=in_profile("vault", LOCAL))

        run = await bridge.run(run_id, caller=reviewer)
        run.submit(0, {"calls": [secret], "output": None})
        assert await run.wait(20) == "needs_solution"
        assert "unknown server 'vault'" in str(run.errors())
        read: JSONObject = {"_tool": "lookup", "_module": "docs", "x": "1", "_outputPath": "text"}
        run.submit(1, {"calls": [read], "output": "†state.text"})
        assert await run.wait(20) == "done"
        assert "lookup" in str(run.given())
