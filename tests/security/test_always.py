"""Only a person allows a tool always: the attacks, the first of them over real transports."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.standing_rules import rules_path
from ideabridge.bridge.store.store import Store
from tests import preloaded
from tests.server.serving import (
    BIN,
    ERAS,
    TOOLS,
    call,
    configured,
    http_process,
    in_memory,
    over_stdio,
    read_by_a_person,
    refused,
)
from tests.trusting import write_trusted

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of the user. The servers run in a project beside it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return folder


class Person:
    """Answers each form in the same way, and notes what it offered."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.forms: list[dict[str, Any]] = []

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.forms.append(params.requested_schema["properties"]["decision"])
        await read_by_a_person()
        return types.ElicitResult(action="accept", content={"decision": self.decision})


def note(path: Path) -> dict[str, Any]:
    return {"_tool": "write_note", "path": str(path), "text": "hello", "_outputPath": "written"}


async def rules(configuration: Path, *words: str) -> list[dict[str, Any]]:
    """What `ideabridge approvals rules` prints."""
    command = preloaded.python(BIN / "ideabridge", "approvals", "rules", "--json", *words)
    command += ["--config", str(configuration)]
    ended = await anyio.run_process(command, stdin=subprocess.DEVNULL)
    printed: dict[str, Any] = json.loads(ended.stdout)
    return printed.get("rules") or printed.get("removed") or []


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_says_always_in_a_form_and_takes_it_back(era: str, tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    person = Person("always")
    async with over_stdio(configuration, era, elicitation_callback=person) as client:
        for name in ("one", "two"):
            done = await call(client, "run_plan", calls=[note(tmp_path / name)])
            assert done["status"] == "done"
        [form] = person.forms
        assert form["enum"] == ["approve", "always", "approve_for_run", "deny"]
        assert len(form["enumNames"]) == 4

        [rule] = await rules(configuration)
        assert (rule["tool"], rule["state"]) == ("write_note", "holds")
        assert rule["workspace"] == str(tmp_path / "project")
        cited = f"the standing rule {rule['id']} of {rule['at'][:10]}"
        by = "the person at the client"
        assert done["decided"] == [f"call 0 (write_note): approve ({cited}) by {by}"]

        # The running server notices this at the next call.
        await rules(configuration, "--remove", rule["id"][:6])
        await call(client, "run_plan", calls=[note(tmp_path / "three")])
        assert len(person.forms) == 2


async def test_a_direct_call_that_asks_is_covered_too(tmp_path: Path) -> None:
    configuration = configured(tmp_path, expose=["tools"], approval={"by": "person"})
    person = Person("always")
    async with in_memory(configuration, "auto", elicitation_callback=person) as client:
        for name in ("one", "two"):
            path = tmp_path / name
            result = await client.call_tool("write_note", {"path": str(path), "text": "hello"})
            assert not result.is_error, result
            assert path.read_text() == "hello"
    assert len(person.forms) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_an_assistant_allows_nothing_always(era: str, tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    async with in_memory(configuration, era) as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])
        approval = told["approvals"][0]["approval"]
        for made in (
            {"decision": "always"},
            {"decision": "approve", "always": True},
            {"decision": "approve", "grant": {"for": "always"}},
            {"decision": "approve", "grant": {"for": "run"}, "rule": {"id": "x"}},
        ):
            decisions = [{"approval": approval, **made}]
            await refused(client, "decide_approval", run=told["run"], decisions=decisions)

        assert (await call(client, "check_run", run=told["run"]))["status"] == "needs_approval"
        decisions = [{"approval": approval, "decision": "approve"}]
        await call(client, "decide_approval", run=told["run"], decisions=decisions)
        told = await call(client, "run_plan", calls=[note(tmp_path / "two")])
        assert told["status"] == "needs_approval"

    assert not rules_path().exists()


async def test_a_script_allows_nothing_always(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    async with in_memory(configuration, "auto") as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "one")])

    decide = ["approvals", "decide", "approve", told["run"], "--always"]
    command = preloaded.python(BIN / "ideabridge", *decide, "--config", str(configuration))
    ended = await anyio.run_process(command, input=b"y\ny\n", check=False)
    assert ended.returncode == 2
    assert b"only a person can choose to always allow a tool" in ended.stderr
    assert not rules_path().exists()
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("key", ["approvals", "standing_rules", "always", "alwaysAllow"])
async def test_a_project_adds_and_reads_no_rules(key: str, tmp_path: Path) -> None:
    """Neither a key of its file, nor a file of its own."""
    project = tmp_path / "project"
    configuration = configured(tmp_path)
    person = Person("always")
    async with in_memory(configuration, "auto", elicitation_callback=person) as client:
        await call(client, "run_plan", calls=[note(tmp_path / "one")])
    stored = rules_path().read_text()
    rules_path().unlink()

    (project / rules_path().name).write_text(stored)
    async with in_memory(configuration, "auto") as client:
        told = await call(client, "run_plan", calls=[note(tmp_path / "two")])
        assert told["status"] == "needs_approval"

    content = {key: json.loads(stored)["rules"], "tools": [str(TOOLS)], "store": "s.sqlite"}
    write_trusted(project, content)
    # Some of these keys are rejected, and the others are ignored.
    command = preloaded.python(BIN / "ideabridge", "run", "-", "--json")
    plan = json.dumps({"calls": [note(tmp_path / "three")]})
    ended = await anyio.run_process(command, input=plan.encode(), check=False)
    said = b"unknown key" if ended.returncode == 2 else b"approval needed"
    assert ended.returncode in (2, 4)
    assert said in ended.stderr
    assert not (tmp_path / "three").exists()


# -- users of one server ---------------------------------------------------------------------------


@asynccontextmanager
async def user(url: str, token: str, decision: str) -> AsyncGenerator[tuple[Client, Person]]:
    person = Person(decision)
    async with AsyncExitStack() as stack:
        headers = {"authorization": f"Bearer {token}"}
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=20))
        transport = streamable_http_client(url, http_client=http)
        client = await stack.enter_async_context(Client(transport, elicitation_callback=person))
        yield client, person


async def test_each_user_has_rules_of_their_own(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    tokens: dict[str, str] = {}
    with Store.open(tmp_path / "ideas.sqlite") as store:
        for name in ("ann", "bob"):
            store.users.add(name)
            _, tokens[name] = store.users.add_token(name)

    with http_process(configuration) as url:
        async with user(url, tokens["ann"], "always") as (client, ann):
            for name in ("one", "two"):
                await call(client, "run_plan", calls=[note(tmp_path / name)])
            assert len(ann.forms) == 1

        async with user(url, tokens["bob"], "deny") as (client, bob):
            told = await client.call_tool("run_plan", {"calls": [note(tmp_path / "three")]})
            assert len(bob.forms) == 1
            assert "denied by the person at the client (bob)" in str(told)

        # The rule is in the store, and is withdrawn by the store's owner.
        assert not rules_path().exists()
        [rule] = await rules(configuration)
        assert (rule["caller"], rule["by"]) == ("user:ann", "the person at the client (ann)")
        await rules(configuration, "--remove", rule["id"])
        async with user(url, tokens["ann"], "deny") as (client, ann):
            await client.call_tool("run_plan", {"calls": [note(tmp_path / "four")]})
            assert len(ann.forms) == 1

    assert [(tmp_path / name).exists() for name in ("two", "three", "four")] == [True, False, False]
