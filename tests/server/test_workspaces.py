"""The workspaces of the service: which project a session belongs to comes from its address."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.store import Store
from ideabridge.server.service import create_token, service_token
from ideabridge.server.workspaces import (
    UnknownWorkspaceError,
    WorkspaceError,
    forget_workspace,
    register_workspace,
    registered_workspaces,
    workspace_folder,
    workspaces_file,
)
from tests import preloaded
from tests.operations.test_metrics import Scraped
from tests.trusting import write_own, write_trusted
from tests.ui.serving import send, stranger, without_breaks
from tests.waiting import PAUSE

from .serving import BIN, ERAS, Heard, all_tools, call, listening, plain, text

pytestmark = pytest.mark.anyio

EXPOSED: dict[str, Any] = {"expose": ["modules", "tools"], "approval": "allow_all"}
TOOL = """
import helper
from ideabridge.tools import tool

@tool(read_only=True)
async def {name}() -> str:
    return helper.WHOSE
"""


def write_tool(folder: Path, name: str) -> None:
    """Write a file with a tool that says whose helper it has imported. All helpers have one
    name.
    """
    (folder / "tools.py").write_text(TOOL.format(name=name))
    (folder / "helper.py").write_text(f"WHOSE = {folder.name!r}")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of nobody's, with the token of the service."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    create_token()
    return folder


def project(home: Path, name: str, **content: Any) -> Path:
    """A registered project folder with a trusted file."""
    folder = home / name
    folder.mkdir()
    if content:
        write_trusted(folder, content)
    register_workspace(folder)
    return folder


@contextmanager
def service(home: Path, *more: str) -> Generator[str]:
    """The service, as systemd starts it in the home folder; gives the URL of `/mcp`."""
    words = ("serve", "--http", "127.0.0.1:0", "--service", "--project", str(home), *more)
    with listening(preloaded.python(BIN / "ideabridge", *words)) as url:
        yield url


@asynccontextmanager
async def session(
    url: str, mode: str = "legacy", heard: Heard | None = None
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {service_token()}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(
            transport, mode=mode, read_timeout_seconds=30, message_handler=heard
        ) as client:
            yield client


async def refusal(url: str, token: str | None = None) -> tuple[int, str]:
    """The status and the text of the answer to a request that is refused."""
    headers = {"Authorization": f"Bearer {service_token() if token is None else token}"}
    async with httpx2.AsyncClient(timeout=30) as http:
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answer = await http.post(url, json=message, headers=headers if token != "" else {})
        return answer.status_code, answer.text


def processes(file: Path) -> list[str]:
    """The ids of the processes that have this file among their arguments."""
    listed = subprocess.run(["ps", "-wweo", "pid,args"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in listed.stdout.splitlines() if str(file) in line]


def revision(visitor: httpx.Client, path: str) -> str:
    """The revision of the store that a page shows."""
    shown = re.search(r'data-revision="([^"]+)"', visitor.get(path).text)
    assert shown is not None
    return shown[1]


def folder_of(pid: str) -> Path:
    """The folder in which a process runs."""
    return Path(f"/proc/{pid}/cwd").readlink()


@pytest.mark.parametrize("mode", ERAS)
async def test_each_address_has_what_its_folder_has(home: Path, mode: str) -> None:
    write_own({**EXPOSED, "mcpServers": {"notes": plain(home, "notes", "read")}})
    alpha = project(home, "alpha")
    write_tool(alpha, "grade")
    servers = {"own": plain(alpha, "own", "only_alpha")}
    write_trusted(
        alpha, {**EXPOSED, "mcpServers": servers, "tools": ["tools.py"], "store": "i.sqlite"}
    )
    beta = project(home, "Beta !")
    write_tool(beta, "level")
    servers = {"own": plain(home, "b", "only_beta")}
    write_trusted(beta, {**EXPOSED, "mcpServers": servers, "tools": ["tools.py"]})
    assert registered_workspaces() == {"alpha": alpha, "beta": beta}
    with service(home) as url:
        async with (
            session(url, mode) as user,
            session(f"{url}/w/alpha", mode) as in_alpha,
            session(f"{url}/w/beta", mode) as in_beta,
        ):
            idea: dict[str, Any] = {
                "context": [{"role": "user", "content": "x"}],
                "solution": {"calls": [], "output": 1},
                "name": "first",
            }
            # Lists wait for servers that are starting, but not after the first call.
            assert "only_alpha" in await all_tools(in_alpha)
            await call(in_alpha, "publish_idea", idea=idea, name="first")
            own = {"read", "only_alpha", "only_beta", "grade", "first"}
            assert own & {*await all_tools(user)} == {"read"}
            assert own & {*await all_tools(in_alpha)} == {"read", "only_alpha", "grade", "first"}
            assert own & {*await all_tools(in_beta)} == {"read", "only_beta"}
            assert text(await in_alpha.call_tool("grade", {})) == "alpha"
            assert text(await in_beta.call_tool("level", {})) == "Beta !"

            plan = {"calls": [{"_tool": "read", "x": "1", "_outputPath": "y"}]}
            for client in (user, in_alpha, in_beta):
                assert (await call(client, "run_plan", **plan))["status"] == "done"
            # The user's server runs only once, whoever calls it.
            assert len(processes(home / "notes.json")) == 1


async def test_an_address_without_a_workspace_is_refused(home: Path) -> None:
    profiles = {"profiles": {"few": {"servers": ["notes"]}}}
    write_own({**EXPOSED, "mcpServers": {"notes": plain(home, "notes", "read")}})
    alpha = project(
        home, "alpha", **EXPOSED, **profiles, mcpServers={"own": plain(home, "own", "more")}
    )
    gone = project(home, "gone")
    gone.rmdir()
    with Store.open(home / "data" / "ideabridge" / "ideas.sqlite") as store:
        users_token = store.users.add_token(store.users.add("alice").name)[1]

    with service(home) as url:
        assert (await refusal(f"{url}/w/alpha", ""))[0] == 401
        assert (await refusal(f"{url}/w/other", ""))[0] == 401
        status, text = await refusal(f"{url}/w/alpa")
        assert status == 404
        assert "'alpa' is not registered" in text
        assert "alpha" in text
        status, text = await refusal(f"{url}/w/gone")
        assert status == 404
        assert "no longer exists" in text
        for path in ("/w/", "/w/%2e%2e%2falpha", "/w/alpha/more"):
            assert (await refusal(f"{url}{path}"))[0] == 404
        # A named user of the store does not share workspaces with the person at this machine.
        status, text = await refusal(f"{url}/w/alpha", users_token)
        assert status == 404
        assert "is not registered" not in text

        async with session(f"{url}/w/alpha/p/few") as narrowed:
            tools = {*await all_tools(narrowed)}
            assert "read" in tools
            assert "more" not in tools
        status, text = await refusal(f"{url}/w/alpha/p/none")
        assert status == 404
        assert "profile 'none' is not configured" in text
        assert (await refusal(f"{url}/p/few"))[0] == 404

        async with session(f"{url}/w/alpha") as client:
            assert "more" in await all_tools(client)
            forget_workspace("alpha")
            status, text = await refusal(f"{url}/w/alpha")
            assert status == 404
            assert "is not registered" in text
            register_workspace(alpha)
        # The workspace is opened again.
        async with session(f"{url}/w/alpha") as client:
            assert "more" in await all_tools(client)


async def test_each_workspace_follows_its_files(home: Path) -> None:
    write_own({**EXPOSED, "mcpServers": {"notes": plain(home, "notes", "read")}})
    alpha = project(home, "alpha", **EXPOSED, mcpServers={"own": plain(home, "own", "before")})
    project(home, "beta")
    heard = Heard()
    with service(home) as url:
        async with (
            session(f"{url}/w/alpha", heard=heard) as in_alpha,
            session(f"{url}/w/beta") as in_beta,
        ):
            await _until(in_alpha, heard, {"read", "before"}, set())
            write_trusted(alpha, {**EXPOSED, "mcpServers": {"own": plain(home, "new", "after")}})
            await _until(in_alpha, heard, {"read", "after"}, {"before"})
            assert "after" not in await all_tools(in_beta)

            changed = plain(home, "changed", "written")
            write_own({**EXPOSED, "mcpServers": {"notes": changed}})
            await _until(in_alpha, heard, {"written", "after"}, {"read"})
            plan = {"calls": [{"_tool": "written", "x": "1", "_outputPath": "y"}]}
            for client in (in_alpha, in_beta):
                assert (await call(client, "run_plan", **plan))["status"] == "done"
            assert len(processes(home / "changed.json")) == 1

            # A change that is not trusted leaves the current configuration in force, at this
            # address only.
            (alpha / "ideabridge.json").write_text(json.dumps({"mcpServers": {}}))
            with anyio.fail_after(20):
                while True:
                    if "has changed since" in await _searched(in_alpha):
                        break
                    await anyio.sleep(0.1)
            assert "has changed since" not in await _searched(in_beta)
            assert "after" in await all_tools(in_alpha)


async def _until(client: Client, heard: Heard, wanted: set[str], unwanted: set[str]) -> None:
    """Wait until a client lists some tools, and others no more."""
    with anyio.fail_after(30):
        while True:
            number = len(heard.methods)
            tools = {*await all_tools(client)}
            if wanted <= tools and not unwanted & tools:
                return
            await heard.more_than(number)


async def _searched(client: Client) -> str:
    answer = await client.call_tool("search_tools", {"words": "x"})
    return json.dumps([block.model_dump(mode="json") for block in answer.content])


async def test_the_servers_of_a_project_run_in_its_folder(home: Path) -> None:
    where = {"command": sys.executable, "args": ["-I", "where.py"], "start": "eager"}
    write_own({**EXPOSED, "mcpServers": {}})
    untrusted = project(home, "untrusted")
    (untrusted / "ideabridge.json").write_text(json.dumps({"mcpServers": {"odd": where}}))
    alpha = project(home, "alpha", **EXPOSED, mcpServers={"own": plain(home, "own", "inside")})
    with service(home) as url:
        async with session(f"{url}/w/untrusted") as client:
            told = await _searched(client)
            assert "ideabridge trust" in told
            assert str(untrusted) in told
        async with session(f"{url}/w/alpha") as client:
            assert "inside" in await all_tools(client)
            [pid] = processes(home / "own.json")
            assert folder_of(pid) == alpha


async def test_metrics_have_every_workspace_and_count_what_they_share_once(home: Path) -> None:
    notes = {**plain(home, "notes", "read"), "start": "eager"}
    write_own({**EXPOSED, "mcpServers": {"notes": notes}})
    project(home, "alpha", **EXPOSED, mcpServers={"own": plain(home, "own", "inside")})
    project(home, "beta", **EXPOSED, store="beta.sqlite")
    project(home, "closed", **EXPOSED)
    calls = [
        {"_tool": "inside", "_outputPath": "a"},
        {"_tool": "read", "_outputPath": "b"},
    ]
    with service(home, "--metrics") as url:
        async with session(f"{url}/w/alpha") as in_alpha, session(f"{url}/w/beta") as in_beta:
            assert (await call(in_alpha, "run_plan", calls=calls))["status"] == "done"
            await in_beta.call_tool("read", {})
            headers = {"Authorization": f"Bearer {service_token()}"}
            async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
                answer = await http.get(url.replace("/mcp", "/metrics"))

    metrics = Scraped(answer.text)
    # A shared server is counted once, although three bridges use it, and so is a store that two of
    # them share.
    assert metrics.labelled("module_up") == [
        {"module": "notes"},
        {"workspace": "alpha", "module": "own"},
    ]
    assert metrics.labelled("store_bytes") == [{}, {"workspace": "beta"}]
    of_alpha = {"workspace": "alpha", "outcome": "ok"}
    assert metrics("calls_total", module="own", tool="inside", **of_alpha) == 1
    assert metrics("calls_total", module="notes", tool="read", **of_alpha) == 1
    assert metrics("runs_ended_total", workspace="alpha", kind="plan", status="done") == 1
    assert metrics("call_seconds_count", workspace="beta", module="notes") == 1
    assert metrics("call_seconds_count", module="notes") == 0
    assert {labels.get("workspace", "") for labels in metrics.labelled("runs_at_work")} == {
        "",
        "alpha",
        "beta",
    }


async def test_the_service_is_not_ready_while_the_store_of_a_workspace_is_gone(home: Path) -> None:
    write_own({**EXPOSED, "mcpServers": {}})
    alpha = project(home, "alpha", **EXPOSED, store="i.sqlite")
    with service(home) as url:
        ready = url.replace("/mcp", "/readyz")
        async with session(f"{url}/w/alpha") as client, httpx2.AsyncClient(timeout=30) as http:
            await client.list_tools()
            assert (await http.get(ready)).json() == {"status": "ok"}
            for file in alpha.glob("i.sqlite*"):
                file.unlink()
            with anyio.fail_after(20):
                while (answer := await http.get(ready)).is_success:  # noqa: ASYNC110 - no event
                    await anyio.sleep(PAUSE)
            # Anyone can send this request, so the answer does not name the workspace.
            assert "the store of a workspace cannot be read" in answer.json()["reasons"]
            assert "alpha" not in answer.text


async def test_the_page_lists_the_workspaces_and_shows_each(home: Path) -> None:
    write_own({**EXPOSED, "mcpServers": {"notes": plain(home, "notes", "read")}})
    profiles = {"few": {"servers": ["own"]}}
    entries = {"own": plain(home, "own", "inside")}
    alpha = project(home, "alpha", **EXPOSED, mcpServers=entries, profiles=profiles, store="a")
    project(home, "beta")
    plan = json.dumps({"calls": [{"_tool": "inside", "_outputPath": "a"}]})
    with service(home, "--ui") as url, stranger(url.replace("/mcp", "/ui/")) as visitor:
        assert visitor.get("/ui/w/alpha/home").url.path == "/ui/sign-in"
        visitor.post("/ui/sign-in", data={"token": service_token()})

        listed = without_breaks(visitor.get("/ui/workspaces").text)
        assert str(alpha) in listed
        assert listed.count("not open") == 2
        shown = without_breaks(visitor.get("/ui/w/alpha/modules").text)
        assert "/ui/w/alpha/modules/own" in shown
        assert "/ui/w/alpha/modules/notes" in shown
        assert "/mcp/w/alpha/p/few" in shown
        assert visitor.get("/ui/modules/own").status_code == 404
        listed = without_breaks(visitor.get("/ui/workspaces").text)
        assert listed.count("not open") == 1
        assert "/ui/w/alpha/modules/own" in listed
        assert "1 server of your own configuration" in listed
        assert "/mcp/w/alpha/p/few" in listed

        # An open page follows the store of its workspace, and its stream does not count as a page
        # in progress.
        assert revision(visitor, "/ui/w/alpha/home") != revision(visitor, "/ui/home")
        with ExitStack() as streams:
            for _ in range(20):
                stream = streams.enter_context(visitor.stream("GET", "/ui/w/alpha/live"))
                assert stream.status_code == 200

        # Forms stay in the workspace, and each page shows the runs of its own store.
        page = "/ui/w/alpha/playground"
        fields = {"kind": "plan", "text": plan, "input": "", "title": "of alpha"}
        ran = send(visitor, page, page, **fields, action="run")
        assert ran.url.path.startswith("/ui/w/alpha/runs/run_")
        run = ran.url.path.rpartition("/")[2]
        assert run in visitor.get("/ui/w/alpha/runs").text
        assert run not in visitor.get("/ui/runs").text
        assert visitor.get(f"/ui/runs/{run}").status_code == 404
        refused = send(visitor, f"/ui/w/alpha/runs/{run}/fork", page, at="x")
        assert refused.url.path.startswith("/ui/w/alpha/")

        for path in (
            "/ui/w/alpa/home",
            "/ui/w/%2e%2e/home",
            "/ui/w/alpha/admin",
            "/ui/w/alpha/assistants",
        ):
            assert visitor.get(path).status_code == 404
        assert "alpha" in visitor.get("/ui/w/alpa/home").text


async def test_the_page_shows_workspaces_to_their_user_only(home: Path) -> None:
    write_own({**EXPOSED, "mcpServers": {}})
    project(home, "alpha", **EXPOSED)
    with Store.open(home / "data" / "ideabridge" / "ideas.sqlite") as store:
        users_token = store.users.add_token(store.users.add("alice").name)[1]

    with service(home, "--ui") as url, stranger(url.replace("/mcp", "/ui/")) as alice:
        alice.post("/ui/sign-in", data={"token": users_token})
        assert alice.get("/ui/home").is_success
        assert "/ui/workspaces" not in alice.get("/ui/home").text
        assert "alpha" not in alice.get("/ui/workspaces").text
        refused = alice.get("/ui/w/alpha/home")
        assert refused.status_code == 404
        assert "for the user of this machine only" in refused.text


def test_names_are_unique_and_only_the_user_writes_them(home: Path) -> None:
    folders = [home / "a" / "My App", home / "b" / "my-app", home / "c" / "…"]
    for folder in folders:
        folder.mkdir(parents=True)
    assert [register_workspace(folder) for folder in folders] == ["my-app", "my-app-2", "workspace"]
    assert register_workspace(folders[0]) == "my-app"
    link = home / "link"
    link.symlink_to(folders[1])
    assert register_workspace(link) == "my-app-2"
    assert workspace_folder("my-app-2") == folders[1]
    assert workspaces_file().stat().st_mode & 0o777 == 0o600
    with pytest.raises(UnknownWorkspaceError, match="my-app"):
        forget_workspace("my-ap")
    forget_workspace("my-app")
    assert [*registered_workspaces()] == ["my-app-2", "workspace"]
    assert register_workspace(folders[0]) == "my-app"

    workspaces_file().chmod(0o666)
    workspaces_file().write_text(json.dumps({"workspaces": {"evil": "/"}, "version": 10}))
    with pytest.raises(WorkspaceError):
        registered_workspaces()
    workspaces_file().chmod(0o600)
    workspaces_file().write_text('{"workspaces": {"../x": "/tmp"}}')
    with pytest.raises(WorkspaceError, match="expected absolute folders"):
        registered_workspaces()
