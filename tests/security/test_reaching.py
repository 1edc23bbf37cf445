"""How clients reach a server over HTTP: what the start says, and what is answered to a name that
is not allowed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ideabridge.bridge.store.store import Store
from tests import preloaded
from tests.server.serving import BIN, configured, listening

pytestmark = pytest.mark.anyio

ACCEPT = {"accept": "application/json, text/event-stream"}
PING: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def serve(folder: Path, *more: str) -> list[str]:
    configuration = str(configured(folder))
    return preloaded.python(
        BIN / "ideabridge", "serve", "--config", configuration, "--http", "127.0.0.1:0", *more
    )


@pytest.mark.parametrize(
    ("headers", "status", "told"),
    [
        (
            {"host": "tools.example:8787"},
            421,
            "Host 'tools.example:8787'",
        ),
        ({"host": "tools.example"}, 421, "--allow-host tools.example`"),
        ({"host": "[2001:db8::1]:80"}, 421, "--allow-host [2001:db8::1]`"),
        ({"host": "a b;rm -rf"}, 421, "--allow-host NAME`"),
        ({"origin": "https://evil.example"}, 403, "--allow-host evil.example`"),
        ({"origin": "null"}, 403, "Origin 'null'"),
    ],
)
async def test_a_name_that_is_not_allowed_is_refused_with_the_option_that_allows_it(
    tmp_path: Path, headers: dict[str, str], status: int, told: str
) -> None:
    with listening(serve(tmp_path)) as url:
        async with httpx2.AsyncClient(headers=ACCEPT) as http:
            answer = await http.post(url, json=PING, headers=headers)
            assert answer.status_code == status
            assert told in answer.json()["error"]["message"]
    with listening(serve(tmp_path, "--allow-host", "tools.example")) as url:
        async with httpx2.AsyncClient(headers=ACCEPT) as http:
            answer = await http.post(url, json=PING, headers={"host": "tools.example:8787"})
            assert answer.status_code != 421


@pytest.mark.parametrize("users", [False, True])
def test_the_start_says_how_clients_reach_it(tmp_path: Path, *, users: bool) -> None:
    if users:
        with Store.open(tmp_path / "ideas.sqlite") as store:
            store.users.add("alice")

    command = serve(tmp_path, "--allow-host", "tools.example")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = process.stderr.readline().strip().rpartition(":")[2].partition("/")[0]
        lines: list[str] = []
        while "(421)" not in (line := process.stderr.readline()):
            assert line, lines
            lines.append(line)

        process.terminate()

    told = "".join(lines)
    assert f"http://tools.example:{port}/mcp" in told
    header = " --header 'Authorization: Bearer TOKEN'" if users else ""
    assert (
        f"claude mcp add --transport http ideabridge http://tools.example:{port}/mcp{header}\n"
        in told
    )
    assert ("Authorization: Bearer TOKEN" in told) is users
    assert "ideabridge users add NAME" in told
    assert all(len(line) <= 81 for line in lines if "claude mcp" not in line)
