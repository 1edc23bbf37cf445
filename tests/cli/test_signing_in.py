"""`servers login` and `servers logout`, with a browser that agrees at once, or a person who
pastes an address.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from anyio.abc import Process

from tests import preloaded
from tests.modules.authorized import Authorized, authorized
from tests.trusting import write_trusted

from .conftest import EXECUTABLE, Run

pytestmark = pytest.mark.anyio

VISIT = """
import sys, urllib.error, urllib.request
from urllib.parse import urlsplit
address = sys.argv[1]
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *rest):
        return None
try:
    urllib.request.build_opener(Stay).open(address)
except urllib.error.HTTPError as redirect:
    back = redirect.headers["location"]
for wrong in (back.replace("state=", "state=x"), back.replace("/callback", "/other")):
    try:
        urllib.request.urlopen(wrong)
    except urllib.error.HTTPError as refused:
        print("refused", refused.code, file=sys.stderr)
print(urllib.request.urlopen(back).status, file=sys.stderr)
"""


async def apart(
    run: Callable[[], subprocess.CompletedProcess[str]],
) -> subprocess.CompletedProcess[str]:
    """Run a command while the servers of this process answer."""
    return await anyio.to_thread.run_sync(run)


def configured(project: Path, server: Authorized) -> None:
    write_trusted(project, {"mcpServers": {"tickets": {"url": server.url}}})


async def test_a_browser_signs_in_and_the_tokens_can_be_deleted(
    ideabridge: Run, project: Path, tmp_path: Path
) -> None:
    visit = tmp_path / "visit.py"
    visit.write_text(VISIT)
    environment = {"BROWSER": f"{sys.executable} {visit} %s"}
    async with authorized() as server:
        configured(project, server)
        done = await apart(lambda: ideabridge("servers", "list"))
        assert done.returncode == 1
        assert (
            "server 'tickets' needs you to sign in: ideabridge servers login tickets" in done.stderr
        )
        done = await apart(lambda: ideabridge("doctor"))
        assert "needs you to sign in: ideabridge servers login tickets" in done.stdout
        done = await apart(lambda: ideabridge("servers", "login", "tickets", env=environment))
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert f"  {server.base}/authorize?" in done.stderr
        assert "refused 400\nrefused 404\n200\n" in done.stderr
        assert "signed in to tickets; the tokens are in " in done.stderr
        [access] = server.provider.access
        assert access not in done.stderr
        done = await apart(lambda: ideabridge("servers", "list"))
        assert done.returncode == 0, done.stderr
        done = await apart(lambda: ideabridge("servers", "logout", "tickets"))
        assert (done.returncode, done.stderr) == (0, f"signed out of tickets at {server.url}\n")
        done = await apart(lambda: ideabridge("servers", "logout", "tickets"))
        assert (done.returncode, done.stderr) == (1, "nobody is signed in to tickets\n")
        done = await apart(lambda: ideabridge("servers", "list"))
        assert done.returncode == 1


async def test_a_user_of_the_server_signs_in(
    ideabridge: Run, project: Path, tmp_path: Path
) -> None:
    visit = tmp_path / "visit.py"
    visit.write_text(VISIT)
    environment = {"BROWSER": f"{sys.executable} {visit} %s"}
    async with authorized() as server:
        configured(project, server)
        done = await apart(lambda: ideabridge("users", "add", "alice"))
        assert done.returncode == 0, done.stderr
        done = await apart(
            lambda: ideabridge("servers", "login", "tickets", "--user", "alicia", env=environment)
        )
        assert done.returncode != 0
        assert "there is no user 'alicia'" in done.stderr
        assert server.provider.access == {}
        done = await apart(
            lambda: ideabridge("servers", "login", "tickets", "--user", "alice", env=environment)
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "alice is signed in to tickets; the tokens are in " in done.stderr
        # This is not the sign-in of the person at the terminal.
        done = await apart(lambda: ideabridge("servers", "list"))
        assert done.returncode == 1
        assert "tickets: these users are signed in: alice" in done.stderr
        assert (
            "server 'tickets' needs you to sign in: ideabridge servers login tickets" in done.stderr
        )
        done = await apart(lambda: ideabridge("servers", "list", "--json"))
        assert [one["users"] for one in json.loads(done.stdout)["modules"]] == [["alice"]]
        done = await apart(lambda: ideabridge("servers", "logout", "tickets"))
        assert (done.returncode, done.stderr.splitlines()) == (
            1,
            [
                "nobody is signed in to tickets",
                "still signed in to tickets (--user signs them out): alice",
            ],
        )
        done = await apart(lambda: ideabridge("servers", "logout", "tickets", "--user", "alice"))
        assert (done.returncode, done.stderr) == (
            0,
            f"alice is signed out of tickets at {server.url}\n",
        )
        done = await apart(lambda: ideabridge("servers", "logout", "tickets", "--user", "alice"))
        assert (done.returncode, done.stderr) == (1, "alice is not signed in to tickets\n")


async def test_an_address_can_be_pasted(ideabridge: Run, project: Path) -> None:
    async with authorized() as server:
        configured(project, server)
        command = preloaded.python(
            EXECUTABLE, "servers", "login", "tickets", "--no-browser", "--json"
        )
        process = await anyio.open_process(command, cwd=project)
        async with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            told = ""
            with anyio.fail_after(20):
                while "Paste that address" not in told:
                    told += (await process.stderr.receive()).decode()
                found = re.search(r"^  (http\S+)$", told, re.M)
                assert found is not None
                async with httpx2.AsyncClient() as browser:
                    response = await browser.get(found[1])
                await process.stdin.send(f"{response.headers['location']}\n".encode())
                answer = json.loads(await process.stdout.receive())
            assert answer["signed_in"] is True
            assert answer["kept_in"].startswith(str(Path.home()))


@asynccontextmanager
async def shown_code(project: Path, *words: str) -> AsyncGenerator[tuple[Process, str]]:
    """`servers login tickets --device`, and what it has shown when it begins to wait."""
    command = preloaded.python(EXECUTABLE, "servers", "login", "tickets", "--device", *words)
    async with await anyio.open_process(command, cwd=project, env=os.environ) as process:
        assert process.stderr is not None
        told = ""
        with anyio.fail_after(20):
            while "waiting until" not in told:
                told += (await process.stderr.receive()).decode()
            yield process, told


async def test_a_code_is_entered_on_another_device(ideabridge: Run, project: Path) -> None:
    async with authorized() as server:
        configured(project, server)
        devices = server.offer_devices()
        devices.offered = {"interval": 0}  # the shortest, which takes a second
        done = await apart(lambda: ideabridge("users", "add", "alice"))
        assert done.returncode == 0, done.stderr
        async with shown_code(project, "--user", "alice", "--json") as (process, told):
            assert told.splitlines() == [
                "open this address in a browser on any device, and enter the code there:",
                f"  address: {server.base}/activate",
                "     code: WDJB-0001",
                "or open this address, which contains the code, and compare the code there:",
                f"  {server.base}/activate?user_code=WDJB-0001",
                "waiting until someone has signed in there; the code is valid for 10 min",
            ]
            assert max(map(len, told.splitlines())) <= 80
            async with httpx2.AsyncClient() as browser:
                await browser.get(f"{server.base}/activate", params={"user_code": "WDJB-0001"})
            assert process.stdout is not None
            answer = json.loads(await process.stdout.receive())
            assert await process.wait() == 0
        assert (answer["user"], answer["signed_in"]) == ("alice", True)
        assert answer["kept_in"].startswith(str(Path.home()))
        done = await apart(lambda: ideabridge("servers", "list"))
        assert "tickets: these users are signed in: alice" in done.stderr
        done = await apart(
            lambda: ideabridge("servers", "login", "tickets", "--device", "--no-browser")
        )
        assert (done.returncode, done.stderr) == (
            2,
            (
                "ideabridge: give --device or --no-browser, not both: with --device, there is no "
                "address to paste\n"
            ),
        )


async def test_waiting_for_another_device_can_be_interrupted(project: Path) -> None:
    async with authorized() as server:
        configured(project, server)
        server.offer_devices()
        async with shown_code(project) as (process, _):
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
            assert process.stderr is not None
            assert b"".join([part async for part in process.stderr]) == b""
        assert server.provider.access == {}


async def test_why_nobody_can_sign_in_is_told_in_one_line(ideabridge: Run, project: Path) -> None:
    async with authorized() as server:
        configured(project, server)
        server.missing = ("/register",)
        done = await apart(lambda: ideabridge("servers", "login", "tickets"))
        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert line.startswith(
            "ideabridge: server 'tickets' cannot be signed in to: Registration failed: 404"
        )
        done = await apart(
            lambda: ideabridge("servers", "login", "tickets", "--no-browser", typed="\n")
        )
        assert done.returncode == 1


async def test_what_needs_no_sign_in_is_told(ideabridge: Run, project: Path) -> None:
    async with authorized() as server:
        headers = {"Authorization": "Bearer of-my-own"}
        secret = {
            "grant": "client_credentials",
            "client_id": "me",
            "client_secret": "s",
            "issuer": server.base,
        }
        entries = {
            "program": {"command": "true"},
            "header": {"url": server.url, "headers": headers},
            "client": {"url": server.url, "auth": secret},
        }
        write_trusted(project, {"mcpServers": entries})
        for name, words in (
            ("program", "program is a program, which signs in on its own"),
            ("client", "client needs no person"),
            ("header", "mcpServers.header.headers contains the token for header"),
            ("progam", "nearest: program"),
        ):
            done = await apart(lambda name=name: ideabridge("servers", "login", name, typed=""))
            assert done.returncode == 2, done.stderr
            assert words in done.stderr
