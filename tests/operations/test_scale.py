"""The examples for Compose and Kubernetes: what they start serves, and their proxy keeps clients
at their server.

`make dist` checks the files with the tools of those who read them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ideabridge.bridge.store.store import Store
from tests import postgres, preloaded
from tests.server.serving import BIN, ERAS, call, listening

from .proxies import PACKAGING, caddyfile, changed, free_port, program, waiting_for

pytestmark = pytest.mark.anyio

TOOLS = '''
import os
from ideabridge.tools import tool

@tool(read_only=True)
def where() -> int:
    """The process in which the call runs."""
    return os.getpid()
'''


def compose() -> dict[str, list[str]]:
    """The words after `ideabridge` of each service in compose.yaml that runs it."""
    services = yaml.safe_load((PACKAGING / "compose.yaml").read_text(encoding="utf-8"))["services"]
    return {
        name: service["command"]
        for name, service in services.items()
        if service.get("image") == "ideabridge"
    }


def kubernetes() -> dict[str, list[str]]:
    """The words after `ideabridge` of each deployment in kubernetes.yaml."""
    documents = yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text(encoding="utf-8"))
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["args"]
        for one in documents
        if one["kind"] == "Deployment"
    }


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    path = tmp_path / "ideabridge.json"
    path.write_text(json.dumps({"store": postgres.server().address(), "tools": ["tools.py"]}))
    return path


def started(words: list[str], configuration: Path) -> list[str]:
    """A command of an example, with a configuration and an address of the test."""
    kept: list[str] = []
    named = iter(words)
    for word in named:
        if word in ("--store", "--config"):
            next(named)
        else:
            kept.append("127.0.0.1:0" if word == "0.0.0.0:8787" else word)

    return preloaded.python(BIN / "ideabridge", *kept, "--config", str(configuration))


@contextmanager
def working(command: list[str]) -> Generator[int]:
    """A worker process that is ready; gives its number."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "taking up to" in line, line
        yield preloaded.number(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0


@pytest.mark.parametrize("words", [compose(), kubernetes()], ids=["compose", "kubernetes"])
async def test_what_an_example_starts_makes_calls_at_workers(
    words: dict[str, list[str]], configuration: Path
) -> None:
    assert sorted(words) == ["server", "worker"]
    with (
        working(started(words["worker"], configuration)) as worker,
        listening(started(words["server"], configuration)) as url,
    ):
        base = url.removesuffix("/mcp")
        with httpx2.Client() as http:
            assert http.get(f"{base}/healthz").status_code == 200
            assert http.get(f"{base}/readyz").status_code == 200
        async with Client(url, read_timeout_seconds=60) as client:
            answer = await call(
                client,
                "run_plan",
                calls=[{"_tool": "where", "_outputPath": "at"}],
                output="†state.at",
            )

    assert answer["output"] == worker


@contextmanager
def balanced(folder: Path, urls: list[str]) -> Generator[str]:
    """Caddy with compose.Caddyfile in front of these servers; gives its URL. Its files are in a
    folder of its own.
    """
    upstreams = " ".join(url.removeprefix("http://").partition("/")[0] for url in urls)
    port = free_port()
    folder = folder / f"caddy{port}"
    folder.mkdir()
    example = PACKAGING / "compose.Caddyfile"
    found = program("caddy")
    assert found is not None
    formatted = subprocess.run(
        [found, "fmt", str(example)], capture_output=True, text=True, check=True
    )
    assert formatted.stdout == example.read_text(encoding="utf-8")
    file = folder / "Caddyfile"
    dynamic = "\t\tdynamic a server 8787 {\n\t\t\trefresh 5s\n\t\t}\n"
    site = changed(
        caddyfile("compose.Caddyfile"),
        (dynamic, f"\t\tto {upstreams}\n"),
        (":8787 {\n", f"http://127.0.0.1:{port} {{\n"),
    )
    file.write_text(f"{{\n\tadmin off\n}}\n{site}")
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    command = [found, "run", "--config", str(file), "--adapter", "caddyfile"]
    with waiting_for(command, port, folder / "log", environment):
        yield f"http://127.0.0.1:{port}/mcp"


def tokens_of(configuration: Path, *users: str) -> list[str]:
    """A token for each of some new users."""
    with Store.open(json.loads(configuration.read_text())["store"]) as store:
        return [store.users.add_token(store.users.add(user).name)[1] for user in users]


@pytest.mark.skipif(program("caddy") is None, reason="caddy is not installed")
@pytest.mark.parametrize("mode", ERAS)
async def test_clients_stay_at_their_server_and_find_another_when_it_has_gone(
    mode: str, configuration: Path, tmp_path: Path
) -> None:
    command = started(kubernetes()["server"], configuration)
    tokens = tokens_of(configuration, "ann", "bob", "cleo", "dan", "eve", "fay")
    with (
        working(started(kubernetes()["worker"], configuration)) as worker,
        listening(command) as left,
    ):
        with listening(command) as right, balanced(tmp_path, [left, right]) as url:
            for token in tokens:
                assert await places(url, token, mode, times=4) == [worker] * 4
        with balanced(tmp_path, [left, right]) as url, httpx2.Client() as http:
            # The second server has ended. One request discovers this, and the server's clients then
            # start again at the first one.
            answers = [
                http.get(url, headers={"authorization": f"Bearer {token}"}).status_code
                for token in tokens
            ]
            assert answers.count(502) <= 1
            for token in tokens:
                assert await places(url, token, mode, times=1) == [worker]


async def places(url: str, token: str, mode: str, *, times: int) -> list[Any]:
    """The processes in which calls of one client run."""
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        plan: dict[str, Any] = {
            "calls": [{"_tool": "where", "_outputPath": "at"}],
            "output": "†state.at",
        }
        return [(await call(client, "run_plan", **plan))["output"] for _ in range(times)]
