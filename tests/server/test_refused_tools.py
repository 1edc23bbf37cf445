"""Tools that are not allowed, unknown or left out, and those of modules that are disabled or down,
are told apart.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from .serving import call, configured, in_memory, over_stdio, plain, refused, text

pytestmark = pytest.mark.anyio

NOT_ALLOWED = "mcpServers.mail does not allow tool 'drop' ('allow' and 'deny')"
LEFT_OUT = (
    "which cannot be called: its name is empty, has more than 256 characters or is not printable"
)
ODD = "o\x07dd"
NO_TOOLS = "server 'bare' is up, but has no tools that can be called"
STRICT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    error = {"code": -32000, "message": "the licence has expired"}
    print(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error}), flush=True)
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[Client]:
    schema = {"type": "object"}
    tools: list[Any] = ["send", "drop", {"name": ODD, "inputSchema": schema}]
    modules = {
        "mail": {**plain(tmp_path, "mail", *tools), "deny": ["drop"]},
        "off": {**plain(tmp_path, "off", "rest"), "disabled": True},
        "gone": {"command": "no-such-program"},
        "bare": plain(tmp_path, "bare"),
        "strict": {"command": sys.executable, "args": ["-I", "-c", STRICT]},
    }
    configuration = configured(
        tmp_path, mcpServers=modules, expose=["modules"], approval="allow_all"
    )
    async with in_memory(configuration, "legacy") as client:
        await client.call_tool("send", {"x": "hello"})
        yield client


async def test_direct_calls(client: Client) -> None:
    assert await refused(client, "drop") == NOT_ALLOWED
    assert LEFT_OUT in await refused(client, ODD)
    unknown = await refused(client, "sned")
    assert "unknown tool 'sned'" in unknown
    assert "send" in unknown
    assert "gone (" in unknown


PLANS = (
    ("drop", "mail", NOT_ALLOWED),
    ("drop", None, NOT_ALLOWED),
    (ODD, "mail", LEFT_OUT),
    ("sned", "mail", "server 'mail' has no tool 'sned'. Did you mean 'send'"),
    ("rest", "off", "server 'off' is disabled"),
    ("any", "gone", "server 'gone' is down (server 'gone' cannot be started: the program"),
    ("any", "bare", NO_TOOLS),
    (
        "any",
        "strict",
        "server 'strict' is down (server 'strict' did not start: the licence has expired (-32000)",
    ),
    ("any", "maill", "unknown server 'maill'. Did you mean 'mail'"),
)
"""Calls of plans: the tool, its server if the call names it, and why the plan is refused."""


async def test_plans(client: Client) -> None:
    for tool, module, why in PLANS:
        named = {} if module is None else {"_module": module}
        # Nobody waits for a server that has refused the handshake.
        with anyio.fail_after(20):
            told = await refused(client, "run_plan", calls=[{"_tool": tool, **named}])
        assert why in told


PROGRAMS = (
    ("import mail\nawait mail.drop()", NOT_ALLOWED),
    ("import off\nawait off.rest()", "server 'off' is disabled in the configuration"),
    ("import gone\nawait gone.any()", "no-such-program"),
    ("import bare\nawait bare.any()", NO_TOOLS),
    ("from servers import bare\nawait bare.any()", NO_TOOLS),
    ("import strict\nawait strict.any()", "the licence has expired"),
)


async def test_programs(client: Client) -> None:
    for program, why in PROGRAMS:
        assert why in await refused(client, "run_plan", program=program)


async def test_search(client: Client) -> None:
    told = await client.call_tool("search_tools", {"words": "drop"})
    assert f"drop cannot be called: {NOT_ALLOWED}" in text(told)
    found = await call(client, "search_tools", words=["drop", "send"])
    assert found["refused"] == [{"tool": "drop", "module": "mail", "why": NOT_ALLOWED}]


MUTE = "import sys; sys.stdin.read()"


async def test_a_plan_that_names_its_modules_waits_for_no_other(tmp_path: Path) -> None:
    modules = {
        "mail": {**plain(tmp_path, "mail", "send", "drop"), "deny": ["drop"]},
        "off": {**plain(tmp_path, "off", "rest"), "disabled": True},
        "mute": {"command": sys.executable, "args": ["-I", "-c", MUTE]},
    }
    configuration = configured(tmp_path, mcpServers=modules, approval="allow_all")
    async with over_stdio(configuration, "legacy") as client:
        await call(client, "run_plan", calls=[{"_tool": "send", "_module": "mail", "x": "hello"}])
        for tool, module, why in (
            ("drop", "mail", NOT_ALLOWED),
            ("sned", "mail", "server 'mail' has no tool 'sned'. Did you mean 'send'"),
            ("rest", "off", "server 'off' is disabled"),
            ("any", "maill", "unknown server 'maill'. Did you mean 'mail'"),
        ):
            with anyio.fail_after(20):
                assert why in await refused(
                    client, "run_plan", calls=[{"_tool": tool, "_module": module}]
                )
